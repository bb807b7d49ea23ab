"""Every error that FlowEngine raises on purpose, drawn as one tree.

    FlowEngineError
    ├── DefinitionError            the definition is wrong; nothing has run
    │   ├── FlowError              a flow file or a Flow built in Python (holds diagnostics)
    │   ├── MisplacedKeyError      a key of a node that does not go with what the node names
    │   ├── FlowNotFoundError      no flow of that name is known here
    │   ├── InputError             the inputs given to a run do not fit the flow
    │   ├── ProjectError           the project file
    │   ├── ModelConfigError       no key, an unknown provider, an unusable model setting
    │   └── TemplateSyntaxError    a template or an expression that does not parse
    ├── RunError                   this run went wrong
    │   ├── NodeError              a node failed (holds the node's path and the cause)
    │   ├── InactiveError          an effect outside, or a question, in a run that does and asks nothing
    │   ├── UnknownEffectError     a request went out, no answer came: it may have taken effect
    │   ├── NodeTimeoutError       a node took longer than its timeout
    │   ├── TemplateError          a template or an expression failed while it was evaluated
    │   ├── StateError             a write that no rule allows: undeclared key, wrong type
    │   │   └── StateConflictError two unordered nodes wrote one key that has no merge rule
    │   ├── AmbiguousResultError   `result` asked for where several predecessors are live
    │   ├── RouteError             an answer that matches no declared route, and no fallback
    │   ├── OutputError            an output that does not fit its declared shape
    │   ├── GuardrailError         a guardrail refused a value
    │   ├── ModelError             a model call failed
    │   │   ├── TransientModelError    may work when tried again (rate limit, timeout, 5xx)
    │   │   └── PermanentModelError    will not (auth, bad request)
    │   └── LimitError             a limit of the run was reached
    ├── PictureError               a picture cannot be drawn as asked
    └── JournalError               the record of runs
        ├── NotJournalableError    a value that cannot be written down and read back
        ├── RunNotFoundError       no run of that id, or several that start with it
        ├── StoreUnavailableError  locked, read-only, or not to be opened
        │   ├── RunBusyError           somebody else writes the run
        │   └── SupersededError        another process goes on with the run by now
        ├── StoreCorruptError      truncated or not a store at all
        ├── StoreVersionError      written by a newer FlowEngine
        ├── FlowChangedError       the flow was edited since the run started
        ├── EffectPendingError     an external tool's call was interrupted, and a person has to decide
        └── ApprovalError          an answer to an approval that cannot be taken

Messages say what was found, where, what was expected, and the nearest known name.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "AmbiguousResultError",
    "ApprovalError",
    "DefinitionError",
    "Diagnostic",
    "EffectPendingError",
    "FlowChangedError",
    "FlowEngineError",
    "FlowError",
    "FlowNotFoundError",
    "GuardrailError",
    "InactiveError",
    "InputError",
    "JournalError",
    "LimitError",
    "ModelConfigError",
    "ModelError",
    "NodeError",
    "NodeTimeoutError",
    "NotJournalableError",
    "OutputError",
    "PermanentModelError",
    "PictureError",
    "ProjectError",
    "RouteError",
    "RunBusyError",
    "RunError",
    "RunNotFoundError",
    "StateConflictError",
    "StateError",
    "StoreCorruptError",
    "StoreUnavailableError",
    "StoreVersionError",
    "SupersededError",
    "TemplateError",
    "TemplateSyntaxError",
    "TransientModelError",
    "did_you_mean",
    "find_attribute",
    "find_nearest",
    "unknown_argument",
]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest known name as the end of a message, or the empty string.

    >>> did_you_mean("publsh", ["publish", "improve"])
    "; did you mean 'publish'?"
    >>> did_you_mean("zebra", ["publish", "improve"])
    ''
    """
    nearest = find_nearest(name, [each for each in known if each != name])  # Known elsewhere, and not here.
    return "" if nearest is None else f"; did you mean '{nearest}'?"


def find_nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name that is most like this one in any case of letters, as far as one is like enough (0.0 to 1.0).

    Of one or two letters the first has to be the same: `on` is no misspelt `join`.

    >>> find_nearest("OpenAI", ["azure", "openai"]), find_nearest("gest", ["Guest", "guest"])
    ('openai', 'guest')
    """
    from difflib import get_close_matches

    first = name[:1].casefold() if len(name) <= 2 else ""
    names = [each for each in known if each.casefold().startswith(first)]
    nearest = get_close_matches(name.casefold(), {each.casefold() for each in names}, n=1, cutoff=likeness)
    alike = [each for each in names if nearest and each.casefold() == nearest[0]]
    return next(iter(get_close_matches(name, alike, n=1, cutoff=0.0)), None)


def refuse_other_kind(value: Any, kind: Any, expected: str, error: type[FlowEngineError]) -> None:
    """Raise `error` where an argument is of no such kind, which a program without a type checker does not know before.

    >>> refuse_other_kind([], dict, "inputs are a mapping", InputError)
    Traceback (most recent call last):
    flowengine.errors.InputError: inputs are a mapping, not list
    """
    if not isinstance(value, kind):
        raise error(f"{expected}, not {type(value).__name__}")


def _find_foreign(owner: str, name: str, names: Iterable[str]) -> str | None:
    from flowengine.foreign_names import find_foreign_argument  # Only a wrong argument needs the table.

    return find_foreign_argument(owner, name, names)


def unknown_argument(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Makes the error for an unknown argument of a class or a function.

    >>> unknown_argument("FunctionNode", "retries", ["retry", "timeout"])
    TypeError("FunctionNode has no argument 'retries'; did you mean 'retry'?")
    >>> unknown_argument("Flow.run", "context", ["inputs", "store"])
    TypeError("Flow.run has no argument 'context'; it has inputs, store")
    """
    known = list(known)
    foreign = _find_foreign(owner, name, known)
    hint = f"; {foreign}" if foreign else did_you_mean(name, known) or f"; it has {', '.join(known)}"
    return TypeError(f"{owner} has no argument '{name}'{hint}")


def find_attribute(given: object, name: str, owner: str) -> Any:
    """What a class's `__getattr__` does: an `AttributeError` for a name that the class does not have, with what is
    written instead; an error of a property is raised as it is.

    >>> class Ticket: steps = ()
    >>> find_attribute(Ticket(), "step", "Ticket")
    Traceback (most recent call last):
    AttributeError: 'Ticket' object has no attribute 'step'; did you mean 'steps'?...
    """
    if hasattr(type(given), name):
        return object.__getattribute__(given, name)
    names = [each for each in dir(type(given)) if not each.startswith("_")]
    foreign = None if name.startswith("_") else _find_foreign(owner, name, names)
    hint = f"; {foreign}" if foreign else did_you_mean(name, names)
    raise AttributeError(f"'{type(given).__name__}' object has no attribute '{name}'{hint}", name=name, obj=given)


def names_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose refusal of a keyword that it does not have names the nearest one that it has, and whose
    refusal of too many values says which it takes without a keyword."""
    parameters = inspect.signature(function).parameters
    kinds = {name: each.kind for name, each in parameters.items()}
    argument_names = [name for name in kinds if name != "self"]
    placed = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    needed = [name for name in placed if parameters[name].default is inspect.Parameter.empty]
    takes_others = inspect.Parameter.VAR_KEYWORD in kinds.values()
    owner = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        if len(args) > len(placed):
            values = ", ".join(each for each in placed if each != "self")
            surplus = ", ".join(reprlib.repr(each) for each in args[placed[:1] == ["self"] :])
            raise TypeError(
                f"{owner} takes {values} without a keyword, and found {surplus}; write the rest as name=value"
            )
        for name in keywords:
            if name not in argument_names and not (takes_others and _find_foreign(owner, name, argument_names) is None):
                raise unknown_argument(owner, name, argument_names)
        missing = [each for each in needed[len(args) :] if each not in keywords]
        if missing:
            raise TypeError(f"{owner} needs {', '.join(missing)}, and found {', '.join(keywords) or 'nothing more'}")
        return function(*args, **keywords)

    if not inspect.iscoroutinefunction(function):
        return call

    @wraps(function)
    async def wait(*args: P.args, **keywords: P.kwargs) -> Any:
        return await cast("Awaitable[Any]", call(*args, **keywords))

    return cast("Callable[P, R]", wait)


def names_fields(kind: type[R]) -> type[R]:
    """The dataclass, whose refusal of a field that it does not have names those that it has, as `names_arguments`."""
    kind.__init__ = names_arguments(kind.__init__)
    return kind


class FlowEngineError(Exception):
    """The root: catch this to catch everything that FlowEngine raises on purpose.

    All of them can be sent to other processes, with their attributes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_again, (type(self), self.args), self.__dict__


def _make_again(kind: type[FlowEngineError], args: tuple[Any, ...]) -> FlowEngineError:
    """An error as pickle and `copy` have it; what its class makes of its arguments was made before."""
    return kind.__new__(kind, *args)


# --- the definition is wrong ------------------------------------------------------------------


class DefinitionError(FlowEngineError):
    """The definition is wrong; nothing has run."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem of a flow, with its place.

    >>> str(Diagnostic("FE203", "unknown target 'publsh'", "a.yaml", 22, 10, node="pick"))
    "a.yaml:22:10: FE203 node 'pick': unknown target 'publsh'"
    """

    code: str
    """Stable code, `FE` and three digits."""
    message: str
    """What was found and what was expected, without the place."""
    file: str | None = None
    """Path as the user gave it; None for a flow built in Python."""
    line: int | None = None
    """1-based."""
    column: int | None = None
    """1-based, in characters."""
    node: str | None = None
    """Path of the node that the problem belongs to."""
    hint: str = ""
    """The end of the message: the nearest known name, or what to write instead."""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        place = place.replace("\n", "\\n")  # One line, whatever the file is called.
        where = f"node '{self.node}': " if self.node else ""
        kind = "warning " if self.severity == "warning" else ""
        return f"{place + ': ' if place else ''}{kind}{self.code} {where}{self.message}{self.hint}"


class FlowError(DefinitionError):
    """A flow cannot be built; `diagnostics` holds every problem, sorted by position."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(str(each) for each in self.diagnostics))


class MisplacedKeyError(DefinitionError):
    """A key of a node whose value does not go with what the node names; `at`: the key's place below the node."""

    def __init__(self, message: str, at: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.at = at


class FlowNotFoundError(DefinitionError):
    """No flow of that name is known here."""


class InputError(DefinitionError):
    """The inputs given to a run do not fit the flow: missing, unknown, or of the wrong type."""


class ProjectError(DefinitionError):
    """The project file is wrong, or it forbids what a flow asks for. `code` as in diagnostics, where there is one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(f"{code} {message}" if code else message)
        self.message = message
        self.code = code


class ModelConfigError(DefinitionError):
    """No key, an unknown provider, or an unusable model setting."""


class TemplateSyntaxError(DefinitionError):
    """A template or an expression does not parse, or uses what is not allowed.

    `line` and `column` are 1-based and relative to the template's own text.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


# --- this run went wrong ------------------------------------------------------------------------


LONGEST_WAIT: Final = 300.0
"""Seconds. A server that asks to wait longer is not asked again."""


class RunError(FlowEngineError):
    """This run went wrong."""

    retry_after: float | None = None
    """Seconds that a server asked to wait before another attempt, where one did."""


class NodeError(RunError):
    """A node failed; `node` is its path, the cause is chained."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"node '{node}': {message}")
        self.node = node
        self.message = message


class InactiveError(RunError):
    """Something would have an effect outside, or ask a person, in a run that does neither."""


class UnknownEffectError(RunError):
    """A request went out and no answer came: whether it took effect is not known."""


def may_have_arrived(error: BaseException | None) -> bool:
    """Tells whether an error, or what caused it, says that an exchange with the outside broke off after it had begun.

    >>> [may_have_arrived(each()) for each in (ConnectionResetError, ConnectionRefusedError, KeyError)]
    [True, False, False]
    """
    visited: list[BaseException] = []
    while error is not None and error not in visited:
        if isinstance(error, ConnectionRefusedError):
            return False
        if isinstance(error, UnknownEffectError | TimeoutError | ConnectionError):
            return True
        visited.append(error)
        error = error.__cause__ or error.__context__
    return False


class CallRefusedError(RunError):
    """A person refused the call of a tool that a node consists of."""


class NodeTimeoutError(RunError):
    """A node took longer than its timeout and was cancelled."""


class TemplateError(RunError):
    """A template or an expression failed while it was evaluated."""


class OverdueError(TemplateError):
    """An evaluation was ended because its task is past a deadline: that task is about to be cancelled."""


class StateError(RunError):
    """A write to shared state that no rule allows: an undeclared key or a wrong type."""


class StateConflictError(StateError):
    """Two nodes without a path between them wrote one key that has no merge rule, or changed one typed context."""

    def __init__(self, key: str, writers: tuple[str, str], is_context: bool = False) -> None:
        """`is_context`: whether `key` is the id of a typed context."""
        first, second = writers
        what = f"typed context '{key}' was changed" if is_context else f"shared state key '{key}' was written"
        way = 'declare `merge = "changes"` in its class' if is_context else "give the key a `merge` rule"
        super().__init__(
            f"{what} by '{first}' and by '{second}', and neither comes before the other; "
            f"order them with `needs`, or {way}"
        )
        self.key = key
        self.writers = writers


class AmbiguousResultError(RunError):
    """`result` was asked for where several predecessors are live; name the node instead."""


class RouteError(RunError):
    """An answer matches no declared route and there is no fallback."""


class OutputError(RunError):
    """An output does not fit its declared shape (the `invalid_output` of retries)."""


class GuardrailError(RunError):
    """A guardrail refused a value; the message names the guardrail."""


class ModelError(RunError):
    """A model call failed."""

    reply: Any = None
    """The answer that came all the same (a refusal): it is no answer to what was asked, and it is on the bill."""
    status: int | None = None
    """The HTTP status that the vendor's server answered with; None where no answer came."""
    unanswered: int = 0
    """Attempts that were sent and neither answered nor refused: the vendor may bill them."""


class TransientModelError(ModelError):
    """May work when tried again: rate limit, timeout, connection, 5xx."""

    def __init__(self, message: str, retry_after: float | None = None, *, is_rate_limit: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.is_rate_limit = is_rate_limit
        """Whether the vendor had too many requests (429): others who ask it had better wait, too."""
        self.is_timeout = False
        """Whether it came too late, or not at all: another one is likely to."""


class PermanentModelError(ModelError):
    """Will not work when tried again: authentication, bad request, refused content."""


class LimitError(RunError):
    """A limit of the run, or of a part of it, was reached: cost, tokens, model calls or time."""

    reply: Any = None
    """What the models of a call took before the limit refused to ask another one, as of a `ModelError`."""
    unanswered: int = 0
    """As of a `ModelError`."""

    def __init__(
        self,
        message: str,
        *,
        part: str | None = None,
        on_limit: str = "fail",
        of: str = "the run",
        limit: str = "",
        needed: float | None = None,
        ledger: object = None,
    ) -> None:
        super().__init__(message)
        self.part = part
        """Path of the part; the run itself: empty."""
        self.on_limit = on_limit
        self.of = of
        """The part, as the message names it."""
        self.limit = limit
        """The limit's key: `cost_usd`, `tokens`, `model_calls` or `timeout`; empty where it is not said."""
        self.needed = needed
        """What the limit would have to be for the call that it refused; None where no call was refused."""
        self.ledger = ledger
        """Where the spending of the part is kept (`flowengine.core.budget.Ledger`); None for a limit of time."""

    def __reduce__(self) -> tuple[Any, ...]:
        make, args, attributes = super().__reduce__()
        return make, args, {**attributes, "ledger": None}  # It belongs to the run, and with it to this process.


class PictureError(FlowEngineError):
    """A picture cannot be drawn as asked: an unknown format, or `dot` missing, failing or too slow."""


# --- the record of runs ---------------------------------------------------------------------------


class JournalError(FlowEngineError):
    """The record of runs cannot be read or written."""

    ends_run: bool = False
    """Whether it ends the run that meets it, also where that calls an author's code, as the limits of models do that
    workers share: without them no model may be asked."""


class ApprovalError(JournalError):
    """An answer to an approval that cannot be taken: there is no such question, or choice or form do not fit."""


class NotJournalableError(JournalError):
    """A value that cannot be written down and read back as it was."""


class RunNotFoundError(JournalError):
    """No run has that id, or several runs start with it."""


class StoreUnavailableError(JournalError):
    """The store is locked, read-only or cannot be opened."""


class RunBusyError(StoreUnavailableError):
    """A run is being written by somebody else; `writer` names who."""

    def __init__(self, message: str, writer: str = "another process") -> None:
        super().__init__(message)
        self.writer = writer


class SupersededError(StoreUnavailableError):
    """Another process goes on with the run by now: this one begins nothing more of it."""


class StoreCorruptError(JournalError):
    """The store is truncated, damaged, or not a store at all."""


class StoreVersionError(JournalError):
    """The store was written by a newer FlowEngine."""


class FlowChangedError(JournalError):
    """The flow was edited since the run started; `nodes` names what changed."""

    def __init__(self, message: str, nodes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.nodes = tuple(nodes)


class UndecidedCall(NamedTuple):
    """A call to an external tool whose end is unknown."""

    node: str
    tool: str
    arguments: Mapping[str, Any]
    path: str
    """By which it is decided: the node's, where it is its only one."""


class EffectPendingError(JournalError):
    """Calls to external tools began, and their end is not on record: a person decides before the run goes on.

    `node` (its path), `tool` and `arguments` are those of the first; `calls` holds all of them.
    """

    def __init__(self, run_id: str, calls: Sequence[UndecidedCall]) -> None:
        self.calls = tuple(calls)
        self.node, self.tool, self.arguments, _ = self.calls[0]
        explanation = "; ".join(
            f"{each.path}: tool '{each.tool}', arguments {_cut(each.arguments)}"
            if each.path != each.node
            else f"node '{each.node}', tool '{each.tool}', arguments {_cut(each.arguments)}"
            for each in self.calls
        )
        retry, done = (
            " ".join(f"{option} {each.path}" for each in self.calls) for option in ("--retry-effect", "--assume-done")
        )
        each = "" if len(self.calls) == 1 else "; each may be decided in its own way"
        super().__init__(
            f"run {run_id} has external calls whose end is not known, and so not whether they took effect: "
            f"{explanation}. Look, then say `flowengine resume {run_id} {retry}` to run it again, or "
            f"`flowengine resume {run_id} {done}` to take it as done{each}"
        )


def _cut(arguments: Mapping[str, Any]) -> str:
    text = repr(dict(arguments))
    return text if len(text) <= 200 else f"{text[:199]}…"
