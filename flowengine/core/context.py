"""Defines the frozen data that the engine and the agents share: what goes into a node and what comes out.

It knows no graph, no journal and no model. A `Context` goes in, a `NodeResult` comes out; the
engine hands out lazy contexts of its own (`flowengine.engine.view`) with the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence
from inspect import signature
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, Protocol, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from flowengine.core.budget import Ledger
from flowengine.core.run_scope import RunScope
from flowengine.errors import RunError

NodeStatus = Literal["pending", "running", "waiting", "succeeded", "failed", "skipped", "cancelled"]
RunStatus = Literal["running", "succeeded", "failed", "waiting", "paused", "partial", "cancelled"]
SkipCause = Literal["not_selected", "condition_false", "upstream_skipped", "upstream_failed", "error", "cancelled"]

CAUSE_TEXTS: Final[Mapping[SkipCause, str]] = {
    "not_selected": "not selected",
    "condition_false": "condition false",
    "upstream_skipped": "too few before it succeeded",
    "upstream_failed": "upstream failed",
    "error": "error",
    "cancelled": "cancelled",
}
"""Why a node was skipped, as people read it. Nodes before an `upstream_skipped` one may also have failed, handled."""


class _Readable(BaseModel):
    """A frozen result that callables may read like a mapping (`"score" in it`, `["score"]`, `.get`, `.items()`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: Any = None

    def __str__(self) -> str:
        return str(self.content)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key) if key in type(self).model_fields else default

    def __getitem__(self, key: str) -> Any:
        if key not in type(self).model_fields:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in type(self).model_fields

    def keys(self) -> KeysView[str]:
        return type(self).model_fields.keys()

    def items(self) -> ItemsView[str, Any]:
        return dict(self).items()


class LLMResult(_Readable):
    """The result of a generation."""

    content: Any = None
    """The text, or the validated instance where an output model is set."""
    success: bool = True
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    evaluation_score: float | None = None
    """0.0–1.0, from the last evaluation; None where nothing was evaluated."""
    attempts: int = 1
    """Generations made, the first included."""


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a score is a number from 0.0 to 1.0, not true or false")
    return value


Share: TypeAlias = Annotated[float, BeforeValidator(_refuse_boolean), Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A score or a confidence."""


class RoutingResult(_Readable):
    """The route that was chosen for a generation, and why."""

    content: Any = None
    """Copied from the generation by the engine; a model never re-types it."""
    next_route: str
    confidence: Share = 1.0
    reasoning: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])


class EvaluationResult(_Readable):
    """The score of a generation; `passed` is computed from it, never taken from a model."""

    score: Share
    passed: bool
    criteria_scores: dict[str, float] = Field(default_factory=dict[str, float])
    feedback: str = ""
    suggestions: list[str] = Field(default_factory=list[str])
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])


class FailedEvaluation(NamedTuple):
    """Stands in the place of an evaluation's result where the evaluation failed: an earlier one does not count."""

    node: str
    """Path of the node whose evaluation failed."""
    message: str

    def error(self) -> RunError:
        """The error of reading the result."""
        return _error_of_failed("evaluation", self.node, self.message)


class FailedRouting(NamedTuple):
    """Stands in the place of a routing's result where the routing failed: an earlier one does not count."""

    node: str
    """Path of the node whose routing failed."""
    message: str

    def error(self) -> RunError:
        """The error of reading the result."""
        return _error_of_failed("routing", self.node, self.message)


def _error_of_failed(what: str, node: str, message: str) -> RunError:
    return RunError(
        f"there is no {what}_result: the {what} in node '{node}' failed ({message}), and an earlier one does not "
        f"count in its place; handle its failure, or look at its status first"
    )


def read_or_raise(value: Any) -> Any:
    """The result of an evaluation or a routing as it is read; raises `RunError` where that failed."""
    if isinstance(value, FailedEvaluation | FailedRouting):
        raise value.error()
    return value


class NodeResult(NamedTuple):
    """A node's result: its output, and all changes that it requests. Only the walk applies them.

    >>> NodeResult(output=1, state={"counter": 2}).state
    {'counter': 2}
    """

    output: Any = None
    """The value that templates see as `nodes.<id>.output`."""
    state: Mapping[str, Any] | None = None
    """Writes to shared state: key → value (a contribution where the key has a folding merge rule)."""
    route: str | None = None
    """The label taken, for nodes that have routes."""
    result: Any = None
    """The value that successors see as `result`, where it is more than the output (an `LLMResult`)."""
    routing: RoutingResult | FailedRouting | None = None
    """A `FailedRouting` only from a container whose last routing inside failed."""
    evaluation: EvaluationResult | FailedEvaluation | None = None
    """A `FailedEvaluation` only from a container whose last evaluation inside failed."""
    prompt: str | None = None
    """The generation prompt (`_last_prompt`); routing and evaluation nodes leave it None."""
    generation: Any = None
    """The generated content (`_last_generation`)."""
    kept: Mapping[str, Any] | None = None
    """The values that the node's providers, typed contexts and skills keep for its descendants: name → JSON value.
    `conversation`, `memory` and `skills` are lists that are added to what ancestors keep; every other name is
    replaced."""
    given: str | None = None
    """Set by the engine, for `run --reuse`: a digest of what the node's body was handed (a function's arguments), or
    `OF_THIS_RUN`. No other node sees it."""


OF_THIS_RUN: Final = "run"
"""In place of a digest: the node's body read the run's id, so that its result is no other run's."""


class Fragment(NamedTuple):
    """A piece of text on its way into a prompt. Everything that enters one is such a piece."""

    text: str
    source: str
    """Who brought it: `conversation`, `fixed_file`, `memory`, `skills`, …"""
    tokens: int | None = None
    """Its tokens by real count; None where it was not counted yet."""
    priority: int = 0
    """The rank: a fragment of higher priority is dropped later."""
    pinned: bool = False
    """Never shortened and never dropped."""
    order: int = 0
    """Place in the prompt, ascending; equal places keep the order they came in."""
    label: str = ""
    """The fragment's name within its source (a path, a turn, a section), for the receipt."""
    group: str = ""
    """Fragments of one group stay or go together (a tool call and its result)."""
    said: str = ""
    """The words that it hands on, where it adds some of its own (a date): what two sources hand on stands in a prompt
    once. Empty: its text."""


class NoOutputError(KeyError):
    """The output was asked for of a node that did not succeed."""

    def __init__(self, node: str, status: str) -> None:
        super().__init__(f"node '{node}' has no output: it was {status}")
        self.status = status


class NodeView(NamedTuple):
    """One ancestor, as expressions see it: `nodes.<id>.output|result|status|error`."""

    output: Any
    result: Any
    status: NodeStatus
    error: str | None


class Note(Protocol):
    """Receives a node's records; each is journaled before the call returns."""

    async def __call__(self, record: Any) -> None: ...


class Tell(Protocol):
    """Receives the text that a node writes, piece by piece, for followers of the run. Nothing is stored.

    `begins`: the piece is the first of a text; what was told before is no part of it. `model`: who is asked now, with
    an empty piece. To be called on the event loop that the node runs on.
    """

    def __call__(self, text: str, begins: bool = False, model: str = "", /) -> None: ...


Around: TypeAlias = Callable[[Any], Any]
"""Makes of a gateway (`flowengine.core.records.Gateway`) another one."""


async def ignore_record(record: Any) -> None:
    """Outside a run there is no journal to tell."""


class Runtime(Protocol):
    """The things that a running node has from the engine beside what its author reads. Outside a run it is empty."""

    @property
    def note(self) -> Note:
        """Tell what happens inside the node; journaled before it returns."""
        ...

    @property
    def recorded(self) -> Sequence[Any]:
        """Records that an interrupted earlier attempt of this node left in the journal."""
        ...

    @property
    def tell(self) -> Tell | None:
        """Tell what is being written; None without a listener."""
        ...

    @property
    def kept(self) -> Mapping[str, Any]:
        """The values that providers, typed contexts and skills of this node's ancestors keep (`NodeResult.kept`)."""
        ...

    @property
    def scope(self) -> RunScope | None:
        """Resources shared by the nodes of the run; None outside a run."""
        ...

    @property
    def ledger(self) -> Ledger | None:
        """The ledger in which calls are reserved and settled; None without limits."""
        ...

    @property
    def around(self) -> Around | None:
        """The wrapper of the gateway for the node's agent, or None."""
        ...

    def charging(self, ledger: Ledger) -> Runtime:
        """The same, with calls reserved and settled in another ledger."""
        ...

    def note_with_next(self, record: Any) -> None:
        """Tell what happens inside the node; it is journaled with what comes next, and lost with it."""
        ...


WRITES_ARE_RETURNED: Final = (
    "the shared state of a context is read, not written: return NodeResult(state={{{key!r}: ...}}) from the node"
)
"""The error of writing into a context's state, with the way to do it."""


class _Empty(Mapping[str, Any]):
    """The one empty mapping: shared, so it costs a context nothing."""

    def __getitem__(self, key: str) -> NoReturn:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        raise TypeError(WRITES_ARE_RETURNED.format(key=key))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Empty:
        return self

    def __repr__(self) -> str:
        return "{}"


EMPTY: Final[Mapping[str, Any]] = _Empty()


class GivenRuntime(NamedTuple):
    """A runtime of given parts: outside a run, for tests, and at the end of one."""

    note: Note = ignore_record
    recorded: Sequence[Any] = ()
    tell: Tell | None = None
    kept: Mapping[str, Any] = EMPTY
    scope: RunScope | None = None
    ledger: Ledger | None = None
    around: Around | None = None

    def charging(self, ledger: Ledger) -> GivenRuntime:
        return self._replace(ledger=ledger)

    def note_with_next(self, record: Any) -> None:
        """There is no journal to tell."""


class Context:
    """A node's read-only view: the run's inputs, and what its ancestors wrote.

    Made by hand for an agent that stands alone or for a test; inside a run the engine makes one
    whose attributes are worked out when they are read.

    >>> Context(shared_state={"counter": 1}).shared_state["counter"]
    1
    """

    __slots__ = ("_values",)
    _values: dict[str, Any]

    def __init__(
        self,
        result: Any = None,
        shared_state: Mapping[str, Any] | None = None,
        *,
        routing_result: RoutingResult | None = None,
        evaluation_result: EvaluationResult | None = None,
        prev_outputs: Mapping[str, Any] | None = None,
        nodes: Mapping[str, NodeView] | None = None,
        inputs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        messages: Sequence[Any] = (),
        current_node: str | None = None,
        error: str | None = None,
        run_id: str | None = None,
        variables: Mapping[str, Any] | None = None,
        has_result: bool | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        object.__setattr__(
            self,
            "_values",
            {
                "result": result,
                "shared_state": EMPTY if shared_state is None else shared_state,
                "routing_result": routing_result,
                "evaluation_result": evaluation_result,
                "prev_outputs": EMPTY if prev_outputs is None else prev_outputs,
                "nodes": EMPTY if nodes is None else nodes,
                "inputs": EMPTY if inputs is None else inputs,
                "env": EMPTY if env is None else env,
                "messages": messages,
                "current_node": current_node,
                "error": error,
                "run_id": run_id,
                "variables": EMPTY if variables is None else variables,
                "has_result": result is not None if has_result is None else has_result,
                "runtime": GivenRuntime() if runtime is None else runtime,
            },
        )

    @property
    def result(self) -> Any:
        """The result of the one live predecessor."""
        return self._values["result"]

    @property
    def has_result(self) -> bool:
        """Whether a predecessor produced something, be it None."""
        return self._values["has_result"]

    @property
    def shared_state(self) -> Mapping[str, Any]:
        """Declared key → value, folded over this node's ancestors."""
        return self._values["shared_state"]

    @property
    def routing_result(self) -> RoutingResult | None:
        """The routing of the topologically last live ancestor that made one."""
        return read_or_raise(self._values["routing_result"])

    @property
    def evaluation_result(self) -> EvaluationResult | None:
        """The evaluation of the topologically last ancestor that made one; a `RunError` where that one failed."""
        return read_or_raise(self._values["evaluation_result"])

    @property
    def prev_outputs(self) -> Mapping[str, Any]:
        """Ancestor's name → output; ancestors that were skipped are absent."""
        return self._values["prev_outputs"]

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Ancestor's name → its view (output, result, status, error), skipped ones included."""
        return self._values["nodes"]

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The run's inputs, defaults filled in."""
        return self._values["inputs"]

    @property
    def env(self) -> Mapping[str, str]:
        """The environment values that the project file allows, as they were at the run's start."""
        return self._values["env"]

    @property
    def messages(self) -> Sequence[Any]:
        """Chat messages that an agent continues from."""
        return self._values["messages"]

    @property
    def current_node(self) -> str | None:
        """The node's path; None outside a run."""
        return self._values["current_node"]

    @property
    def error(self) -> str | None:
        """Message of the failure that this node handles (`on_error: {then}`), else None."""
        return self._values["error"]

    @property
    def run_id(self) -> str | None:
        """The run's id; None in a context made by hand."""
        return self._values["run_id"]

    @property
    def variables(self) -> Mapping[str, Any]:
        """Names that the surrounding container adds: `item`, `each`, `round`."""
        return self._values["variables"]

    @property
    def runtime(self) -> Runtime:
        """The engine's services to nodes: for authors of kinds of nodes, not of functions."""
        return self._values["runtime"]

    @property
    def shared(self) -> Context:
        """The same view for readers that change nothing (templates): its values are the ones that other nodes see."""
        return self

    def with_(self, **changes: Any) -> Context:
        """A new context that differs in the named attributes; this one stays as it is.

        >>> Context("draft").with_(result="better").result
        'better'
        """
        if "result" in changes:
            changes.setdefault("has_result", True)
        unknown = set(changes) - set(FIELDS)
        if unknown:
            raise TypeError(f"Context has no attribute {sorted(unknown)[0]!r}")
        return Context(**{name: changes[name] if name in changes else self._carry(name) for name in FIELDS})

    def _carry(self, name: str) -> Any:
        """An attribute as another context takes it over; a result that failed is not read here."""
        return self._values[name] if name in RESULTS else getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a Context is read-only: return NodeResult(state=...) instead of setting {name!r}")

    def __repr__(self) -> str:
        return f"<Context of {self.current_node!r}>"


RESULTS: Final = frozenset({"routing_result", "evaluation_result"})
"""Attributes that may stand for something that failed."""
FIELDS: Final = tuple(signature(Context).parameters)
