"""Defines what a tool is to a model: a name, a schema, and a call that always answers; checks the arguments of calls.

It knows names, effects, time limits, and how a failure becomes a result that the model can read and
mend. It knows neither Python functions (`flowengine.agents.tools.function_tool`) nor servers
(`flowengine.agents.tools.mcp.server_clients`): both are a `run` handed to a `Tool`. Recording a call and asking for a
person's consent belong to the caller, which finds the tool's `effect` here.

Arguments are checked against the tool's JSON Schema before the tool is called. A server's schema is the server's text:
it is read without its regular expressions, which could take for ever, its references are followed a bounded number of
times and lead nowhere outside, and one that cannot be used checks nothing; then the server itself judges. `jsonschema`
is loaded with the first check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

import anyio

from flowengine.agents.tools.result_text import cut, error_text
from flowengine.core import Secrets, drive_apart, find_secret_values, is_failure
from flowengine.errors import DefinitionError, did_you_mean, may_have_arrived, refuse_other_kind

Effect: TypeAlias = Literal["none", "idempotent", "external"]
"""The effect of a second call: nothing more, nothing worse, or a second deed in the world."""

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds that a call may take where nothing else is said."""

_DOUBT: Final = "; whether it took effect is unknown"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolResult(NamedTuple):
    """The result of a call."""

    text: str
    """The text that the model sees; of bounded length."""
    value: Any = None
    """The raw value, for hooks and the record; None of an error."""
    is_error: bool = False
    files: tuple[Any, ...] = ()
    """Files beside the value: bytes as they came, or the run's files that were made of them."""
    may_have_acted: bool = False
    """Whether the call of an external tool that failed may have taken effect all the same."""


def failed_result(text: str, *, may_have_acted: bool = False) -> ToolResult:
    """A result that says what went wrong, for the model to mend.

    >>> failed_result("no such city")[:3]
    ('no such city', None, True)
    """
    return ToolResult(cut(text), is_error=True, may_have_acted=may_have_acted)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a model may call."""

    name: str
    """The name as providers allow it: 1 to 64 of ASCII letters, digits, `_` and `-`."""
    description: str
    """When and how to use it, for the model."""
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments: an object."""
    run: Callable[[Mapping[str, Any]], Awaitable[ToolResult]] = field(repr=False)
    """The function that a call runs. `call` is what callers use: it bounds the time and catches what is raised."""
    effect: Effect = "none"
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds that a call may take; None for as long as it likes."""
    function: Callable[..., Any] | None = field(default=None, repr=False)
    """The function behind it, where it is one of the author's."""
    approve: bool | None = None
    """Whether a person is asked before each call. None: where the agent, or the project for what is `external`, says
    so; False: not for the project's sake."""
    qualified: str = ""
    """The name `server.tool` of a server's tool, as flow files have it."""
    check: Callable[[Mapping[str, Any]], str | None] | None = field(default=None, repr=False)
    """Says what is wrong with the arguments of a call, without making it."""

    def __post_init__(self) -> None:
        refuse_other_kind(self.name, str, "a tool's name is text", DefinitionError)
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"tool name {self.name!r} is not one that models can call: "
                f"use 1 to 64 of the letters A-Z and a-z, digits, '_' and '-'"
            )
        if self.effect not in get_args(Effect):
            effects = ", ".join(get_args(Effect))
            raise DefinitionError(f"tool '{self.name}': effect {self.effect!r} is none of {effects}")
        seconds = self.timeout
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise DefinitionError(f"tool '{self.name}': timeout is {seconds!r}; seconds above 0 are expected")
        if self.approve not in (None, True, False):
            raise DefinitionError(f"tool '{self.name}': approve is True or False, not {self.approve!r}")

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call it. Whatever goes wrong is a result with `is_error`; only cancellation passes through. What comes after
        the time is up does not count."""
        is_external = self.effect == "external"
        with anyio.move_on_after(self.timeout) as scope:
            try:
                result = await drive_apart(self._run(arguments))
            except BaseException as error:  # A tool that ends with sys.exit() must not end the run.
                if not is_failure(error):
                    raise
                hidden = Secrets(find_secret_values(os.environ))  # Of the author's code: its model reads the error.
                text = f"tool '{self.name}' failed: {hidden.hide(error_text(error))}"
                acted = is_external and may_have_arrived(error)
                result = failed_result(f"{text}{_DOUBT if acted else ''}", may_have_acted=acted)
            if not scope.cancel_called:
                return result
        text = f"tool '{self.name}' did not answer within {self.timeout:g} s and was given up"
        return failed_result(f"{text}{_DOUBT if is_external else ''}", may_have_acted=is_external)

    async def _run(self, arguments: Mapping[str, Any]) -> ToolResult:
        return await self.run(arguments)  # Any awaitable.

    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's function format has it, which every vendor's adapter reads."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


# --- The check of a call's arguments

_MOST_PROBLEMS: Final = 10
_MOST_READ: Final = 100


class ArgumentProblem(NamedTuple):
    """A problem with the arguments of a call."""

    name: str
    """The argument; empty where it is about all of them."""
    text: str
    is_given: bool = True
    """Whether the argument stands there; otherwise it is missing."""


class ArgumentCheck:
    """The arguments that the tool of a schema takes.

    >>> check = ArgumentCheck({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    >>> [each.text for each in check.problems({"citty": 1})]
    ["'city' is missing; did you mean it with 'citty'?"]
    >>> [each.text for each in check.problems({"city": 1})]
    ["'city': 1 is not of type 'string'"]
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)

    @property
    def names(self) -> list[str]:
        """The arguments that the schema names."""
        properties = self._schema.get("properties")
        return [str(each) for each in cast("Mapping[Any, Any]", properties)] if isinstance(properties, Mapping) else []

    def problems(self, arguments: Mapping[str, Any], unknown: Collection[str] = ()) -> list[ArgumentProblem]:
        """Lists a few problems of the arguments. `unknown`: arguments whose values are not known yet."""
        try:
            problems = list(dict.fromkeys(self._find(dict(arguments), unknown)))
        except Exception:  # A schema of somebody else's: what cannot be used checks nothing.
            return []
        return problems[:_MOST_PROBLEMS]

    def explain(self, tool_name: str, problems: Collection[ArgumentProblem]) -> str:
        """The problems as a text, one a line, and what is expected."""
        lines = [f"wrong arguments for tool '{tool_name}':", *(f"- {each.text}" for each in problems)]
        return "\n".join([*lines, f"expected arguments: {cut(', '.join(self.names), 500) or 'none'}"])

    def _find(self, arguments: dict[str, Any], unknown: Collection[str]) -> Iterator[ArgumentProblem]:
        from flowengine.core import find_violations  # Slow to load, and many tools are never called.

        for error in find_violations(self._checker, arguments, _MOST_READ):
            path = [str(each) for each in error.absolute_path]
            if path and path[0] in unknown:
                continue
            if not path and error.validator == "required":
                yield from self._list_missing(error.validator_value, arguments)
            elif not path and error.validator == "additionalProperties" and "patternProperties" not in self._schema:
                for name in arguments.keys() - set(self.names):
                    hint = did_you_mean(name, self.names)
                    yield ArgumentProblem(name, f"'{cut(name, 100)}' is unknown{hint}")
            elif path or not unknown:
                where = f"'{cut('.'.join(path), 100)}': " if path else ""
                yield ArgumentProblem(path[0] if path else "", f"{where}{cut(error.message, 300)}")

    def _list_missing(self, required: Any, arguments: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
        undeclared = [each for each in arguments if each not in self.names]
        for name in required:
            if name not in arguments:
                hint = did_you_mean(str(name), undeclared).replace("did you mean", "did you mean it with")
                yield ArgumentProblem(str(name), f"'{cut(str(name), 100)}' is missing{hint}", is_given=False)

    @cached_property
    def _checker(self) -> Any:
        from jsonschema.validators import Draft202012Validator, validator_for

        from flowengine.core import bounded_validator

        kind: Any = validator_for(self._schema, default=Draft202012Validator)
        kind.check_schema(self._schema)
        return bounded_validator(kind, self._schema)


def checking(
    tool_name: str, schema: Mapping[str, Any], run: Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
) -> Callable[[Mapping[str, Any]], Awaitable[ToolResult]]:
    """The call of a tool, which is not made where its arguments do not fit: the result says what is wrong."""
    check = ArgumentCheck(schema)

    async def call(arguments: Mapping[str, Any]) -> ToolResult:
        problems = check.problems(arguments)
        return failed_result(check.explain(tool_name, problems)) if problems else await run(arguments)

    return call
