"""Defines the events of a run: everything that happens is one of these before it is anything else.

The journal stores them, `flow.stream()` yields them, the viewer and the exporters read them, and
resume folds them. They are plain named tuples: cheap to make, and untracked by the garbage
collector once they hold only plain values. Times (`at`) are Unix seconds. `as_dict()` gives an event as an
object of JSON, with its name as `type`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from flowengine.core import Decided, NodeResult, RunStatus, SkipCause, to_json_fields

SCHEMA_VERSION: Final = 1
"""Raised when an event changes in a way that an older reader would misread."""


def _as_dict(event: Any) -> dict[str, Any]:
    """The event in JSON's types: its name as `type`, and its fields by their names.

    >>> NodeStarted("draft", 1.5).as_dict()
    {'type': 'NodeStarted', 'node': 'draft', 'at': 1.5}
    """
    return {"type": type(event).__name__, **to_json_fields(event, event._fields)}


class ErrorInfo(NamedTuple):
    """A failure as data."""

    type: str
    """The exception's class name."""
    message: str
    detail: str = ""
    """Traceback of foreign code (a node, a tool), for `runs show`; never needed to understand the message."""
    node: str = ""
    """Path of the node inside a container where it began; empty: in the node that the event is about."""
    part: str | None = None
    """Path of the part of the run whose limit was reached (the run itself: empty); None: no limit was."""
    limit: str = ""
    """Which limit of that part: `cost_usd`, `tokens`, `model_calls` or `timeout`."""
    needed: float | None = None
    """The value of that limit with which the refused call would have fitted."""


class RunStarted(NamedTuple):
    """The first event of every journal."""

    run_id: str
    flow: str
    at: float
    inputs: Mapping[str, Any]
    env: Mapping[str, str]
    fingerprints: Mapping[str, str]
    """Node path → hash of its definition."""
    path: str | None = None
    """The flow file, as it was given; None for a flow built in Python."""
    source: str | None = None
    """The flow file's text."""
    engine: str = ""
    """Version of FlowEngine."""
    settings: Mapping[str, Any] = {}
    """The caller's choices for this run: model override, limits."""
    graph: Mapping[str, Any] = {}
    """The picture's skeleton, so that a run can be drawn without its flow: {"nodes": [[id, kind]], "edges":
    [[source, target, [labels]]], "state": {key: [merge rule, default]}}. A map, loop or subflow has a third
    item: the skeleton of its body, with `most` rounds where that is known."""
    kept: Mapping[str, Any] = {}
    """The values that the run's session had kept before (`NodeResult.kept`); empty for a run that was to begin
    later."""
    code: Mapping[str, str] = {}
    """Node path → hash of the functions that it calls, where `fingerprints` do not count them."""

    as_dict = _as_dict


class RunResumed(NamedTuple):
    """An interrupted or failed run goes on; nodes that finished stay finished."""

    at: float
    fingerprints: Mapping[str, str] = {}
    """Fingerprints of the flow as it is now; empty where it did not change."""
    code: Mapping[str, str] = {}
    """Likewise, of the functions that nodes call (`RunStarted.code`)."""
    settings: Mapping[str, Any] = {}
    """Settings chosen anew; they stay chosen when the run is resumed again."""
    repeats: Sequence[str] = ()
    """Paths of maps that had ended and are entered again, for the items that failed; what finished inside stays."""
    kept: Mapping[str, Any] | None = None
    """The values that the run's session has kept (`RunStarted.kept`), where the run begins only now."""

    as_dict = _as_dict


class NodeStarted(NamedTuple):
    """A node begins, for the first time or again after an interruption."""

    node: str
    at: float

    as_dict = _as_dict


class NodeRecorded(NamedTuple):
    """Something that happened inside a node: a model call, a tool call, a retry, a notice."""

    node: str
    at: float
    record: Any
    """One of `flowengine.core.records.RECORDS`."""

    as_dict = _as_dict


class NodeFinished(NamedTuple):
    """A node succeeded; everything that it wrote is in the result."""

    node: str
    at: float
    result: NodeResult

    as_dict = _as_dict


class NodeFailed(NamedTuple):
    """A node failed for good, its retries included. What that means is its `on_error`'s matter."""

    node: str
    at: float
    error: ErrorInfo
    skipped: bool = False
    """Whether its `on_error: skip` makes it a skipped node (cause `error`). Older journals do not say it."""

    as_dict = _as_dict


class NodeSkipped(NamedTuple):
    """A node does not run, and the event says why."""

    node: str
    at: float
    cause: SkipCause
    why: Decided | None = None
    """The decision, with the values that it was made by. Older journals do not have it."""

    as_dict = _as_dict


class NodeCancelled(NamedTuple):
    """A node in flight was stopped: from outside, by a timeout of the run, or by `on_failure: cancel`."""

    node: str
    at: float

    as_dict = _as_dict


class RunFinished(NamedTuple):
    """The last event, unless the run is resumed."""

    at: float
    status: RunStatus
    """`running`: its writer let go of it, for another process to go on with it."""
    outputs: Mapping[str, Any] | None = None
    error: ErrorInfo | None = None
    """The error of the first failed node in topological order, or of the outputs."""
    node: str | None = None
    """Path of the node that failed."""
    unkept: Sequence[str] = ()
    """The owners of memories that the run leaves and could not keep, and why; a resumption tries again."""
    unrecorded_usd: float = 0.0
    """Dollars of calls so far that were sent and whose answer never came (cancelled, out of time), at the most that
    each could cost; 0 where no limit of cost held."""

    as_dict = _as_dict


Event: TypeAlias = (
    RunStarted
    | RunResumed
    | NodeStarted
    | NodeRecorded
    | NodeFinished
    | NodeFailed
    | NodeSkipped
    | NodeCancelled
    | RunFinished
)

EVENTS: Final[dict[str, type[Any]]] = {
    "RunStarted": RunStarted,
    "RunResumed": RunResumed,
    "NodeStarted": NodeStarted,
    "NodeRecorded": NodeRecorded,
    "NodeFinished": NodeFinished,
    "NodeFailed": NodeFailed,
    "NodeSkipped": NodeSkipped,
    "NodeCancelled": NodeCancelled,
    "RunFinished": RunFinished,
}
"""Name in the journal → class."""


def start_of(events: Sequence[Event]) -> RunStarted | None:
    """The start of a run, with what its session had kept when it began; None where the events begin with another.

    >>> start_of([RunStarted("r", "f", 0.0, {}, {}, {}), RunResumed(1.0, kept={"conversation": ["Hi"]})]).kept
    {'conversation': ['Hi']}
    """
    started = events[0] if events else None
    if not isinstance(started, RunStarted):
        return None
    read = [each.kept for each in events if isinstance(each, RunResumed) and each.kept is not None]
    return started._replace(kept=read[-1]) if read else started


def patches_in(settings: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Node → what it finds in shared state, of a forked run: what was set for it, and for the runs that it comes from.

    >>> patches_in({"forked": "r", "from": "draft", "set": {"tone": "calm"}})
    {'draft': {'tone': 'calm'}}
    """
    if "patches" in settings:
        return {str(node): each for node, each in settings["patches"].items() if each}
    node, state = settings.get("from"), settings.get("set")  # As forks were written that knew one node only.
    return {str(node): state} if node and state else {}


class TokenStreamed(NamedTuple):
    """A piece of the text that an agent is writing, for those who follow the run live.

    No letter of the alphabet: no journal has it and no reader of one meets it. What a node has written by
    the end is in its `NodeFinished`.
    """

    node: str
    at: float
    text: str
    begins: bool = False
    """True for the first piece of an answer. What was told of the node before is then no part of it: it was said
    before a tool was called, or the call broke off and is made anew."""
    model: str = ""
    """The model that is asked now, in a piece without text, with which a call begins."""

    as_dict = _as_dict
