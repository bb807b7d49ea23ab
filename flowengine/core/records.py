"""Defines the records that agents leave, and `Gateway`, their only way to models and tools.

An agent never calls a model or a tool itself: it asks a `Gateway`. An agent outside of a flow gets the
direct one; inside a flow its node hands it one that records. So agents know neither journal nor
graph, and still every call is in the trace. Records are plain named tuples of JSON values; the
journal writes them down under their class name (`RECORDS`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from flowengine.core.budget import Spending
from flowengine.core.file_values import FileValue

__all__ = [
    "ACCEPT",
    "PREPARING",
    "RECORDS",
    "REFUSE",
    "Answered",
    "ApprovalRequested",
    "AwaitsPerson",
    "ContextGathered",
    "Decided",
    "EffectDecided",
    "Gateway",
    "MapBegan",
    "MapStopped",
    "ModelCall",
    "Notice",
    "Notified",
    "ProviderFailed",
    "Receipt",
    "Received",
    "Retry",
    "Reused",
    "Round",
    "RoundEnded",
    "SkillLoad",
    "ToolCall",
    "UsageTotals",
    "Waited",
    "cost_text",
    "node_of_question",
    "question_path",
    "seconds_text",
    "tool_key",
    "usage_of",
]


class ModelCall(NamedTuple):
    """One completion: what was asked, what came back, what it cost."""

    model: str
    provider: str
    purpose: str
    """`generation`, `evaluation`, `improvement` or `routing`; for what goes into a prompt `summary` or `embedding`."""
    messages: Sequence[Mapping[str, Any]]
    """Role-separated chat messages, as sent."""
    content: str
    """The answer's text."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    """None where the price is unknown; never 0 for unknown."""
    seconds: float = 0.0
    key: str = ""
    """Hash of the request."""
    occurrence: int = 0
    """How many equal requests this node attempt made before."""
    attempts: int = 1
    """Requests sent, transient failures included."""
    finish_reason: str = ""
    error: str | None = None
    """Why the call failed for good, else None."""
    request: Mapping[str, Any] = {}
    """The request beside the messages: the model as it was asked for, temperature, schema, tools;
    `extra` without its secrets."""
    vectors: Sequence[str] = ()
    """The embeddings, a vector for each message (32-bit floats in base64)."""
    vendor_parts: Sequence[Mapping[str, Any]] = ()
    """The parts that the provider wants back unchanged with the answer, such as signed thinking."""
    cache_write_tokens: int | None = None
    """The part of the prompt's that the vendor wrote to its cache."""
    reasoning_tokens: int | None = None
    """The part of the answer's that the model thought with."""
    timeline: Sequence[Mapping[str, Any]] = ()
    """The steps before the answer: `what` (`loading`, `queued`, `attempt`, `backoff` or `rate_limit`, see
    `flowengine.models.call_timeline`), `ago` (seconds from its beginning to the call's end), `seconds`, `error`."""
    unanswered: int = 0
    """Those of `attempts` that were sent and neither answered nor refused: the provider may bill them."""
    may_be_billed_tokens: int = 0
    """Tokens that those may have taken, at most."""
    may_be_billed_usd: float | None = 0.0
    """Dollars that those may cost, at most; None where the price is unknown."""


@dataclass(slots=True)
class UsageTotals:
    """Model calls with what is known of their tokens and costs."""

    calls: int = 0
    counted: int = 0
    """Calls whose tokens are known."""
    priced: int = 0
    """Calls whose price is known."""
    answered: int = 0
    """Calls that did not fail; a failed one costs nothing that is known."""
    known_tokens: int = 0
    known_cost: float = 0.0
    may_be_billed_usd: float = 0.0
    """Dollars for attempts that were not answered, beside the known cost."""

    def add(self, call: ModelCall) -> None:
        self.calls += 1
        self.answered += call.error is None
        if call.prompt_tokens is not None or call.completion_tokens is not None:
            self.counted += 1
            self.known_tokens += (call.prompt_tokens or 0) + (call.completion_tokens or 0)
        if call.cost_usd is not None:
            self.priced += 1
            self.known_cost += call.cost_usd
        self.may_be_billed_usd += call.may_be_billed_usd or 0.0

    def join(self, other: UsageTotals) -> None:
        """Add what another one counted."""
        self.calls += other.calls
        self.counted += other.counted
        self.priced += other.priced
        self.answered += other.answered
        self.known_tokens += other.known_tokens
        self.known_cost += other.known_cost
        self.may_be_billed_usd += other.may_be_billed_usd

    @property
    def tokens(self) -> int | None:
        """Prompts and completions together; None where calls were made and none was counted."""
        return None if self.answered and not self.counted else self.known_tokens

    @property
    def most_usd(self) -> float:
        """The known cost, with what may be billed."""
        return self.known_cost + self.may_be_billed_usd

    @property
    def cost_usd(self) -> float | None:
        """Dollars of the calls with a known price; None where calls were made and none has one."""
        return None if self.answered and not self.priced else self.known_cost

    @property
    def is_whole(self) -> bool:
        """Whether the cost counts every call."""
        return self.priced >= self.answered


def cost_text(amount: float) -> str:
    """US dollars with the digits that people need; what was paid is never shown as nothing.

    >>> [cost_text(each) for each in (0, 1234.5, 0.25, 0.0012, 0.0000345, 1e-9)]
    ['$0', '$1,234.50', '$0.25', '$0.0012', '$0.000034', 'under $0.000001']
    """
    if 0 < amount < 0.000001:
        return "under $0.000001"
    return "$0" if amount == 0 else f"${amount:,.{2 if amount >= 0.1 else 4 if amount >= 0.0001 else 6}f}"


def seconds_text(seconds: float) -> str:
    """A duration as people read it, rounded to the smaller of at most two units; the viewer's script writes the same.

    >>> [seconds_text(each) for each in (0.0412, 3.14159, 75, 7_322, 183_600)]
    ['41 ms', '3.1 s', '1 min 15 s', '2 h 2 min', '2 d 3 h']
    """
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(int(seconds / 60 + 0.5), 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(int(seconds / 3_600 + 0.5), 24)
    return f"{days:,} d {hours} h"


class ToolCall(NamedTuple):
    """One tool call and its result."""

    name: str
    arguments: Mapping[str, Any]
    result: Any
    """The text that the model sees."""
    is_error: bool = False
    effect: str = "none"
    """`none`, `idempotent` or `external`."""
    seconds: float = 0.0
    key: str = ""
    """Hash of name and arguments (`tool_key`)."""
    occurrence: int = 0
    """How many equal calls this node attempt made before."""
    started: bool = False
    """True for the record written before an external tool runs; its result comes in a second one."""
    value: Any = None
    """The raw value behind the text; None too where it cannot be written down."""
    files: Sequence[FileValue] = ()
    """Those that it gave beside its value."""


class Decided(NamedTuple):
    """A decision about a node or its routes: the expression, and the values that it read."""

    what: str
    """`when`, `if`, `cases`, `route` (a router's answer), `evaluation`, `until` (of a loop's round), `enough` (a map's
    `until`), or `join` (what came of the nodes before)."""
    answer: str
    """`true` or `false`, the label taken; of a join `run`, or the cause for which it does not."""
    tests: Sequence[Mapping[str, Any]] = ()
    """Each expression that was looked at, in order: `expression`, `values` (path or filter → what it saw, as JSON that
    may be cut), `answer`, and of a case its `label`."""
    among: Sequence[str] = ()
    """The labels that could be taken."""
    rule: str = ""
    """The rule of a join: `some`, `all` or `always`."""
    parents: Mapping[str, str] = {}
    """Ids of the nodes before a join → what had become of them; those that decided come first."""
    more: int = 0
    """How many nodes before it are not told of."""


class EffectDecided(NamedTuple):
    """A person decided about a call to an external tool whose end was not seen."""

    name: str
    """The tool's."""
    arguments: Mapping[str, Any]
    key: str
    occurrence: int
    decision: Literal["retry", "done"]
    """It is run again, or taken as done."""


class Receipt(NamedTuple):
    """The contents of a prompt: one row per fragment (source, tokens, kept | shortened | dropped, why).

    Where all fitted in any case the tokens are `estimated`.
    """

    fragments: Sequence[Mapping[str, Any]]
    budget: int | None = None


class ContextGathered(NamedTuple):
    """The fragments that context providers gathered for a prompt, including those that transforms left out."""

    fragments: Sequence[Mapping[str, Any]]


class Received(NamedTuple):
    """The arguments of a node's body (`with`), as rendered."""

    values: Mapping[str, str]
    """Name → the value as JSON, that may be cut."""


class SkillLoad(NamedTuple):
    """A skill's level was loaded."""

    skill: str
    level: int
    tokens: int
    seconds: float
    memory: int


class ProviderFailed(NamedTuple):
    """A context provider or a hook failed; the chain went on."""

    provider: str
    error: str


class Round(NamedTuple):
    """One round of evaluate → improve."""

    number: int
    content: Any
    score: float | None
    passed: bool
    feedback: str = ""


class Retry(NamedTuple):
    """A node failed and is tried again."""

    attempt: int
    """The attempt that failed, counted from 1."""
    error: str
    delay: float
    """Seconds until the next one."""


class Waited(NamedTuple):
    """A node waited until there was a thread for its function; it is told when the wait is over."""

    seconds: float


class Notice(NamedTuple):
    """Something worth a reader's attention that is no failure."""

    text: str


class MapBegan(NamedTuple):
    """A map knows how many items it has."""

    total: int
    items: Sequence[str] = ()
    """The first of them as JSON, that may be cut. Older journals do not have them."""


class MapStopped(NamedTuple):
    """A map has enough results: what is not done is cancelled, and counts no more."""

    done: Sequence[int]
    """Indices of the items whose results count."""
    cancelled: Sequence[int]
    """Indices of the items that had begun and were cancelled."""
    left: int
    """How many never began."""
    errors: Sequence[Mapping[str, Any]] = ()
    """`{error, index}` of the items that had failed, where the map collects them."""


class RoundEnded(NamedTuple):
    """A loop's round is over, and what was decided after it."""

    number: int
    """Counted from 0."""
    variables: Mapping[str, Any]
    """The variables that the round was entered with."""
    stopped: bool
    """Whether `until` was true after it."""
    best: Any = None
    """The value that `best_by` gave for it; None where the loop has none, or where it gave nothing."""


class ApprovalRequested(NamedTuple):
    """An approval, or a call of a tool, waits for a person; whatever an answer must satisfy is here.

    Of a call the choices are `ACCEPT` and `REFUSE`, `form` is the schema of the tool's arguments, and an acceptance
    may come with other arguments than the model's.
    """

    message: str
    choices: Sequence[str]
    form: Mapping[str, Any] | None = None
    """JSON Schema of the form to be filled in."""
    expires: float | None = None
    """Unix seconds after which no answer is waited for."""
    on_expire: str | None = None
    """The choice that then counts."""
    name: str = ""
    """Tells the questions of one node apart (`question_path`); empty where the node itself is the question."""
    tool: str = ""
    """Name of the tool that is to be called; empty where no call is asked about."""
    arguments: Mapping[str, Any] | None = None
    """The arguments that the tool is to be called with."""
    key: str = ""
    """Hash of name and arguments (`tool_key`)."""
    occurrence: int = 0
    """How many equal calls this node attempt wanted before."""
    approvers: Sequence[str] = ()
    """Who may answer (`Answered.by`); empty: anybody who may answer at all."""
    notify: Sequence[Any] | None = None
    """Who is told of it: names of the project's channels, and channels of its own; None: the project says."""
    describe: Mapping[str, str] = {}
    """Choice → what it means, where that is said."""
    form_for: Sequence[str] = ()
    """The choices that the form goes with; empty: all."""


class Notified(NamedTuple):
    """Somebody was told of a question, or could not be."""

    channel: str
    """The channel's name in the project, else its type."""
    to: str
    """A mail address, or the host that it was posted to."""
    asked: float
    """When the question was asked."""
    name: str = ""
    """The name of the question."""
    error: str | None = None
    """Why it did not arrive; None: it did."""
    attempts: int = 1
    """How often it was tried this time."""


class Answered(NamedTuple):
    """A person's answer to a question, or what counts as one because none came in time."""

    choice: str
    comment: str = ""
    by: str = ""
    """Who answered; `expired` where no one did in time."""
    form: Any = None
    """The values filled in; for an accepted call its arguments, where a person changed them."""
    name: str = ""
    """The name of the question."""


ACCEPT: Final = "accept"
REFUSE: Final = "refuse"


def question_path(node: str, record: ApprovalRequested | Notified | Answered) -> str:
    """Returns the name by which people refer to a question: the node's path, and the question's name.

    >>> question_path("ship", ApprovalRequested("Ship it?", ["yes"]))
    'ship'
    >>> question_path("help", Answered("accept", name="refund:2"))
    'help:refund:2'
    """
    return f"{node}:{record.name}" if record.name else node


def node_of_question(path: str, record: ApprovalRequested | Answered) -> str:
    """The path of the node that asks."""
    return path.removesuffix(f":{record.name}") if record.name else path


class Reused(NamedTuple):
    """The node did not run: its result is that of another run, of which nothing that matters to it has changed."""

    run_id: str
    node: str
    """The node's path there."""
    calls: Sequence[Any] = ()
    """The calls that it takes to make the result again, where an agent made it (`ModelCall`s without their messages,
    `ToolCall`s). They were paid for there, and are not counted here."""


RECORDS: Final[dict[str, type[Any]]] = {
    "ModelCall": ModelCall,
    "ToolCall": ToolCall,
    "Decided": Decided,
    "EffectDecided": EffectDecided,
    "Receipt": Receipt,
    "Received": Received,
    "ContextGathered": ContextGathered,
    "SkillLoad": SkillLoad,
    "ProviderFailed": ProviderFailed,
    "Round": Round,
    "Retry": Retry,
    "Waited": Waited,
    "Notice": Notice,
    "MapBegan": MapBegan,
    "MapStopped": MapStopped,
    "RoundEnded": RoundEnded,
    "ApprovalRequested": ApprovalRequested,
    "Notified": Notified,
    "Answered": Answered,
    "Reused": Reused,
}
"""Class name → class, for the journal's codec."""


PREPARING: Final = frozenset({"summary", "embedding"})
"""Purposes of calls that prepare a prompt: they tell nothing of what the node itself will ask, and are not read
while they are written."""


def tool_key(name: str, arguments: Mapping[str, Any]) -> str:
    """Hash of a tool call: equal calls have equal keys, in every process.

    >>> tool_key("add", {"a": 1, "b": 2}) == tool_key("add", {"b": 2, "a": 1})
    True
    """
    try:
        canonical = json.dumps([name, dict(arguments)], sort_keys=True, separators=(",", ":"), default=_to_sortable)
    except (TypeError, ValueError):  # Keys that are no texts, integers of thousands of digits.
        canonical = json.dumps([name, _to_sortable(dict(arguments))], separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _to_sortable(value: Any) -> Any:
    """A value that JSON does not have, in one form in every process: sets come in any order, and some classes'
    `repr` is their place in memory."""
    if isinstance(value, Set):
        return sorted(json.dumps(_to_sortable(each)) for each in cast("Set[Any]", value))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return sorted(([json.dumps(_to_sortable(key)), _to_sortable(each)] for key, each in pairs), key=itemgetter(0))
    if isinstance(value, list | tuple):
        return [_to_sortable(each) for each in cast("Sequence[Any]", value)]
    if value is None or isinstance(value, str | int | float):
        return hex(value) if type(value) is int else value
    if type(value).__repr__ is not object.__repr__:
        with suppress(ValueError):  # An integer of thousands of digits in it.
            return repr(value)
    return [type(value).__qualname__, _to_sortable(getattr(value, "__dict__", ()))]


def usage_of(call: ModelCall) -> Spending:
    """Returns a call's usage for the ledger, with what may be billed; unknown values count as zero.

    >>> usage_of(ModelCall("m", "p", "generation", (), "", prompt_tokens=3, completion_tokens=4))
    Spending(model_calls=1, tokens=7, cost_usd=0.0, unpriced_calls=1)
    """
    tokens = (call.prompt_tokens or 0) + (call.completion_tokens or 0) + call.may_be_billed_tokens
    is_paid = call.error is None or call.prompt_tokens is not None
    unpriced = int(call.cost_usd is None and call.error is None) + call.unanswered * (call.may_be_billed_usd is None)
    cost = (call.cost_usd or 0.0) + (call.may_be_billed_usd or 0.0)
    return Spending(max(1, call.unanswered + is_paid), tokens, cost, unpriced)


class AwaitsPerson(Exception):  # noqa: N818 - not an error: the node goes on once the question is answered
    """A call waits for a person; the question is on record."""


class Gateway(Protocol):
    """The seam between an agent and the engine: `complete` asks a model, `call_tool` runs a tool, `note` tells."""

    async def complete(self, model: Any, request: Any, *, purpose: str) -> Any:
        """One completion (`flowengine.models.model.Model`, `Request` → `Reply`)."""
        ...

    async def call_tool(self, tool: Any, arguments: Mapping[str, Any]) -> Any:
        """One call. Raises `AwaitsPerson` where somebody is to consent to it first, and is asked now."""
        ...

    async def note(self, record: Any) -> None:
        """Put a record of what the agent did beside its calls."""
        ...
