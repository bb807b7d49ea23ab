"""Defines what a tool is to a model: a name, a schema, and a call that always answers.

It knows names, effects, time limits, and how a failure becomes a result that the model can read and
mend. It knows neither Python functions (`flowengine.tools.function_tool`) nor servers
(`flowengine.tools.mcp.client`): both are a `run` handed to a `Tool`. Recording a call and asking for a
person's consent belong to the caller, which finds the tool's `effect` here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import anyio

from flowengine.errors import DefinitionError, refuse_other_kind
from flowengine.tools.result_text import cut, error_text

__all__ = ["DEFAULT_TIMEOUT", "Effect", "Tool", "ToolResult", "failed_result"]

Effect: TypeAlias = Literal["none", "idempotent", "external"]
"""What calling it twice does: nothing more, nothing worse, or a second deed in the world."""

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds that a call may take where nothing else is said."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolResult(NamedTuple):
    """The result of a call."""

    text: str
    """What the model sees; of bounded length."""
    value: Any = None
    """The raw value, for hooks and the record; None of an error."""
    is_error: bool = False
    files: tuple[Any, ...] = ()
    """Files beside the value: bytes as they came, or the run's files that were made of them."""


def failed_result(text: str) -> ToolResult:
    """A result that says what went wrong, for the model to mend.

    >>> failed_result("no such city")
    ToolResult(text='no such city', value=None, is_error=True, files=())
    """
    return ToolResult(cut(text), is_error=True)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a model may call."""

    name: str
    """As vendors allow: 1 to 64 of ASCII letters, digits, `_` and `-`."""
    description: str
    """When and how to use it, for the model."""
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments: an object."""
    run: Callable[[Mapping[str, Any]], Awaitable[ToolResult]] = field(repr=False)
    """What a call does. `call` is what callers use: it bounds the time and catches what is raised."""
    effect: Effect = "none"
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds that a call may take; None for as long as it likes."""
    function: Callable[..., Any] | None = field(default=None, repr=False)
    """The function behind it, where it is one of the author's."""
    approve: bool | None = None
    """Whether a person is asked before each call. None: where the agent, or the project for what is `external`, says
    so; False: not for the project's sake."""
    qualified: str = ""
    """Of a server's tool `server.tool`, as flow files name it."""
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
            known = ", ".join(get_args(Effect))
            raise DefinitionError(f"tool '{self.name}': effect {self.effect!r} is none of {known}")
        seconds = self.timeout
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise DefinitionError(f"tool '{self.name}': timeout is {seconds!r}; seconds above 0 are expected")
        if self.approve not in (None, True, False):
            raise DefinitionError(f"tool '{self.name}': approve is True or False, not {self.approve!r}")

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call it. Whatever goes wrong is a result with `is_error`; only cancellation passes through."""
        with anyio.move_on_after(self.timeout):
            try:
                return await self.run(arguments)
            # SystemExit too: a tool that ends with sys.exit() must not end the run.
            except (Exception, SystemExit) as error:
                return failed_result(f"tool '{self.name}' failed: {error_text(error)}")
        doubt = "; whether it took effect is unknown" if self.effect == "external" else ""
        return failed_result(f"tool '{self.name}' did not answer within {self.timeout:g} s and was given up{doubt}")

    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's function format has it, which every vendor's adapter reads."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}
