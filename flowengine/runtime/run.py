"""A run from outside: what callers choose for it, checked once, with the limits that follow, and what became of it.

It runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from flowengine.core import (
    EMPTY,
    Budget,
    Context,
    EvaluationResult,
    Ledger,
    NodeStatus,
    Reused,
    RoutingResult,
    RunStatus,
    SkipCause,
    check_arguments,
)
from flowengine.engine import (
    ErrorInfo,
    Event,
    FinalContext,
    Journal,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    TokenStreamed,
    Walk,
)
from flowengine.errors import (
    DefinitionError,
    InputError,
    LimitError,
    NodeError,
    RunError,
    did_you_mean,
    refuse_other_kind,
)
from flowengine.journal import check_labels, check_run_id
from flowengine.nodes import CompiledFlow, RunLimits
from flowengine.runtime.sessions import check_session_name
from visualize.drawable import Drawable

if TYPE_CHECKING:
    from visualize.picture import Picture, PictureNode

# --- What callers choose

Live: TypeAlias = Callable[[TokenStreamed], None]
"""Hears what agents write while they write it; must not block and must not raise."""


def unheard(piece: TokenStreamed) -> None:
    """The listener of a run that only other processes follow: they read in its store what agents write."""


@dataclass(eq=False, slots=True, kw_only=True)  # Frozen it would cost three times as much, for each run.
class RunOptions:
    """What is chosen for a run; never changed. A start reads nothing that is only of a resumption, and a resumption the
    opposite.

    Raises `DefinitionError` for limits of another kind, `InputError` for an id, a session's name or labels that no run
    can have, and for names that are no list of texts.
    """

    limits: RunLimits | None = None
    """Instead of the flow's and of those in `settings`; kept in the journal."""
    settings: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Kept in the journal for later resumptions: model override, and limits by the names that a flow file gives them.
    A resumption chooses them anew."""
    live: Live | None = None
    above: Ledger | None = None
    """What the run shares with others of what may be spent; what it spent earlier is not counted there again."""
    journal: Journal | None = None
    """The run's, where the caller is its writer already. A start closes it once the run has begun, and leaves it open
    before that; a resumption closes it in any case."""

    run_id: str | None = None
    """The id of a new run; None: random."""
    session: str | None = None
    """What earlier runs of that name have left is there, and what this one leaves is kept if it succeeds."""
    reuse: str | Sequence[str] | None = None
    """Id of an earlier run of the flow (or of several, the best first), whose results are taken where they still hold
    (`nodes.reuse_rules`)."""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """By which a new run is found again (`journal.run_lookup`)."""

    allow_changed: bool = False
    """Of a resumption, like all that follow: what had finished stays finished, the rest runs as the flow is now."""
    retry_effects: Collection[str] = ()
    """Nodes that repeat a call to an external tool whose end was not seen."""
    assume_done: Collection[str] = ()
    """Nodes that take such a call as done."""
    repeat_failed_items: bool = False
    """Items that failed in maps which went on without them run again, also those of a run that succeeded, and with
    them all that is behind these maps."""

    def __post_init__(self) -> None:
        if self.limits is not None:
            refuse_other_kind(self.limits, RunLimits, "limits are RunLimits", DefinitionError)
        if self.run_id is not None:
            check_run_id(self.run_id)
        if self.session is not None:
            check_session_name(self.session)
        if self.labels:
            check_labels(self.labels)
        if self.reuse is not None or self.retry_effects != () or self.assume_done != ():
            options = {"reuse": self.reuse, "retry_effects": self.retry_effects, "assume_done": self.assume_done}
            check_arguments(RunOptions.__init__, options, InputError)


DEFAULTS: Final = RunOptions()
"""Nothing chosen."""


def settings_of(events: Iterable[Event]) -> Mapping[str, Any]:
    """Returns the settings that callers chose at the start and at each resume.

    >>> settings_of([RunStarted("r", "f", 0.0, {}, {}, {}, settings={"timeout": 5}), RunResumed(1.0)])
    {'timeout': 5}
    """
    settings: dict[str, Any] = {}
    for event in events:
        if isinstance(event, RunStarted | RunResumed):
            settings.update(event.settings)
    return settings


def limits_under(flow: RunLimits, settings: Mapping[str, Any]) -> RunLimits:
    """The flow's limits, with those that were chosen in their place.

    >>> limits_under(RunLimits(timeout=5.0), {"model_calls": 3, "folder": "/home"}).bounds.model_calls
    3
    """
    if not settings:
        return flow
    values = {name: settings.get(name, own) for name, own in _limits_by_name(flow).items()}
    bounds = Budget(*(values.pop(name) for name in Budget._fields))
    return RunLimits(bounds=bounds, **values)


def chosen_limits(limits: RunLimits, before: RunLimits) -> Mapping[str, Any]:
    """The settings that make the limits of those that held before.

    >>> dict(chosen_limits(RunLimits(bounds=Budget(cost_usd=2.0)), RunLimits()))
    {'cost_usd': 2.0}
    """
    if limits is before:
        return EMPTY
    earlier = _limits_by_name(before)
    return {name: value for name, value in _limits_by_name(limits).items() if value != earlier[name]}


def _limits_by_name(limits: RunLimits) -> dict[str, Any]:
    """The limits as a flow file names them."""
    return {
        "concurrency": limits.concurrency,
        "timeout": limits.timeout,
        "on_failure": limits.on_failure,
        "on_limit": limits.on_limit,
        "needs_prices": limits.needs_prices,
        **limits.bounds._asdict(),
    }


def higher_limit(error: ErrorInfo, limits: RunLimits) -> str:
    """Twice the limit at which a run ended, or what the call that it refused needs; money in whole cents.

    >>> higher_limit(ErrorInfo("LimitError", "", limit="model_calls", needed=4), RunLimits())
    '4'
    >>> higher_limit(ErrorInfo("LimitError", "", limit="cost_usd", needed=0.512), RunLimits())
    '0.52'
    >>> higher_limit(ErrorInfo("LimitError", "", limit="cost_usd"), RunLimits(bounds=Budget(cost_usd=0.07)))
    '0.14'
    """
    most = max(2 * (getattr(limits.bounds, error.limit) or 0), error.needed or 0)
    return f"{ceil(round(100 * most, 6)) / 100:.2f}" if error.limit == "cost_usd" else str(ceil(most))


# --- What became of it


class NodeRun(NamedTuple):
    """One node's part in a run."""

    status: NodeStatus
    output: Any = None
    """None unless the node succeeded."""
    result: Any = None
    """What it handed on as `result` (an `LLMResult` for agents)."""
    error: str | None = None
    cause: SkipCause | None = None
    """Why it was skipped."""


class _NodeRuns(Mapping[str, NodeRun]):
    """The flow's nodes by name. Nodes inside loops, maps and subflows are found by their paths, and not listed."""

    def __init__(self, walk: Walk, read: Callable[[], Sequence[Event]]) -> None:
        self._walk = walk
        self._read = read

    def __getitem__(self, node: str) -> NodeRun:
        walk = self._walk
        if "." in node:
            run = _find_inside(self._read(), node)
            if run is not None:
                return run
        if node not in walk.graph.index:
            raise KeyError(f"there is no node '{node}'{did_you_mean(node, walk.graph.index)}")
        number = walk.graph.index[node]
        result, error = walk.result_of(number), walk.error_of(number)
        return NodeRun(
            walk.status_of(number),
            None if result is None else result.output,
            walk.passing.handed_on(number),
            None if error is None else error.message,
            walk.cause_of(number),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._walk.graph.ids)

    def __len__(self) -> int:
        return len(self._walk.graph)


def _find_inside(events: Sequence[Event], node: str) -> NodeRun | None:
    """Returns the journaled result of a node inside another, or None."""
    run: NodeRun | None = None
    for event in events:
        if getattr(event, "node", None) != node or isinstance(event, RunFinished):
            continue
        match event:
            case NodeFinished(result=result):
                run = NodeRun("succeeded", result.output, result.output if result.result is None else result.result)
            case NodeFailed(error=error, skipped=True):
                run = NodeRun("skipped", error=error.message, cause="error")
            case NodeFailed(error=error):
                run = NodeRun("failed", error=error.message)
            case NodeSkipped(cause=cause):
                run = NodeRun("skipped", cause=cause)
            case NodeCancelled():
                run = NodeRun("cancelled")
            case NodeStarted():
                run = NodeRun("running")
            case _:
                run = run or NodeRun("running")
    return run


class Run(Drawable):
    """One run, ended or parked.

    `read` gets the journal, when somebody asks for it.
    """

    def __init__(
        self,
        plan: CompiledFlow,
        run_id: str,
        walk: Walk,
        finished: RunFinished,
        read: Callable[[], Sequence[Event]],
        limits: RunLimits,
    ) -> None:
        self.id = run_id
        self.limits = limits
        """The limits that it last went on with."""
        self.status: RunStatus = finished.status
        self.outputs: Mapping[str, Any] = finished.outputs or {}
        self.error: ErrorInfo | None = finished.error
        self.failed_node: str | None = finished.node
        """Path of the first node, in topological order, whose failure was not handled."""
        self.unkept: Sequence[str] = finished.unkept
        """Whose memories could not be kept, and why; to resume the run tries again."""
        self.inputs = walk.inputs
        self._plan = plan
        self._walk = walk
        self._read = read

    @cached_property
    def nodes(self) -> Mapping[str, NodeRun]:
        """The flow's nodes by name; those inside loops, maps and subflows by their paths."""
        return _NodeRuns(self._walk, lambda: self._read())

    @property
    def events(self) -> Sequence[Event]:
        """The journal, the whole of it, read anew each time."""
        return self._read()

    def reading(self, read: Callable[[], Sequence[Event]]) -> Run:
        """This run, with another way to its journal."""
        self._read = read
        return self

    @property
    def reused(self) -> Mapping[str, Reused]:
        """Path of a node that did not run, since its result was known → the run and the node that it comes from."""
        reuses: dict[str, Reused] = {}
        for event in self._read():
            if type(event) is NodeStarted:
                reuses.pop(event.node, None)
            elif type(event) is NodeRecorded and type(event.record) is Reused:
                reuses[event.node] = event.record
        return reuses

    def picture(self) -> Picture:
        """The data of the run's picture, with the path that it took; the functions of `visualize` draw it."""
        from visualize.picture import picture_of_run  # Most runs are not drawn.

        return describe_picture(picture_of_run(self._read()), self._plan)

    @cached_property
    def context(self) -> Context:
        """The view of the flow's outputs: every node, and the merged state."""
        return FinalContext(self._walk)

    @property
    def shared_state(self) -> Mapping[str, Any]:
        """Key → value, as the last nodes left them."""
        return self.context.shared_state

    @property
    def routing_result(self) -> RoutingResult | None:
        """The last nodes' choice of a route; None where none chose."""
        return self.context.routing_result

    @property
    def evaluation_result(self) -> EvaluationResult | None:
        """The last nodes' score; None where none was given."""
        return self.context.evaluation_result

    def raise_for_status(self) -> Run:
        """This run if it succeeded; `NodeError`, `LimitError` or `RunError` otherwise."""
        if self.status == "succeeded":
            return self
        message = self.error.message if self.error is not None else f"the run {self.status}"
        if self.failed_node is not None:
            raise NodeError(self.failed_node, message)
        if self.error is not None and self.error.type == LimitError.__name__:
            raise LimitError(message)
        raise RunError(message)

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}>"


# --- Pictures


def describe_picture(picture: Picture, plan: CompiledFlow) -> Picture:
    """The picture with what the flow's definition says of its nodes: words, remarks, places."""
    return picture._replace(nodes=tuple(_describe_node(node, plan) for node in picture.nodes))


def _describe_node(node: PictureNode, plan: CompiledFlow) -> PictureNode:
    definition = plan.all_nodes.get(node.id)
    if definition is None:  # A run of the flow as it was.
        return node
    place = None if plan.place_of is None or plan.path is None else (plan.path, *plan.place_of(node.id))
    return node._replace(remark=definition.remark, description=definition.description, place=place)
