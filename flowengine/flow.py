"""The flow: loaded or built once, run any number of times, also at once. The library's composition root.

It wires what others decide: the builder makes its plan from YAML, `assemble` from Python objects,
a runner runs it, a journal store keeps its runs. No run's state is kept here.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Required, TypeAlias, TypedDict, TypeVar, Unpack, get_args

from flowengine.agents import run_sync
from flowengine.core import EMPTY, Budget, Context, check_arguments
from flowengine.engine import Durability, Event, JournalStore, Merge, StateKey
from flowengine.errors import (
    DefinitionError,
    Diagnostic,
    FlowError,
    did_you_mean,
    names_arguments,
    refuse_other_kind,
    unknown_argument,
)
from flowengine.journal import AnyStore, answer, as_store
from flowengine.nodes import CompiledFlow, FlowNode, InputField, RunLimits, assemble, check_call, find_wrong_default
from flowengine.runtime import Live, Run, RunOptions, describe_picture, unheard
from flowengine.runtime.local import EventStream, local, open_stream
from visualize.drawable import Drawable

__all__ = ["ApproveArguments", "Flow", "FlowSettings", "ResumeArguments", "RunArguments"]

if TYPE_CHECKING:
    from flowengine.agents import Agent, EvaluationAgent, RoutingAgent
    from flowengine.runtime.local import RowResult
    from visualize.picture import Picture

Step: TypeAlias = "FlowNode | Agent | RoutingAgent | EvaluationAgent"
Store = AnyStore | None
F = TypeVar("F", bound="Flow")


class FlowSettings(TypedDict, total=False):
    """The settings of a flow, as `Flow` takes them."""

    inputs: Mapping[str, InputField | str] | None
    shared_state: Mapping[str, Any] | None
    outputs: Mapping[str, Callable[[Context], Any]] | None
    limits: RunLimits | None
    description: str


class RunArguments(TypedDict, total=False):
    """The arguments of `Flow.run`."""

    store: Store
    durability: Durability
    run_id: str | None
    session: str | None
    reuse: str | None
    limits: RunLimits | None
    labels: Mapping[str, str]
    live: bool


class ResumeArguments(TypedDict, total=False):
    """The arguments of `Flow.resume`."""

    store: Required[Store]
    durability: Durability
    allow_changed: bool
    retry_effects: Collection[str]
    assume_done: Collection[str]
    limits: RunLimits | None
    repeat_failed_items: bool
    live: bool


class ApproveArguments(TypedDict, total=False):
    """The arguments of `Flow.approve`, beside the question and its answer."""

    store: Required[Store]
    comment: str
    by: str
    form: Any
    durability: Durability
    limits: RunLimits | None
    live: bool


class Flow(Drawable):
    """A named graph of nodes with its inputs, merge rules and outputs.

    >>> from flowengine import FunctionNode, NodeResult
    >>> async def add(context):
    ...     return NodeResult(output=1, state={"counter": context.shared_state["counter"] + 1})
    >>> flow = Flow("chain", {"a": FunctionNode(add), "b": FunctionNode(add, needs=["a"])}, shared_state={"counter": 0})
    >>> flow.run_sync().shared_state["counter"]
    2
    """

    plan: CompiledFlow
    """The compiled form, that runners run and pictures draw."""

    @names_arguments
    def __init__(
        self,
        name: str = "flow",
        nodes: Mapping[str, Step] | None = None,
        *,
        steps: Mapping[str, Step] | None = None,
        inputs: Mapping[str, InputField | str] | None = None,
        shared_state: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Callable[[Context], Any]] | None = None,
        limits: RunLimits | None = None,
        description: str = "",
    ) -> None:
        """`nodes`: name → node, each with its edges; or `steps`: name → node, each of which follows the one before it.

        An agent stands for the node that runs it; each of its routes leads to the node of that name.
        `inputs`: name → field or type; None accepts any. `shared_state`: key → default or `StateKey`.

        `outputs`: name → function of the final context; None gives the last nodes' outputs by name.
        Raises `FlowError` for no nodes, unknown targets, cycles, and approvals that name whom to tell.
        """
        _check_name(name)
        check_arguments(Flow.__init__, locals())
        for output, function in (outputs or {}).items():
            check_call(f"output '{output}'", function, "context")
        if (nodes is None) == (steps is None):
            raise DefinitionError("a flow is made of either `nodes`, a graph, or `steps`, one after the other")
        self.plan = assemble(
            name,
            _chain_steps(steps) if steps is not None else as_nodes(nodes or {}),
            inputs=None if inputs is None else {each: _field(each, field) for each, field in inputs.items()},
            state={key: _state_key(key, value) for key, value in (shared_state or {}).items()},
            outputs=outputs,
            limits=limits or RunLimits(),
            description=description,
        )
        _refuse_told_people(self.plan)

    @classmethod
    def of(cls: type[F], plan: CompiledFlow) -> F:
        """The flow of a plan that is compiled already."""
        flow = cls.__new__(cls)
        flow.plan = plan
        return flow

    @classmethod
    def from_yaml(
        cls: type[F],
        path: str | PathLike[str],
        *,
        model: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> F:
        """Load a flow file; `model` goes before every model that the file names.

        Keys and addresses are looked up in `environ` (None: the process's own), and then in the `.env` file of the
        project's root (`.env.NAME` where FLOWENGINE_ENV is NAME). Raises `FlowError` with every problem of the file,
        each with its place.
        """
        from flowengine.flowfile.compile import load_plan  # A flow built in Python needs no YAML.

        check_arguments(Flow.from_yaml, locals())
        return cls.of(load_plan(path, model=model, environ=environ))

    @classmethod
    def from_text(
        cls: type[F],
        text: str,
        path: str | PathLike[str],
        *,
        model: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> F:
        """As `from_yaml`, with the file's text given; `path` tells its folder and stands in messages."""
        from flowengine.flowfile.compile import load_plan  # A flow built in Python needs no YAML.

        check_arguments(Flow.from_text, locals())
        return cls.of(load_plan(path, text=text, model=model, environ=environ))

    @classmethod
    def sequential(
        cls: type[F], steps: Mapping[str, Step], *, name: str = "flow", **settings: Unpack[FlowSettings]
    ) -> F:
        """Each step follows the one before it, unless a route leads to it.

        After a step that a route leads to, the next one follows all branches that are still open,
        so it runs whichever was taken. `settings` are those of `Flow`.
        """
        for setting in settings:
            if setting not in FlowSettings.__annotations__:
                raise unknown_argument("Flow.sequential", setting, FlowSettings.__annotations__)
        return cls.of(Flow(name, steps=steps, **settings).plan)

    @property
    def name(self) -> str:
        """Its name in runs, stores and pictures."""
        return self.plan.name

    @property
    def description(self) -> str:
        """What it is for; empty where nothing is said."""
        return self.plan.description

    def picture(self) -> Picture:
        """The data of the flow's picture, that the functions of `visualize` draw."""
        from visualize.picture import picture_of_skeleton  # A run needs no picture.

        return describe_picture(picture_of_skeleton(self.name, self.plan.skeleton), self.plan)

    def to_yaml(self) -> str:
        """The flow as a file, which is the text that it was made from, comments included.

        `DefinitionError` for one made of Python objects: they have no text (`FlowBuilder` makes flows that do).
        """
        if self.plan.source is None:
            raise DefinitionError(
                f"flow '{self.name}' is made of Python objects, which have no text; write it with FlowBuilder"
            )
        return self.plan.source

    @names_arguments
    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: Store = None,
        durability: Durability = "full",
        run_id: str | None = None,
        session: str | None = None,
        reuse: str | None = None,
        limits: RunLimits | None = None,
        labels: Mapping[str, str] = EMPTY,
        live: bool = False,
    ) -> Run:
        """Run to the end. `store` is a URL (`sqlite:///runs.db`) or an open store; None: in memory.

        `session`: a name; conversation and memory that earlier runs of that name left in the store are there,
        and what this run leaves is kept for the next one if it succeeds. `reuse`: an earlier run of this flow in
        the store; its results are taken where nothing that matters to them has changed since. `labels`: short texts
        by which the run is found again (`Runs.list`).

        `live`: other processes with the same store, such as the viewer, see whom agents ask and what they write while
        they write it. Each call of a model is then asked for as a stream, which costs about half a millisecond of CPU
        more, and of which some servers do not tell the tokens: so it is done only where somebody wants to look.

        A node that fails is told in `Run.status`; `Run.raise_for_status()` raises it. Raises
        `InputError` for inputs that do not fit and `JournalError` when the record cannot be kept.
        """
        options = RunOptions(
            run_id=run_id, session=session, reuse=reuse, limits=limits, labels=labels, live=_hear(live)
        )
        return await _run_in(store, durability, partial(self._start, inputs, options))

    @names_arguments
    async def run_many(
        self,
        rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        store: Store = None,
        durability: Durability = "full",
        concurrency: int = 20,
        name: str | None = None,
        budget: Budget | None = None,
        limits: RunLimits | None = None,
        labels: Mapping[str, str] = EMPTY,
        retry_failed: bool = False,
        fresh: bool = False,
    ) -> AsyncGenerator[RowResult]:
        """Run it once for each row of inputs, `concurrency` rows at once; results come in the rows' order.

            async for result in flow.run_many(rows, store="runs.db", name="march"):
                print(result.row.number, result.status, result.outputs)

        `name`: a set that goes on where it was when it is run again with the same store; rows that were done are read
        from their records, those that failed too unless `retry_failed`. Without a name, or with `fresh`, all are run.
        `budget`: what all rows may spend together; rows that do not begin for it have no result.

        A row that fails, or does not fit, says so in its result. Leaving early, by `break` or an error, stops the rows
        at work; `contextlib.aclosing` also waits for their end. Without a store, a result's `run` has its journal until
        the next result is asked for.
        """
        from flowengine.runtime.local import RowRuns, open_row_set  # A single run does without.

        options = RunOptions(limits=limits, labels=labels)
        check_arguments(Flow.run_many, locals())
        with _open_store(store, durability) as journals:
            row_set = open_row_set(self.plan, journals, name or "rows", name or "", fresh=fresh or name is None)
            runs = RowRuns(
                plan=self.plan,
                store=journals,
                rows=row_set,
                concurrency=concurrency,
                budget=budget or Budget(),
                options=options,
                retry_failed=retry_failed,
            )
            async with aclosing(runs.results(rows)) as results:
                async for result in results:
                    yield result if result.run is None else result._replace(run=_keep_run(result.run, store))
                    if store is None and result.run_id is not None:
                        journals.remove(result.run_id)  # So that any number of rows fits.

    def run_sync(self, inputs: Mapping[str, Any] | None = None, **options: Unpack[RunArguments]) -> Run:
        """`run` for scripts, inside or outside a running event loop."""
        allowed = ("inputs", *RunArguments.__annotations__)
        for option in options:
            if option not in allowed:
                raise unknown_argument("run_sync", option, allowed)
        return run_sync(lambda: self.run(inputs, **options))

    @names_arguments
    async def resume(
        self,
        run_id: str,
        *,
        store: Store,
        durability: Durability = "full",
        allow_changed: bool = False,
        retry_effects: Collection[str] = (),
        assume_done: Collection[str] = (),
        limits: RunLimits | None = None,
        repeat_failed_items: bool = False,
        live: bool = False,
    ) -> Run:
        """Go on with a run of the store that was interrupted or failed (see `runtime.local.resume`).

        `repeat_failed_items`: also the items that failed in maps with `on_item_error: collect` or `skip`.

        `retry_effects`, `assume_done`: nodes (or `NODE:TOOL`) whose call to an external tool was interrupted, and what
        a person decided about it. `live`: as for `run`.
        """
        options = RunOptions(
            allow_changed=allow_changed,
            retry_effects=retry_effects,
            assume_done=assume_done,
            limits=limits,
            repeat_failed_items=repeat_failed_items,
            live=_hear(live),
        )
        return await _run_in(store, durability, partial(self._resume, run_id, options))

    def resume_sync(self, run_id: str, **options: Unpack[ResumeArguments]) -> Run:
        """`resume` for scripts, inside or outside a running event loop."""
        return run_sync(lambda: self.resume(run_id, **options))

    @names_arguments
    def stream(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: Store = None,
        durability: Durability = "full",
        run_id: str | None = None,
        session: str | None = None,
        reuse: str | None = None,
        limits: RunLimits | None = None,
        labels: Mapping[str, str] = EMPTY,
        tokens: bool = False,
        live: bool = False,
    ) -> AbstractAsyncContextManager[EventStream]:
        """The run's events as they are journaled: `async with flow.stream(...) as events`.

        `tokens`: also `TokenStreamed`, the pieces of what agents write while they write it; no journal has them.
        Not streamed is what may still be taken back or has a shape: the answers of agents with an `output`,
        with output guardrails or that improve, of judges and of routers. A call that breaks off and is made anew
        begins its text anew (`TokenStreamed.begins`). With `tokens`, or with `live` as for `run`, other processes see
        it too.

        Leaving the block early cancels the run. Reading slowly never slows it down.
        """
        options = RunOptions(
            run_id=run_id, session=session, reuse=reuse, limits=limits, labels=labels, live=_hear(live)
        )
        return open_stream(_open_store(store, durability), partial(self._start, inputs), options, tokens=tokens)

    @names_arguments
    def stream_resume(
        self,
        run_id: str,
        *,
        store: Store,
        durability: Durability = "full",
        allow_changed: bool = False,
        retry_effects: Collection[str] = (),
        assume_done: Collection[str] = (),
        limits: RunLimits | None = None,
        repeat_failed_items: bool = False,
        tokens: bool = False,
        live: bool = False,
    ) -> AbstractAsyncContextManager[EventStream]:
        """`resume` with the events from the resumption on, as `stream` gives them."""
        options = RunOptions(
            allow_changed=allow_changed,
            retry_effects=retry_effects,
            assume_done=assume_done,
            limits=limits,
            repeat_failed_items=repeat_failed_items,
            live=_hear(live),
        )
        return open_stream(_open_store(store, durability), partial(self._resume, run_id), options, tokens=tokens)

    @names_arguments
    async def fork(
        self,
        run_id: str,
        node: str,
        *,
        store: Store,
        state: Mapping[str, Any] | None = None,
        durability: Durability = "full",
        limits: RunLimits | None = None,
        retry_effects: Collection[str] = (),
        assume_done: Collection[str] = (),
        live: bool = False,
    ) -> Run:
        """A new run that shares the past of one of the store and begins at `node` (see `runtime.local.fork`).

        `retry_effects`, `assume_done`: as for `resume`, of nodes that are not behind `node`. `live`: as for `run`.
        """
        options = RunOptions(limits=limits, retry_effects=retry_effects, assume_done=assume_done, live=_hear(live))

        def fork(journals: JournalStore) -> Awaitable[Run]:
            past = journals.find(run_id)
            return local.fork(self.plan, past, journals, node, state=EMPTY if state is None else state, options=options)

        return await _run_in(store, durability, fork)

    @names_arguments
    async def approve(
        self,
        run_id: str,
        node: str | None,
        choice: str,
        *,
        store: Store,
        comment: str = "",
        by: str = "",
        form: Any = None,
        durability: Durability = "full",
        limits: RunLimits | None = None,
        live: bool = False,
    ) -> Run:
        """Answer the question that a run waits with (`journal.approvals.answer`), and go on with it here.

        `live`: as for `run`.

        A run that is at work, here or in another process, is left to its owner, who takes the answer in: then it
        comes back as it is, `running`.

        Also where it was submitted to a queue: there `journal.approvals.answer` and then `runtime.queue.requeue` let
        a worker go on with it, as `flowengine approve` and the viewer do.
        """
        options = RunOptions(limits=limits, live=_hear(live))
        with _open_store(store, durability) as journals:
            run_id = journals.find(run_id)
            reply = await answer(journals, run_id, node, choice, comment=comment, by=by, form=form)
            if reply.writer is not None:
                return _keep_run(local.read_run(self.plan, journals.events(run_id)), store)
        return await _run_in(store, durability, partial(self._resume, run_id, options))

    def approve_sync(self, run_id: str, node: str | None, choice: str, **options: Unpack[ApproveArguments]) -> Run:
        """`approve` for scripts, inside or outside a running event loop."""
        return run_sync(lambda: self.approve(run_id, node, choice, **options))

    def _start(self, inputs: Mapping[str, Any] | None, options: RunOptions, journals: JournalStore) -> Awaitable[Run]:
        if isinstance(options.reuse, str):
            options = replace(options, reuse=journals.find(options.reuse))
        return local.start(self.plan, EMPTY if inputs is None else inputs, journals, options)

    def _resume(self, run_id: str, options: RunOptions, journals: JournalStore) -> Awaitable[Run]:
        return local.resume(self.plan, journals.find(run_id), journals, options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {len(self.plan.graph)} nodes>"


async def _run_in(store: Store, durability: Durability, begin: Callable[[JournalStore], Awaitable[Run]]) -> Run:
    with _open_store(store, durability) as journals:
        return _keep_run(await begin(journals), store)


def _hear(live: bool) -> Live | None:
    """The listener of a run that only other processes follow: it hears nothing."""
    return unheard if live else None


def _refuse_told_people(plan: CompiledFlow) -> None:
    """`FlowError` where a question names whom to tell: without a project file it would go to no one, silently."""
    text = "only a flow with a project file can tell people (`notify`); FlowBuilder and flow files make such flows"
    paths = [path for path, node in plan.all_nodes.items() if node.tells_people]
    if paths:
        raise FlowError([Diagnostic("FE531", text, node=path) for path in paths])


def _check_name(name: object) -> None:
    if isinstance(name, Mapping):
        raise DefinitionError(
            "a flow has a name before its nodes: Flow('triage', {...}); "
            "for nodes one after the other Flow('triage', steps={...}), or Flow.sequential({...})"
        )
    if isinstance(name, str) and not (name.strip() and name.isprintable()):
        raise DefinitionError(f"a flow's name is one line that can be read, not {name!r:.60}")


def _chain_steps(steps: Mapping[str, Step]) -> Mapping[str, FlowNode]:
    """The steps as nodes, each after the one before it, unless a route leads to it."""
    nodes = {node: copy(step) for node, step in as_nodes(steps).items()}
    routed = {edge.target for node_id, node in nodes.items() for edge in node.edges(node_id) if edge.route}
    open_ends: list[str] = []
    for node_id, node in nodes.items():
        if node_id not in routed:
            node.needs = tuple(dict.fromkeys([*node.needs, *open_ends]))
            open_ends = []
        if not node.routes or None in node.routes.values():
            open_ends.append(node_id)
    return nodes


def as_nodes(steps: Mapping[str, Step]) -> Mapping[str, FlowNode]:
    """Nodes as they are; an agent as the node that runs it, whose routes lead to the steps of their names."""
    refuse_other_kind(steps, Mapping, "the nodes of a flow are a mapping, as {'draft': agent}", DefinitionError)
    return {
        name: step if isinstance(step, FlowNode) else _make_agent_node(step, name, steps)
        for name, step in steps.items()
    }


def _make_agent_node(step: Agent | RoutingAgent | EvaluationAgent, name: str, steps: Mapping[str, Step]) -> FlowNode:
    from flowengine.nodes import node_of_agent  # A flow without agents need not load their column.

    return node_of_agent(step, name, steps)


@contextmanager
def _open_store(store: Store, durability: Durability) -> Generator[JournalStore]:
    """A store as given, or the store of a URL for as long as the block lasts."""
    journals = as_store(store, durability)
    try:
        yield journals
    finally:
        if journals is not store:
            journals.close()


def _keep_run(run: Run, store: Store) -> Run:
    """A run of a store that is closed by now: reading its journal opens it again."""
    return run.reading(partial(_events_at, store, run.id)) if isinstance(store, str | PathLike) else run


def _events_at(place: AnyStore, run_id: str) -> Sequence[Event]:
    store = as_store(place)
    try:
        return store.events(run_id)
    finally:
        store.close()


_STATE_TYPES: Final = ("string", "number", "integer", "boolean", "array", "object")


def _field(name: str, declaration: InputField | str) -> InputField:
    field = InputField(declaration) if isinstance(declaration, str) else declaration
    refuse_other_kind(field, InputField, f"input '{name}' is an InputField, or a type as text", DefinitionError)
    _refuse_unknown(f"input '{name}': type", field.type, (None, *_STATE_TYPES, "file"))
    problem = find_wrong_default(field)
    if problem is not None:
        raise DefinitionError(f"input '{name}': its default does not fit it: {problem}")
    return field


def _state_key(name: str, value: Any) -> StateKey:
    key = value if isinstance(value, StateKey) else StateKey(value)
    _refuse_unknown(f"shared state key '{name}': type", key.type, (None, *_STATE_TYPES))
    _refuse_unknown(f"shared state key '{name}': merge", key.merge, get_args(Merge))
    return key


def _refuse_unknown(what: str, value: Any, allowed: Sequence[str | None]) -> None:
    if value not in allowed:
        names = [each for each in allowed if each is not None]
        near = did_you_mean(value, names) if isinstance(value, str) else ""
        raise DefinitionError(f"{what} is one of {', '.join(names)}, not {value!r:.60}{near}")
