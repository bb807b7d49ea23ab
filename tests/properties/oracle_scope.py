"""What a node of a level sees, for the oracle: names in expressions, and the context that a function gets ."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.properties.oracle_expressions import Absent, ExpressionError, Unclear, evaluate, render
from tests.properties.oracle_nodes import PASSED_ON
from tests.properties.oracle_state import Writes, fold, joined

if TYPE_CHECKING:
    from tests.properties.oracle import Level

__all__ = ["Library", "Outcome", "Scope"]

CONTAINERS = frozenset({"map", "loop", "subflow"})


@dataclasses.dataclass
class Outcome:
    """What became of a node."""

    status: str
    output: Any = None
    cause: str | None = None
    result: Any = None
    """What it hands on as `result`."""
    routing: Any = None
    evaluation: Any = None
    prompt: str | None = None
    generation: Any = None
    taken: str | None = None
    """The node that its route leads to."""
    writes: Writes = dataclasses.field(default_factory=dict[str, Any])
    failed_behind: bool = False
    """Skipped, and a failure is behind that."""
    handled: bool = False
    """Failed, and a route leads on from that."""
    sure: bool = True
    free: bool = False
    """Its values depend on how far others came: `join: always` beside a failure, and what is behind it."""


class Library(NamedTuple):
    """What a flow needs beside its text."""

    code: ModuleType
    folder: Path
    answers: Mapping[str, str]
    """Choices of people, by the question's node."""
    think: Callable[[str], str]
    """The model: instructions and input → answer."""


class Scope:
    """What a node sees; for the node None, what sees its whole level (`until`, `carry`, `result`, `outputs`)."""

    def __init__(self, level: Level, node: str | None) -> None:
        self.level, self.node = level, node
        self.seen = list(level.nodes) if node is None else level.ancestors[node]

    @property
    def library(self) -> Library:
        return self.level.library

    @property
    def path(self) -> str:
        return f"{self.level.prefix}{self.node}"

    @property
    def writes(self) -> Writes:
        """What the nodes that are seen wrote, in the levels around first."""
        here = joined(self.level.outcomes[each].writes for each in self.seen)
        around: Writes = self.level.outer.writes if self.level.outer else {}
        return joined([around, self.level.before, here])

    @property
    def state(self) -> dict[str, Any]:
        return _State(self, fold(self.level.declared, self.writes))

    @property
    def variables(self) -> Mapping[str, Any]:
        return self.level.variables  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def look_up(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        match name:
            case "inputs":
                return self.level.inputs
            case "nodes":
                return {each: _view(each, outcome) for each, outcome in self.nodes_seen()}
            case "shared_state":
                return self.state
            case "result":
                return self.received()
            case "routing_result" | "evaluation_result":
                last = self.last(name.removesuffix("_result"))
                return Absent(name, skipped=True) if last is None else last
            case _:
                raise Unclear(f"what {name} is")

    def received(self) -> Any:
        """The `result` of the one live predecessor (rule 7)."""
        parents = self.level.parents[self.node or ""]
        live = [each for each in parents if self.level.outcomes[each].status == "succeeded"]
        if len(live) != 1:
            raise Unclear(f"which result {self.node} receives of {live}")
        result = self.level.outcomes[live[0]].result
        return Scope(self.level, live[0]).received() if result is PASSED_ON else result

    def last(self, field: str) -> Any:
        """The engine's own value of the last live ancestor that set it (rule 8)."""
        setters = [each for each in self.seen if self._could_set(each, field)]
        for first, second in itertools.pairwise(setters):
            if first not in self.level.ancestors[second]:
                raise Unclear(f"which of {setters} set {field} last")
        for each in reversed(setters):
            outcome = self.level.outcomes[each]
            if field in ("evaluation", "routing") and (outcome.status == "failed" or outcome.cause == "error"):
                raise ExpressionError(f"the {field} {each} failed")
            if getattr(outcome, field) is not None:
                return getattr(outcome, field)
        return self.level.outer.last(field) if self.level.outer else None

    def _could_set(self, node: str, field: str) -> bool:
        spec = self.level.nodes[node]
        kind = spec.get("type", "agent")
        if kind in CONTAINERS:
            raise Unclear(f"whether {node} sets {field}")
        if field == "evaluation":
            return kind == "evaluation" or "evaluate" in spec
        return (kind == "agent" and (field != "routing" or "routing" in spec)) or (kind == "routing" and field == kind)

    def nodes_seen(self) -> Iterator[tuple[str, Outcome]]:
        """Every node that is seen, those of the levels around included."""
        if self.level.outer:
            yield from self.level.outer.nodes_seen()
        yield from ((each, self.level.outcomes[each]) for each in self.seen)

    def evaluate(self, expression: str) -> Any:
        return evaluate(expression, self.look_up)

    def render(self, template: Any) -> Any:
        return render(template, self.look_up)

    def inside(self, suffix: str, spec: Mapping[str, Any], variables: Mapping[str, Any], before: Writes) -> Level:
        """A level inside this node, evaluated."""
        return self.level.inside(self, suffix, spec, variables, before)

    def subflow(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The outputs of another file."""
        return self.level.subflow(self, spec)

    def call(self, name: str, arguments: Mapping[str, Any] | None, *given: Any) -> Any:
        """What a function of the library returns; nothing of it is shared with anyone."""
        function = getattr(self.library.code, name.partition(":")[2])
        context = {"context": View(self)} if "context" in inspect.signature(function).parameters else {}
        try:
            returned = function(*deepcopy(given), **deepcopy(dict(arguments or {})), **context)
            if inspect.isawaitable(returned):
                returned = _waited(returned)
        except (Unclear, ExpressionError):
            raise
        except Exception as error:
            raise ExpressionError(f"{type(error).__name__}: {error}") from error
        return deepcopy(returned)


class _State(dict[str, Any]):
    """Shared state, which also shows two values of the engine's own (rule 8)."""

    def __init__(self, scope: Scope, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._scope = scope

    def __contains__(self, key: object) -> bool:
        return key in ("_last_prompt", "_last_generation") or super().__contains__(key)

    def __missing__(self, key: str) -> Any:
        last = self._scope.last(key.removeprefix("_last_"))
        return Absent(key, skipped=True) if last is None else last


def _view(name: str, outcome: Outcome) -> Mapping[str, Any]:
    """A node as expressions see it (rules 9 and 15)."""
    if outcome.status == "succeeded":
        return {"status": "succeeded", "output": outcome.output, "error": None}
    absent = Absent(name, skipped=True)
    return {"status": outcome.status, "output": absent, "result": absent}


class View:
    """The context that a function gets."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def inputs(self) -> Mapping[str, Any]:
        return deepcopy(dict(self._scope.level.inputs))

    @property
    def shared_state(self) -> Mapping[str, Any]:
        return deepcopy(dict(self._scope.state))

    @property
    def prev_outputs(self) -> Mapping[str, Any]:
        return deepcopy({name: each.output for name, each in self._scope.nodes_seen() if each.status == "succeeded"})

    @property
    def result(self) -> Any:
        return deepcopy(self._scope.received())

    @property
    def variables(self) -> Mapping[str, Any]:
        return deepcopy(self._scope.variables)


def _waited(coroutine: Any) -> Any:
    """What a coroutine returns that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise Unclear("what a function gives that waits")
