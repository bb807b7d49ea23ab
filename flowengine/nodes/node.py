"""Defines what every node of a flow has, whatever it does: its place in the graph and its policies.

`FlowNode` is what authors make (in Python, or through the builder from YAML). The engine runs the
wrapped form of it (`flowengine.nodes.policy`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, Self, TypedDict, cast, runtime_checkable

from flowengine.core import TRAITS, USER_CODE, Budget, Context, NodeResult, OnLimit, RunScope, check_arguments
from flowengine.engine import ON_ERROR, Edge, Ended, Join, OnFailure, Vertex
from flowengine.errors import (
    CallRefusedError,
    DefinitionError,
    LimitError,
    OutputError,
    RouteError,
    RunError,
    StoreUnavailableError,
    did_you_mean,
    names_fields,
    refuse_other_kind,
    unknown_argument,
)

if TYPE_CHECKING:
    from flowengine.models import DefaultModel
    from flowengine.nodes.code_reading import CodeReading

# --- Bounds of a run and of its parts, as data


def check_call(what: str, function: Callable[..., Any], *args: str, **kwargs: str) -> None:
    """`DefinitionError` for a function that cannot be called so; one that says nothing of its arguments is believed."""
    try:
        takes = signature(function)
    except (TypeError, ValueError):
        return
    try:
        takes.bind(*args, **kwargs)
    except TypeError as error:
        call_text = ", ".join([*args, *(f"{name}=…" for name in kwargs)])
        raise DefinitionError(f"{what} is called as f({call_text}), and takes {takes}: {error}") from None


def check_least(name: str, value: object, least: float, *, whole: bool = False) -> None:
    """`DefinitionError` for what is no number, or a smaller one: a run would wait for ever, or have no bound at all."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value >= least:
        kind = "a whole number" if whole else "a number"
        raise DefinitionError(f"{name} must be {kind}, and {least} at least, not {value!r:.60}")


def _check_bounds(bounds: Budget, timeout: float | None) -> None:
    refuse_other_kind(bounds, Budget, "bounds are a Budget", DefinitionError)
    for name, value in {**bounds._asdict(), "timeout": timeout}.items():
        check_least(name, value, 0)


@names_fields
@dataclass(frozen=True, slots=True)
class RunLimits:
    """Budget of a whole run."""

    concurrency: int | None = None
    """Nodes in flight at once; None: as many as are ready."""
    timeout: float | None = None
    """Seconds for the whole run; None: no bound."""
    on_failure: OnFailure = "drain"
    bounds: Budget = field(default_factory=Budget)
    """Of all model calls together."""
    on_limit: OnLimit = "fail"
    """At a bound, or when the time is up: the run fails, pauses (to be resumed), or ends with what it has."""
    needs_prices: bool = False
    """Whether models whose price is not known are refused: no limit of cost would hold for them."""

    def __post_init__(self) -> None:
        check_arguments(RunLimits, {"on_failure": self.on_failure, "on_limit": self.on_limit})
        check_least("concurrency", self.concurrency, 1, whole=True)
        _check_bounds(self.bounds, self.timeout)


@names_fields
@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Budget of one node, or of everything inside a container."""

    bounds: Budget = field(default_factory=Budget)
    timeout: float | None = None
    """Seconds for all attempts together."""
    on_limit: OnLimit = "fail"
    """The part fails; the run pauses; a container ends with what it has."""

    def __post_init__(self) -> None:
        check_arguments(NodeLimits, {"on_limit": self.on_limit})
        _check_bounds(self.bounds, self.timeout)


# --- When and how often a failed node is run again, as data


@names_fields
@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When and how often a failed node is repeated (rule 19)."""

    attempts: int = 3
    """Counts the first."""
    backoff: Literal["fixed", "exponential"] = "exponential"
    initial: float = 1.0
    """Seconds before the second attempt."""
    max: float = 60.0
    """Seconds, at most, before any attempt."""
    jitter: bool = True
    """Shorten each pause at random, by up to half, so that many nodes do not come back at once."""
    on: tuple[Literal["invalid_output", "error"], ...] = ("invalid_output", "error")

    def __post_init__(self) -> None:
        check_least("attempts", self.attempts, 1, whole=True)
        check_least("initial", self.initial, 0)
        check_least("max", self.max, 0)

    def covers(self, error: BaseException) -> bool:
        """`invalid_output` is an output that does not fit its shape; `error` is everything else.

        Neither are limits and wrong definitions, which are the same the next time; nor a call that a person refused;
        nor a store that is away, or is another's by now, for then the whole run stops.
        """
        if isinstance(error, LimitError | DefinitionError | StoreUnavailableError | CallRefusedError):
            return False
        return ("invalid_output" if isinstance(error, OutputError) else "error") in self.on


Effect = Literal["none", "idempotent", "external"]
"""Nothing outside; what may be done twice; what is not done twice without a person's word."""

Value = Callable[[Context], Any]
"""A value that is worked out from what the node sees (a compiled template or expression)."""


def work_out(values: Mapping[str, Callable[..., Any]], *views: Any) -> dict[str, Any]:
    """What some values are for what they are given; see `USER_CODE`."""
    with USER_CODE:
        return {name: value(*views) for name, value in values.items()}


@runtime_checkable
class Testable(Protocol):
    """A condition that says by which values it decided."""

    def test(self, context: Context, /) -> Mapping[str, Any]:
        """One entry of `Decided.tests`."""
        ...


class NodeSettings(TypedDict, total=False):
    """The settings of every node, for the arguments of its kinds; `FlowNode` says what they mean."""

    needs: str | Sequence[str]
    reads: Sequence[str]
    join: Join
    when: Value | None
    set: Mapping[str, Callable[[Context, Any], Any]] | None
    retry: RetryPolicy | None
    timeout: float | None
    on_error: str
    effect: Effect
    cache: bool
    limits: NodeLimits | None
    description: str
    version: str
    fingerprint: Callable[[], str] | None


_OF_EVERY_NODE: Final = frozenset(
    {
        *("needs", "reads", "join", "when", "set", "retry", "timeout", "on_error", "effect", "cache", "limits"),
        *("description", "version", "_fingerprint", "definitions", "body"),
    }
)
"""What is no part of what a node does, or is told beside it; the nodes inside have fingerprints of their own."""


class FlowNode(ABC):
    """A node: what it follows, when it runs, what happens when it fails.

    - `needs`: ids of nodes that come before it, for order.
    - `reads`: ids of nodes whose outputs its values name; edges as well.
    - `join`: which outcomes of its parents let it run (`some`, `all`, `always`).
    - `when`: a condition on what it sees; false skips it.
    - `set`: shared state key → value, written beside its own result; sees `output`.
    - `retry`, `timeout` (seconds, of one attempt), `on_error` (`"fail"`, `"skip"`, or the id of the
      node that handles the failure).
    - `effect`: what it does outside. An `external` effect whose end was not seen is not repeated before
      a person has decided about it.
    - `cache`: take the result of an earlier run, of whatever flow of the store, that had the same
      definition and the same inputs.
    - `version`: stands for what cannot be read of the code that it calls (a connection, a model in memory): its
      results are taken again as long as it stays the same.
    - `limits`: bounds of its model calls and its time, all attempts together.
    """

    kind: ClassVar[str]
    """What is true of all nodes of the kind stands in `core.node_traits`; one that is not there says it itself."""
    transparent: ClassVar[bool] = False
    container: ClassVar[bool] = False
    records_effect: ClassVar[bool] = False
    """Whether it puts the beginning of its own effect on record."""
    starts_tasks: ClassVar[bool] = True
    """Whether a task may begin in it that lives as long as the run (a server, the wait for a person's answer)."""
    in_thread: bool = False
    """Whether its work is done in a thread, of which a run has so many."""
    sees_all: bool = True
    """Whether its body may look at everything that a node sees, beside what it is handed."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        if own.get("kind") in TRAITS and "transparent" not in own:
            cls.transparent = TRAITS[own["kind"]].transparent

    def __init__(
        self,
        *,
        needs: str | Sequence[str] = (),
        reads: Sequence[str] = (),
        join: Join = "some",
        when: Value | None = None,
        set: Mapping[str, Callable[[Context, Any], Any]] | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        on_error: str = "fail",
        effect: Effect = "none",
        cache: bool = False,
        limits: NodeLimits | None = None,
        description: str = "",
        version: str = "",
        fingerprint: Callable[[], str] | None = None,
        **unknown: object,
    ) -> None:
        for name in unknown:
            raise unknown_argument(type(self).__name__, name, _arguments_of(type(self)))
        check_arguments(FlowNode.__init__, locals())
        check_least("timeout", timeout, 0)
        self.needs = (needs,) if isinstance(needs, str) else tuple(needs)
        self.reads = tuple(reads)
        self.join: Join = join
        self.when = when
        self.set = set or {}
        self.retry = retry
        self.timeout = timeout
        self.on_error = on_error
        self.effect: Effect = effect
        self.cache = cache
        self.limits = limits
        if effect == "external" and retry is not None and retry.attempts > 1:
            raise DefinitionError("what has an external effect is done once, so it takes no `retry`")
        self.description = description
        self.version = version
        self._fingerprint = fingerprint

    @property
    def has_policies(self) -> bool:
        """Whether anything stands round its body when it runs (`flowengine.nodes.policy`)."""
        return (
            self.in_thread
            or self.effect == "external"
            or self.kind not in TRAITS
            or bool(self.set)
            or any(each is not None for each in (self.when, self.retry, self.limits, self.timeout))
        )

    @property
    def routes(self) -> Mapping[str, str | None]:
        """Label → id of the node that it leads to, or None where it leads nowhere."""
        return {}

    @property
    def evaluates(self) -> bool:
        """Whether it sets the engine's `evaluation_result`."""
        return False

    @property
    def chooses(self) -> bool:
        """Whether it sets the engine's `routing_result`."""
        return False

    @property
    def remark(self) -> str:
        """The remark on it in pictures, beside its kind."""
        return ""

    @property
    def model_name(self) -> str:
        """The model that it asks, where its definition names one."""
        return ""

    @abstractmethod
    async def run(self, context: Context, /) -> Ended:
        """Do the node's work; raising is failing."""

    def handed(self, context: Context) -> Mapping[str, Any] | None:
        """Returns the arguments that the body's templates give, by name, if they are its only inputs; else None."""
        return None

    @property
    def inside(self) -> Mapping[str, FlowNode]:
        """The nodes of its body, where it is a container."""
        return {}

    def prepare(self) -> None:  # noqa: B027 - most nodes have nothing to prepare
        """Before a run begins: raise a `DefinitionError` for what can be known to fail, start what takes long."""

    async def load_models(self) -> None:
        """Wait for the libraries of models that it asks: loading them is no part of its `timeout`."""
        for each in self.inside.values():
            await each.load_models()

    @property
    def tells_people(self) -> bool:
        """Whether it names whom a run tells of its question, which needs a project that says how."""
        return False

    @property
    def asks_by_default(self) -> bool:
        """Whether it may ask people whom the project names, as far as that is known before it runs."""
        return False

    @property
    def adds_up(self) -> Sequence[str]:
        """Names under which it keeps lists for later nodes, to which those of nodes beside it are added."""
        return ()

    @property
    def checks_servers(self) -> bool:
        """Whether something of its definition is known only once its servers run."""
        return False

    async def check_servers(self, path: str, scope: RunScope) -> None:  # noqa: B027 - most nodes have none
        """Before the first node of a run: start its servers, and raise a `DefinitionError` for what is wrong then."""

    def vertex(self, name: str) -> Vertex:
        """What the graph has to know of this node, under the name it has there."""
        on_error = self.on_error if self.on_error in ("fail", "skip") else "then"
        sets = self.evaluates, self.chooses
        return Vertex(name, self.kind, self.join, on_error, self.transparent, self.container, *sets)

    def edges(self, name: str) -> Iterator[Edge]:
        """The edges into it from `needs` and from what it reads, and those out of it by routes and `on_error`."""
        for source in (*self.needs, *self.reads):
            yield Edge(source, name)
        for label, target in self.routes.items():
            if target is not None:
                yield Edge(name, target, label)
        if self.on_error not in ("fail", "skip"):
            yield Edge(name, self.on_error, ON_ERROR)

    @property
    def code(self) -> Sequence[Any]:
        """The functions of the author's that it calls."""
        return ()

    def read_code(self) -> CodeReading | None:
        """What its definition leaves open: the code that it calls, and of a node built in Python all that it is."""
        if self.says_its_definition and not self.code:
            return None
        from flowengine.nodes.code_reading import read_code  # Most flow files call no code.

        if self.says_its_definition:
            return read_code(self.code)
        return read_code([self.when, self.set or None, *self.code, *self.identity()])

    @property
    def default_model(self) -> DefaultModel | None:
        """The model that the environment gives to an agent in it that names none; None where each names its own."""
        return None

    @property
    def says_its_definition(self) -> bool:
        """Whether its fingerprint is made from a file, and so knows nothing of the code that it calls."""
        return self._fingerprint is not None

    def identity(self) -> Sequence[Any]:
        """Returns what identifies a node built in Python, beside its place in the graph: its class and what it holds.

        Kinds of our own name what counts; code among it is read with all that it leads to.
        """
        return (type(self), {name: each for name, each in vars(self).items() if name not in _OF_EVERY_NODE})

    @property
    def fingerprint_source(self) -> Sequence[Any] | str:
        """The definition from which the node's fingerprint is hashed; one built in Python has its code beside it."""
        if self._fingerprint is not None:
            return self._fingerprint()
        place = (self.kind, self.needs, self.join, self.on_error, self.timeout, sorted(self.routes.items()))
        return (*place, self.version)

    def defined_with(self, more: str) -> Self:
        """This node with another fingerprint, since something stands in it that its definition does not say."""
        changed, source = copy(self), self.fingerprint_source
        changed._fingerprint = lambda: f"{source} {more}"
        return changed


def check_result(result: NodeResult, node: FlowNode) -> None:
    """Raise for a result, made by an author's code, that the engine could not use: a field of another kind, a route
    that its node does not have."""
    _, state, route, _, routing, evaluation, prompt, _, kept_values, digest = result
    if route is routing is evaluation is prompt is kept_values is digest is None and (
        state is None or _has_text_keys(state)
    ):
        return  # Reading the annotations would take as long as the rest of a node's run.
    check_arguments(NodeResult, result._asdict(), lambda problem: RunError(f"NodeResult: {problem}"))
    routes = node.routes
    if result.route is None or result.route in routes:
        return
    hint = f"routes are: {', '.join(routes)}" if routes else "kind has no routes; a condition chooses between routes"
    raise RouteError(f"NodeResult(route={result.route!r:.60}): the node's {hint}{did_you_mean(result.route, routes)}")


def _has_text_keys(state: Any) -> bool:
    if not isinstance(state, dict):
        return False
    for key in cast("dict[Any, Any]", state):  # noqa: SIM110 - a generator costs as much as all the rest
        if type(key) is not str:
            return False
    return True


def _arguments_of(kind: type[FlowNode]) -> list[str]:
    """Returns the arguments of a node kind: its own, and the settings of every node."""
    own = signature(kind).parameters.values()
    return [*(each.name for each in own if each.kind is not Parameter.VAR_KEYWORD), *NodeSettings.__annotations__]
