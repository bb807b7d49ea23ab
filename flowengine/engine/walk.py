"""Decides what runs next, by all the rules there are. No clock, no task, no I/O.

Theory of operation:

1. A node is *decided* once all its parents are settled: gate, then join. It becomes ready or it is
   skipped, with a cause; `when` and everything else that needs the node's context is the node's.
2. `apply` takes the event that settles a node (finished, failed, skipped, cancelled) and decides its
   children. Settling costs the node's edges and writes, never the size of the graph.
3. An unhandled failure halts the walk: only `join: always` nodes become ready after it;
   what would have been ready is skipped (`cancelled`). `stop` ends it: nothing becomes ready.
4. A failed node taints what is skipped because of it, so a failure reaches a join through skips.
5. An earlier run's journal is folded (`restoring`): what had settled for good and has only such
   parents stays settled; everything else is decided again from the same facts, and so with the same
   outcome.
6. A level ends by an unhandled failure (`failure`), by what stopped it (`is_cut`), by waiting for
   somebody (`waits`), in this order; a level without these is `done`, and only a level that is done has a result.
7. The body of a loop, a map or a subflow is a walk of its own (`levels`), with the path of its
   container before the paths of its nodes; what stops a walk stops the walks inside it.

Status of a node, and what leads from one to the next:

    PENDING ──all parents settled──▶ READY ──start──▶ RUNNING ──▶ SUCCEEDED
       │                               │                 ├──────▶ WAITING    parked; READY again when answered
       │                               │                 ├──────▶ FAILED     on_error: fail
       │ gate or join says no          │ halted          ├──────▶ HANDLED    on_error: {then: id}
       ▼                               ▼                 ├──────▶ SKIPPED    on_error: skip, when: false
    SKIPPED or TAINTED              SKIPPED              └──────▶ CANCELLED

Source of the rules: rules 2, 3, 4 and 7 of the flow format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowengine.core import (
    EMPTY,
    OF_THIS_RUN,
    UNCHANGEABLE,
    Decided,
    FailedEvaluation,
    FailedRouting,
    NodeResult,
    NodeStatus,
    SkipCause,
    freeze,
)
from flowengine.engine.events import ErrorInfo, Event, NodeCancelled, NodeFailed, NodeFinished, NodeSkipped
from flowengine.engine.graph import ON_ERROR, Graph, OnError
from flowengine.engine.restoring import TOP, History, RestoredPast, answer_to, past_of
from flowengine.engine.result_propagation import NOTHING, ResultPropagation
from flowengine.engine.state import (
    ENGINE_OWNED,
    EVALUATION,
    IN_ORDER,
    ROUTING,
    Conflict,
    Layer,
    StateStore,
    kept_key,
    kept_name,
)
from flowengine.errors import NotJournalableError, StateConflictError

PENDING, READY, RUNNING, SUCCEEDED, FAILED, HANDLED, SKIPPED, TAINTED, CANCELLED, WAITING = range(10)

STATUS: Final[tuple[NodeStatus, ...]] = (
    "pending",
    "pending",
    "running",
    "succeeded",
    "failed",
    "failed",
    "skipped",
    "skipped",
    "cancelled",
    "waiting",
)
"""Inner status → its name outside."""

Decision = tuple[int, SkipCause]
"""A node that was skipped by the walk itself, and why."""


class Walk:
    """One run's way through a graph.

    `ready` holds the numbers of nodes that may start, oldest first; the caller that starts one takes it out
    and calls `start`. `decided` collects the skips that followed from an `apply`, for the journal.

    >>> from flowengine.engine.graph import Edge, Graph, Vertex
    >>> walk = Walk(Graph([Vertex("a"), Vertex("b")], [Edge("a", "b")]), StateStore({}))
    >>> list(walk.ready)
    [0]
    >>> walk.start(walk.ready.popleft())
    'a'
    >>> walk.apply(NodeFinished("a", 0.0, NodeResult(output=1)))
    >>> list(walk.ready), walk.status("a")
    ([1], 'succeeded')
    """

    __slots__ = (
        "__weakref__",
        "_causes",
        "_children",
        "_conflicts",
        "_container",
        "_entering",
        "_errors",
        "_gates",
        "_halted",
        "_id_readers",
        "_layers_after",
        "_layers_before",
        "_parents",
        "_passing",
        "_patched",
        "_results",
        "_routed",
        "_routes",
        "_statuses",
        "_stopped",
        "_unsettled",
        "_waiting",
        "attempts",
        "decided",
        "env",
        "graph",
        "history",
        "inputs",
        "inside",
        "joined",
        "outer",
        "patches",
        "prefix",
        "ready",
        "run_id",
        "store",
        "variables",
    )

    def __init__(
        self,
        graph: Graph,
        store: StateStore,
        *,
        inputs: Mapping[str, Any] = EMPTY,
        env: Mapping[str, str] = EMPTY,
        run_id: str | None = None,
        history: History | None = None,
        prefix: str = TOP,
        variables: Mapping[str, Any] = EMPTY,
        received: Any = NOTHING,
        outer: tuple[Walk, int] | None = None,
        container: tuple[Walk, int] | None = None,
        patches: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        """`history`: what earlier owners of the run left behind. `patches`: node → what it finds in shared state
        beside what its ancestors wrote.

        Of a level inside another: `prefix` is what its nodes' paths begin with, `variables` the names that its
        container adds, `received` what its first nodes get as `result`, `container` its walk and its number there,
        and `outer` the same, None where nothing of it is seen inside (a subflow).
        """
        size = len(graph)
        self.graph = graph
        self.store = store
        self.inputs = inputs
        self.env = env
        self.run_id = run_id
        self.decided: list[Decision] = []
        self.joined: set[int] = set()
        """Nodes that may run although not all that is before them went well: their join decided it."""
        self.prefix = prefix
        self.variables = variables
        self.outer = outer
        self.patches = patches or {}
        self._patched: set[int] = set()
        self._container = container
        self._id_readers: set[int] = set()
        """Nodes that have read the run's id."""
        self.history = history or History()
        past = past_of(graph, self.history.of(prefix), prefix)
        self.attempts = self.history.attempts
        """Records of nodes that have not finished; of all levels."""
        self.inside: set[Walk] = set()
        """The levels that are under way inside this one's nodes."""
        self._entering = received
        self._passing: ResultPropagation | None = None
        self._statuses = bytearray(size)
        self._waiting = list(graph.degrees)
        self._layers_before: list[Layer] = [store.root] * size
        """The state that a node sees; a fresh node's is known once it is decided."""
        self._layers_after: list[Layer] = [store.root] * size
        """The state that a node leaves behind."""
        self._results: list[NodeResult | None] = [None] * size
        self._routes: dict[int, str | None] = {}
        self._errors: dict[int, ErrorInfo] = {}
        self._causes: dict[int, SkipCause] = {}
        self._conflicts: list[Conflict] = []
        self._unsettled = size
        self._halted = self._stopped = False
        # Bound once: these are read for every node.
        self._parents, self._children, self._routed, self._gates = (
            graph.parents,
            graph.children,
            graph.routes,
            graph.gates,
        )
        for number in graph.roots:
            self._statuses[number] = READY
        self.ready = deque(graph.roots)
        if past.settled or past.skips or past.unfinished or past.stale:
            self._restore(past.settled)
            self.decided = [each for each in self.decided if each not in past.skips]
            self._forget(past)

    @property
    def passing(self) -> ResultPropagation:
        """The value that each node receives as `result`. It knows the walk, so one that is never asked is no cycle to
        collect."""
        if self._passing is None:
            self._passing = ResultPropagation(self.graph, self.result_of, self._entering)
        return self._passing

    # --- what runs next -------------------------------------------------------------------------

    def start(self, number: int) -> str:
        """A ready node was taken; its path."""
        self._statuses[number] = RUNNING
        if number in self.patches:
            self._patch(number)
        return self.prefix + self.graph.ids[number]

    def _patch(self, number: int) -> None:
        if number in self._patched:  # It parked meanwhile.
            return
        self._patched.add(number)
        base, before = self._layers_before[number], number - 0.5
        self._layers_before[number] = self.store.write(
            before, base, self.store.admit(before, base, self.patches[number])
        )

    def stop(self) -> None:
        """Nothing starts any more, not even `join: always`."""
        self._stopped = True
        self.ready.clear()
        for level in self.inside:
            level.stop()

    def park(self, number: int) -> None:
        """A node waits for somebody outside: the others go on, and the run ends with it unsettled."""
        self._statuses[number] = WAITING

    def enter_again(self, number: int) -> bool:
        """A node that parked is ready once more; False where nothing starts any more."""
        if self._statuses[number] != WAITING or self.stopped:
            return False
        self._statuses[number] = READY
        self.ready.append(number)
        return True

    def abandon(self, number: int) -> None:
        """A node in flight was stopped with the whole run: nothing follows from it."""
        self._statuses[number] = CANCELLED

    @property
    def done(self) -> bool:
        """Every node is settled, and none was stopped before its end."""
        return not self._unsettled and CANCELLED not in self._statuses

    @property
    def is_cut(self) -> bool:
        """Something that may run has not run to its end: the walk was stopped, and is at no end of its own."""
        return any(status in self._statuses for status in (READY, RUNNING, CANCELLED))

    @property
    def stopped(self) -> bool:
        """Nothing starts any more that is no clean-up."""
        return self._stopped or self._halted

    @property
    def waits(self) -> bool:
        """Some node waits for somebody outside."""
        return WAITING in self._statuses

    def path_of(self, number: int) -> str:
        """The node's path in the run."""
        return self.prefix + self.graph.ids[number]

    def _number(self, path: str) -> int:
        return self.graph.index[path[len(self.prefix) :]]

    def admit(self, number: int, result: NodeResult) -> NodeResult:
        """The result as it may be applied: values read-only, writes checked against the merge rules.

        Raises `StateError`, or `NotJournalableError` where the output has no end, before anything is journaled.
        """
        output, state, route, passed, routing, evaluation, prompt, generation, kept, given = result
        is_plain = passed is routing is evaluation is generation is kept is None
        if is_plain and not state and type(output) in UNCHANGEABLE and number not in self._id_readers:
            return result
        if state or kept:
            try:
                if kept:
                    self.store.check_kept(number, self._layers_before[number], kept)
                if state:
                    state = self.store.admit(number, self._layers_before[number], state)
            except Conflict as conflict:
                self._conflicts.append(conflict)
                raise self._name_conflict(conflict) from None
        if number in self._id_readers:
            given = OF_THIS_RUN
        if type(output) not in UNCHANGEABLE:
            try:
                output = freeze(output)
            except RecursionError:
                raise NotJournalableError("the output contains itself, or is nested too deep") from None
        if not is_plain:
            passed, routing, evaluation = freeze(passed), freeze(routing), freeze(evaluation)
            generation, kept = freeze(generation), freeze(kept)
        # As NodeResult(...) does, without its keyword handling: this is done for every node.
        return _new(NodeResult, (output, state, route, passed, routing, evaluation, prompt, generation, kept, given))

    def apply(self, event: Event, number: int | None = None) -> None:
        """Settle the node that an event is about, and decide what that makes decidable.

        `number`: the node's, where the caller knows it.
        """
        if type(event) is NodeFinished:
            self.finish(self._number(event.node) if number is None else number, event.result)
        elif type(event) is NodeFailed:
            self._fail(self._number(event.node), event.error)
        elif type(event) is NodeSkipped:
            number = self._number(event.node)
            self._causes[number] = event.cause
            self._layers_after[number] = self._layers_before[number]
            self._settle(number, SKIPPED)
        elif type(event) is NodeCancelled:
            number = self._number(event.node)
            self._layers_after[number] = self._layers_before[number]
            self._settle(number, CANCELLED)

    def finish(self, number: int, result: NodeResult) -> None:
        """`apply` of a node's success; the result is admitted."""
        self._results[number] = result
        _, state, route, _, routing, evaluation, prompt, generation, kept, _ = result
        if route is not None:
            self._routes[number] = route
        if routing is not None or evaluation is not None or prompt is not None or generation is not None:
            owned = zip(ENGINE_OWNED, (routing, evaluation, prompt, generation), strict=True)
            state = {**(state or EMPTY), **{key: value for key, value in owned if value is not None}}
        if kept:
            state = {**(state or EMPTY), **{kept_key(name): value for name, value in kept.items()}}
        base = self._layers_before[number]
        self._layers_after[number] = self.store.write(number, base, state) if state else base
        self._settle(number, SUCCEEDED)

    def _fail(self, number: int, error: ErrorInfo) -> None:
        self._errors[number] = error
        on_error, base = self.answer_to(number, error), self._layers_before[number]
        self._layers_after[number] = base
        vertex, failed = self.graph.vertices[number], (error.node or self.path_of(number), error.message)
        if vertex.evaluates or vertex.chooses:  # The nearest one decides, and not one before it (rule 8).
            judged = {EVALUATION: FailedEvaluation(*failed)} if vertex.evaluates else {}
            route_failure = {ROUTING: FailedRouting(*failed)} if vertex.chooses else {}
            self._layers_after[number] = self.store.write(number, base, {**judged, **route_failure})
        if on_error == "fail":
            self._halt()
            self._settle(number, FAILED)
        elif on_error == "then":
            self._routes[number] = ON_ERROR
            self._settle(number, HANDLED)
        else:
            self._causes[number] = "error"
            self._settle(number, SKIPPED)

    def answer_to(self, number: int, error: ErrorInfo) -> OnError:
        """Returns what a failure of a node leads to."""
        return answer_to(self.graph, number, self.path_of(number), error)

    def _halt(self) -> None:
        """After an unhandled failure only clean-up starts; what was ready otherwise is called off."""
        if self._halted:
            return
        self._halted = True
        for level in self.inside:
            level.stop()
        numbers = list(self.ready)
        self.ready.clear()
        for number in numbers:
            if self.graph.vertices[number].join == "always":
                self.ready.append(number)
            else:
                self._skip(number, "cancelled", SKIPPED)
                self._settle(number, SKIPPED)

    def _settle(self, number: int, status: int) -> None:
        self._statuses[number] = status
        stack = [number]
        waiting, children, routed = self._waiting, self._children, self._routed
        while stack:
            number = stack.pop()
            self._unsettled -= 1
            for child in children[number]:
                waiting[child] = remaining = waiting[child] - 1
                if not remaining:
                    self._decide(child, stack)
            if number in routed:
                for child, _ in routed[number]:
                    waiting[child] = remaining = waiting[child] - 1
                    if not remaining:
                        self._decide(child, stack)

    def _decide(self, number: int, settled: list[int]) -> None:
        """Gate, then join, of a node whose parents are settled; a skipped node joins `settled`."""
        parents = self._parents[number]
        statuses = self._statuses
        if len(parents) == 1:
            parent = parents[0]
            self._layers_before[number] = self._layers_after[parent]
            if statuses[parent] == SUCCEEDED and not self._halted:
                # One parent has but one gate, and whatever the join is: it is met.
                gate = self._gates.get(number)
                if gate is None or self._routes.get(parent) in gate[0][1]:
                    statuses[number] = READY
                    if not self._stopped:
                        self.ready.append(number)
                    return
        else:
            layers = self._layers_after
            self._layers_before[number] = self.store.meet(number, [layers[parent] for parent in parents])
        all_succeeded = {statuses[parent] for parent in parents} == {SUCCEEDED}
        # Then every join is met.
        is_free = all_succeeded and number not in self._gates and not self._halted
        cause = None if is_free else self._refusal(number)
        if cause is None:
            if not all_succeeded:
                self.joined.add(number)
            statuses[number] = READY
            if not self._stopped:
                self.ready.append(number)
        else:
            tainted = cause == "upstream_failed" or any(statuses[p] in _FAILING for p in parents)
            self._skip(number, cause, TAINTED if tainted else SKIPPED)
            settled.append(number)

    def _refusal(self, number: int) -> SkipCause | None:
        """Why a node will not run, or None: gate, join, and whether the walk is halted."""
        join = self.graph.vertices[number].join
        statuses = self._statuses
        parents = self._parents[number]
        gate = self.graph.gates.get(number)
        open_parents: list[int] = []
        if gate is not None:
            open_parents = [parent for parent, labels in gate if self._routes.get(parent) in labels]
            if not open_parents:
                return self._closed([parent for parent, _ in gate])
        if join == "always":
            return None
        live = sum(statuses[p] == SUCCEEDED or (statuses[p] == HANDLED and p in open_parents) for p in parents)
        if any(statuses[p] in _FAILING for p in parents):
            return "upstream_failed"
        if parents and not (live == len(parents) if join == "all" else live):
            return "upstream_skipped"
        return "cancelled" if self._halted else None

    def _closed(self, routers: Sequence[int]) -> SkipCause:
        """Why no route to a gated node was taken."""
        statuses = self._statuses
        if any(statuses[each] in (SUCCEEDED, HANDLED) for each in routers):
            return "not_selected"
        return "upstream_failed" if any(statuses[each] in _FAILING for each in routers) else "upstream_skipped"

    def explain(self, number: int) -> Decided:
        """Why a node that was decided may run or was skipped, by what had become of the nodes before it."""
        statuses, gates = self._statuses, dict(self.graph.gates.get(number, ()))
        parents = sorted(self._parents[number], key=lambda each: statuses[each] == SUCCEEDED and each not in gates)
        fates = {self.graph.ids[each]: self._fate(each, gates.get(each)) for each in parents[:_MAX_TOLD]}
        answer = self._causes.get(number, "run")
        rule = self.graph.vertices[number].join
        return Decided("join", answer, rule=rule, parents=fates, more=max(0, len(parents) - _MAX_TOLD))

    def _fate(self, number: int, labels: frozenset[str] | None) -> str:
        """Describes the fate of a node to one that follows it; `labels` of it lead there."""
        status = self._statuses[number]
        if status == HANDLED:
            return "failed, and was handled"
        if status in (SKIPPED, TAINTED) and number in self._causes:
            return f"skipped: {self._causes[number]}"
        if labels is None or status != SUCCEEDED:
            return STATUS[status]
        route = self._routes.get(number)
        destination = "which leads here" if route in labels else f"not {' or '.join(sorted(labels))}"
        return f"took {route}, {destination}" if route is not None else f"took no route, {destination}"

    def _skip(self, number: int, cause: SkipCause, status: int) -> None:
        self._statuses[number] = status
        self._causes[number] = cause
        self._layers_after[number] = self._layers_before[number]
        self.decided.append((number, cause))

    def _restore(self, settled: Mapping[int, Event]) -> None:
        """Settle again, in topological order, every node that had settled for good and becomes ready."""
        for number in sorted(settled):
            # One with a parent that runs again (a clean-up after a failure) is not ready here, and so
            # runs again too.
            if self._statuses[number] == READY:
                self.attempts.finish(self.path_of(number))
                if self.graph.vertices[number].container:
                    self.attempts.finish_inside(self.path_of(number))
                if number in self.patches:
                    self._patch(number)
                self.apply(settled[number])
        self.ready = deque(number for number in self.ready if self._statuses[number] == READY)

    def _forget(self, past: RestoredPast) -> None:
        """Forgets what is done inside a node that runs again: nothing in it counts any more."""
        behind = [each for each in (*past.settled, *past.unfinished) if self._statuses[each] == PENDING]
        for number in {*behind, *past.stale}:
            self.history.forget(self.path_of(number))

    # --- what a node sees ---------------------------------------------------------------------------

    def handled_error(self, number: int) -> str | None:
        """Message of the failure that a node handles, where an `on_error: {then}` led to it."""
        for parent in self._parents[number]:
            if self._statuses[parent] == HANDLED:
                return self._errors[parent].message
        return None

    def layer_before(self, number: int) -> Layer:
        return self._layers_before[number]

    def has_read_id(self, number: int) -> bool:
        """Whether a node, or anything inside it, has read the run's id."""
        return number in self._id_readers

    def read_id(self, number: int | None) -> str | None:
        """The run's id for a node, or for what decides about the whole level: their results are no other run's."""
        if number is not None:
            self._id_readers.add(number)
        if self._container is not None:
            outside, container = self._container
            outside.read_id(container)
        return self.run_id

    # --- what became of a node, and of the run ---------------------------------------------------------

    def status_of(self, number: int) -> NodeStatus:
        return STATUS[self._statuses[number]]

    def status(self, node: str) -> NodeStatus:
        return STATUS[self._statuses[self.graph.index[node]]]

    def result_of(self, number: int) -> NodeResult | None:
        """Returns the result of a node; None unless it succeeded."""
        return self._results[number] if self._statuses[number] == SUCCEEDED else None

    def cause_of(self, number: int) -> SkipCause | None:
        return self._causes.get(number)

    def error_of(self, number: int) -> ErrorInfo | None:
        return self._errors.get(number)

    def failure(self) -> tuple[str, ErrorInfo] | None:
        """The first unhandled failure in topological order: the same one whatever the timing was."""
        failed = [number for number in self._errors if self._statuses[number] == FAILED]
        if not failed:
            return None
        number = min(failed)
        error = self._errors[number]
        if self._conflicts and error.type == StateConflictError.__name__:
            conflict = self._first_conflict()
            number, error = conflict.numbers[1], error._replace(message=str(self._name_conflict(conflict)))
        return error.node or self.path_of(number), error

    def _first_conflict(self) -> Conflict:
        """The topologically first unordered pair among all that wrote the key, so that timing does not show."""
        key = min(conflict.key for conflict in self._conflicts)
        writers = sorted({number for each in self._conflicts if each.key == key for number in each.numbers})
        pairs = ((one, two) for at, two in enumerate(writers) for one in writers[:at])
        first, second = next(pair for pair in pairs if not self.graph.is_ancestor(*pair))
        return Conflict(key, first, second)

    def final(self) -> Layer:
        """Returns the layer in which the states of all leaves meet."""
        layers = [self._layers_after[number] for number in self.graph.leaves]
        return layers[0] if len(layers) == 1 else self.store.meet(len(self.graph), layers)

    def _name_conflict(self, conflict: Conflict) -> StateConflictError:
        first, second = (self.graph.ids[number] for number in conflict.numbers)
        name = kept_name(conflict.key)
        context = None if name is None else name.removeprefix(IN_ORDER)
        return StateConflictError(conflict.key if context is None else context, (first, second), context is not None)


_new: Final[Any] = vars(tuple)["__new__"]
_FAILING: Final = frozenset((FAILED, TAINTED))
_MAX_TOLD: Final = 8
"""Nodes before one that its explanation names."""
