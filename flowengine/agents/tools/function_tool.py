"""Makes a tool of a Python function: its schema from signature, type hints and docstring, and its calls.

It knows Python functions only. Arguments are validated and converted by pydantic before the function
sees them; what the model got wrong is said in the result, so that it can mend it. An async function
runs on the loop. A plain one runs in a thread, and a thread cannot be stopped: on a timeout or a
cancellation it is left behind, and what it returns is dropped. It runs on while the process lives, whose end
may cut it off in the middle: give what waits for the outside world a time limit of its own.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast, overload

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from flowengine.agents.tools import docstring
from flowengine.agents.tools.result_text import cut, error_text, text_of
from flowengine.agents.tools.tool import DEFAULT_TIMEOUT, Effect, Tool, ToolResult, failed_result
from flowengine.core import Context, call_in_thread
from flowengine.errors import DefinitionError, did_you_mean, refuse_other_kind

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__flowengine_tool__"
_MAX_PROBLEMS: Final = 10


class _Settings(NamedTuple):
    """The decorator's settings of a function; None leaves the choice to `tool_of`."""

    name: str | None = None
    effect: Effect | None = None
    timeout: float | None = None
    approve: bool | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect | None = None,
    timeout: float | None = None,
    approve: bool | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect | None = None,
    timeout: float | None = None,
    approve: bool | None = None,
) -> F | Callable[[F], F]:
    """Mark a function with what `tool_of` shall take over; it stays the function that it is.

    `approve`: a person is asked before each call (`Tool.approve`).

    >>> @tool(effect="external")
    ... def send(text: str) -> None: ...
    >>> tool_of(send).effect
    'external'
    """

    def mark(marked: F) -> F:
        setattr(marked, _MARK, _Settings(name, effect, timeout, approve))
        return marked

    return mark if function is None else mark(function)


def tool_of(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    effect: Effect | None = None,
    timeout: float | None = None,
) -> Tool:
    """The tool that calls `function`; what is not given comes from its `@tool` mark, else a default.

    A `DefinitionError` where a model could not call it: no name, a variable number of arguments, or
    a parameter whose type no JSON Schema describes.

    >>> def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> tool_of(add).parameters["required"]
    ['a']
    """
    refuse_other_kind(function, Callable, "a tool is made of a function", DefinitionError)
    marked: _Settings = getattr(function, _MARK, _Settings())
    name = marked.name if name is None else name
    timeout = marked.timeout if timeout is None else timeout
    called = getattr(function, "__name__", None) or type(function).__name__ if name is None else name
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"tool '{called}' is a generator, whose code runs only while it is read: return a list")
    described = docstring.parse(_docstring_of(function))
    arguments = _Arguments(called, function, described.parameters)
    return Tool(
        name=called,
        description=described.description,
        parameters=arguments.schema,
        run=_Run(function, arguments),
        function=function,
        effect=effect or marked.effect or "none",
        timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
        approve=marked.approve,
        check=arguments.problem,
    )


def _docstring_of(function: Callable[..., Any]) -> str | None:
    """The docstring; of an object that is called, its `__call__`'s or its class's."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function.__doc__
    return type(function).__call__.__doc__ or type(function).__doc__


class _Run:
    """The call of a function tool."""

    def __init__(self, function: Callable[..., Any], arguments: _Arguments) -> None:
        self._function = function
        self._arguments = arguments
        called: Any = getattr(function, "__call__", None)  # noqa: B004 - its kind is asked for, not whether it is there
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)

    async def __call__(self, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            values = self._arguments.validate(arguments)
        except ValidationError as error:
            return failed_result(self._arguments.describe_problems(error))
        value = await self._value(functools.partial(self._function, **values))
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise TypeError("it gave a generator, whose code runs only while it is read: return a list")
        return ToolResult(text_of(value), value)

    async def _value(self, call: Callable[[], Any]) -> Any:
        if self._is_async:
            return await call()
        value = await call_in_thread(call)
        return await value if inspect.isawaitable(value) else value


class _Schema(GenerateJsonSchema):
    """JSON Schema without titles made from the names, which tell a model nothing new."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _Arguments:
    """The arguments of one function: their schema, their validation, and what was wrong with them."""

    def __init__(self, tool_name: str, function: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        self._tool = tool_name
        self._names = _read_parameters(tool_name, function)
        hints = _read_hints(tool_name, function)
        # Fields are numbered and carry the real name as an alias: a parameter may be called `schema` or `_x`.
        shapes: dict[str, Any] = {
            f"p{number}": (hints.get(name, Any), _make_field(parameter, descriptions.get(name)))
            for number, (name, parameter) in enumerate(self._names.items())
        }
        try:
            self._model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **shapes)
            self.schema = self._model.model_json_schema(schema_generator=_Schema)
        except PydanticUserError as error:
            odd = next((name for name, hint in hints.items() if name in self._names and hint is Context), None)
            if odd is not None:
                problem = f"tool '{tool_name}': its parameter '{odd}' is a Context, which no model can give"
                raise DefinitionError(f"{problem}; a node of `type: function` gets one") from error
            raise DefinitionError(
                f"tool '{tool_name}': its parameters cannot be described to a model: {cut(str(error), 300)}"
            ) from error
        self.schema.pop("title", None)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Converted values by parameter; what was not given is left to the function's own default."""
        instance: BaseModel = self._model.model_validate(dict(arguments))
        names = dict(zip(self._model.model_fields, self._names, strict=True))
        return {name: getattr(instance, field) for field, name in names.items() if field in instance.model_fields_set}

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """Describes what is wrong with the arguments; None if they are valid."""
        try:
            self.validate(arguments)
        except ValidationError as error:
            return self.describe_problems(error)
        return None

    def describe_problems(self, error: ValidationError) -> str:
        """Describes the problems, one per line, and what is expected."""
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [f"- {self._problem(each['type'], each['loc'], each['msg'])}" for each in problems[:_MAX_PROBLEMS]]
        if len(problems) > _MAX_PROBLEMS:
            lines.append(f"- and {len(problems) - _MAX_PROBLEMS} more")
        expected = ", ".join(self._names) or "none"
        return "\n".join([f"wrong arguments for tool '{self._tool}':", *lines, f"expected arguments: {expected}"])

    def _problem(self, kind: str, place: tuple[int | str, ...], message: str) -> str:
        where = ".".join(cut(str(part), 100) for part in place)
        if kind == "extra_forbidden" and len(place) == 1:
            return f"'{where}' is unknown{did_you_mean(where, self._names)}"
        return f"'{where}' is missing" if kind == "missing" else f"'{where}': {cut(message, 300)}"


def _read_parameters(tool_name: str, function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"tool '{tool_name}': the function has no signature to read; wrap it in one") from error
    for name, parameter in parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(
                f"tool '{tool_name}': parameter '{name}' is {parameter.kind.description}; "
                f"a model gives each argument by its name"
            )
    return dict(parameters)


def _read_hints(tool_name: str, function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    source = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isclass(function):
        source = function.__init__
    try:
        return typing.get_type_hints(source, include_extras=True)
    except (NameError, TypeError) as error:
        raise DefinitionError(f"tool '{tool_name}': its type hints cannot be read: {error_text(error, 300)}") from error


def _make_field(parameter: inspect.Parameter, description: str | None) -> FieldInfo:
    """Required, or with a default that the schema shows where it is JSON."""
    settings: dict[str, Any] = {"alias": parameter.name}
    if description:  # else what an Annotated[..., Field(description=...)] says stays
        settings["description"] = description
    if parameter.default is not parameter.empty:
        default = parameter.default
        plain = default is None or type(default) in (str, int, float, bool)
        # A factory keeps other defaults out of the schema, where they would only fit with a warning.
        settings |= {"default": default} if plain else {"default_factory": lambda: default}
    return cast(FieldInfo, Field(**settings))
