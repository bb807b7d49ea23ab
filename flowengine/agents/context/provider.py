"""Declares the context provider: the class that users subclass, with defaults for everything but its text.

It knows fragments, and what a configuration may say of a class: the parameters of its constructor and the paths among
them. It knows no prompt, no budget, no order of providers and no configuration file.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from inspect import Parameter, cleandoc, isawaitable, iscoroutinefunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

from flowengine.core import Fragment, RefusedPathError, call_in_thread, resolve_path, resolve_store
from flowengine.errors import DefinitionError

if TYPE_CHECKING:
    from flowengine.models import Models

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

_RUNS_INLINE: Final = "__flowengine_at_once__"


async def settle(value: T | Awaitable[T]) -> T:
    """Returns the result of a method that may be sync or async."""
    return await value if isawaitable(value) else cast(T, value)


def at_once(method: M) -> M:
    """Marks a plain method that never waits: it is called where it stands, and not in a thread."""
    setattr(method, _RUNS_INLINE, True)
    return method


async def call_method(method: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Calls a user's method; a sync one runs in a thread, so that it does not block the event loop."""
    if iscoroutinefunction(method):
        return await method(*arguments, **keywords)
    if getattr(method, _RUNS_INLINE, False):
        return method(*arguments, **keywords)
    call = partial(method, *arguments, **keywords)
    return await settle(await call_in_thread(call))


def join_fragments(fragments: Iterable[Fragment]) -> str:
    """The fragments as one text, a blank line between them.

    >>> join_fragments([Fragment("a", "files"), Fragment("b", "files")])
    'a\\n\\nb'
    """
    return "\n\n".join(each.text for each in fragments if each.text)


class ContextProvider:
    """Brings text into prompts. Every method may be sync or async; `get_context` is all that must be written.

    A *source* adds a section of its own; a *transform* (`transforms = True`) is given everything so far as
    `previous_context`, and what it returns takes its place.

    >>> class Weather(ContextProvider):
    ...     provider_name = "weather"
    ...     def __init__(self, city: str = "Kyoto") -> None:
    ...         self.city = city
    ...     def get_context(self, query, previous_context=None, **kwargs):
    ...         return f"It rains in {self.city}."
    >>> Weather().get_context("umbrella?")
    'It rains in Kyoto.'
    >>> Weather.get_config_schema()["parameters"]
    {'city': {'type': 'string', 'default': 'Kyoto', 'required': False, 'description': ''}}
    """

    provider_name: ClassVar[str] = ""
    """The name under which it is configured and told of."""
    transforms: ClassVar[bool] = False
    """Whether it replaces everything so far, rather than adding to it."""
    adds: ClassVar[bool] = False
    """Whether what it remembers is a list that only grows, and is kept for good when a run has succeeded. It then has
    `settings` and `commit`, and later nodes of a run see what all before them have added."""
    config_description: ClassVar[str] = ""
    """The description for `get_config_schema`; by default its docstring's first line."""
    config_parameters: ClassVar[Mapping[str, str]] = {}
    """Those parameters of its constructor that a configuration may give, each with a description; by default all."""
    config_example: ClassVar[str] = ""
    """An entry of a YAML list."""
    timeout: float = 30.0
    """Seconds that one call of it may take."""

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        if cls.get_context is ContextProvider.get_context and cls.fragments is ContextProvider.fragments:
            raise DefinitionError(f"the context provider {cls.__name__} has to define get_context, or fragments")
        return super().__new__(cls)

    @classmethod
    def get_config_schema(cls) -> dict[str, Any]:
        """`description`, `parameters` (name → `type`, `default`, `required`, `description`) and a YAML `example`.

        Read off the class: its `config_…`, its docstring and its constructor.
        """
        descriptions = cls.config_parameters
        # An heir's constructor may take `**config` for those that are described already.
        signature_parameters = _parameters_of(
            next((each for each in cls.__mro__ if each.__dict__.get("config_parameters")), cls)
        )
        parameters = {
            name: _describe_parameter(signature_parameters[name], descriptions.get(name))
            for name in descriptions or signature_parameters
        }
        needed = ", ".join(f"{name}: …" for name, each in parameters.items() if each["required"])
        return {
            "description": cls.config_description or cleandoc(cls.__doc__ or "").partition("\n")[0],
            "parameters": parameters,
            "example": cls.config_example or f"- {cls.provider_name}: {{{needed}}}",
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, root: Path | None = None) -> Self:
        """One made from checked parameters. Paths are relative to `root` and stay below it (`locate_path`);
        None: a program's own configuration, in which any path goes."""
        return cls(**config)

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str | Awaitable[str]:
        """Its section for a query; of a transform, what takes the place of `previous_context`.

        `kwargs` carry `agent_name`, the agent's `locale`, `models`, which opens models by name as the agent's own are
        opened, and `gateway`, through which a model is asked so that the call is on record, is paid from the run's
        limits, and is not made again by a run that is resumed. The empty text is no section.
        """
        return self._text_of_fragments(query, previous_context, kwargs)

    def update(self, interaction: Mapping[str, Any]) -> Awaitable[None] | None:
        """Called after each interaction: `user_input`, `result`, `success`, `metadata`, `timestamp`."""

    def clear(self) -> Awaitable[None] | None:
        """Forget what was remembered."""

    def fragments(
        self, query: str, previous: Sequence[Fragment], **kwargs: Any
    ) -> Sequence[Fragment] | Awaitable[Sequence[Fragment]]:
        """The richer road: of a source, its own fragments; of a transform, all that there are then.

        By default made from `get_context`; pinned fragments pass a transform by.
        """
        return self._fragments_of_text(query, previous, kwargs)

    def prepare_models(self, models: Models) -> None:
        """Say now what would fail later (a model whose key is missing), before anything is paid."""

    def fresh(self) -> ContextProvider:
        """One with the same settings and nothing remembered: each run and agent node has its own.

        By default a deep copy; a class that remembers, or holds what cannot be copied, defines its own.
        """
        return deepcopy(self)

    def dump(self) -> Any:
        """Returns the provider's memory as a JSON value, or None."""
        return None

    def load(self, value: Any) -> None:
        """Remember what `dump` gave."""

    def settings(self) -> Mapping[str, Any]:
        """Returns the settings from which `from_config` makes an equal provider, as JSON values with absolute paths."""
        return {}

    def commit(self) -> Awaitable[None] | None:
        """Keep for good what was loaded: the run that it is of has succeeded."""

    async def _fragments_of_text(
        self, query: str, previous: Sequence[Fragment], kwargs: Mapping[str, Any]
    ) -> Sequence[Fragment]:
        loose = [each for each in previous if not each.pinned] if self.transforms else previous
        text: Any = await call_method(self.get_context, query, join_fragments(loose), **kwargs)
        if text is not None and not isinstance(text, str):
            raise TypeError(f"get_context must return text, not {type(text).__name__}")
        own = [Fragment(text, self.provider_name)] if text and text.strip() else []
        return [*(each for each in previous if each.pinned), *own] if self.transforms else own

    async def _text_of_fragments(self, query: str, previous: str | None, kwargs: Mapping[str, Any]) -> str:
        before = [Fragment(previous, "previous_context")] if previous else []
        return join_fragments(await settle(self.fragments(query, before, **kwargs)))


async def fragments_of(
    provider: ContextProvider, query: str, previous: Sequence[Fragment], **kwargs: Any
) -> Sequence[Fragment]:
    """Its fragments, by whichever road its class takes."""
    if type(provider).fragments is ContextProvider.fragments:
        return await settle(provider.fragments(query, previous, **kwargs))  # No thread: it begins at once.
    return await call_method(provider.fragments, query, previous, **kwargs)


# --- The parameters of a constructor

JSON_TYPES: Final[Mapping[str, str]] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "Mapping": "object",
    "Sequence": "array",
}


def _parameters_of(provider: type[Any]) -> dict[str, Parameter]:
    parameters = list(signature(provider.__init__).parameters.values())[1:]
    return {
        each.name: each for each in parameters if each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }


def _describe_parameter(parameter: Parameter, description: str | None) -> dict[str, Any]:
    required = parameter.default is Parameter.empty
    return {
        "type": _name_type(parameter.annotation, is_described=description is not None),
        "default": None if required else parameter.default,
        "required": required,
        "description": description or "",
    }


def _name_type(annotation: Any, *, is_described: bool) -> str:
    """The JSON type of an annotation, `any` where it says nothing that JSON has a word for.

    Of a union the first type counts where a class describes the parameter: what else it takes is for programs.
    """
    type_name = annotation if isinstance(annotation, str) else cast(str, getattr(annotation, "__name__", ""))
    first = type_name.partition(" | ")[0] if is_described else type_name.removesuffix(" | None")
    return JSON_TYPES.get(first.partition("[")[0], "any")


class ParameterError(DefinitionError):
    """A parameter of a provider is wrong; `parameter` is its name, None where it is not one of them alone."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class MissingFileError(ParameterError):
    """A file or folder that is not there, or cannot be read as what it should be."""


class OutsideError(ParameterError):
    """A path that a flow may not name, such as one that leaves its root."""


def locate_path(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """The absolute form of a path; `root` None: relative to the current folder, and any path goes.

    Links are followed before it is judged (`flowengine.core.flow_paths`): one that leads out of the root is outside.

    >>> locate_path("../secrets.txt", Path("/srv/flows"), parameter="file_path")
    Traceback (most recent call last):
    ...
    flowengine.agents.context.provider.OutsideError: the path '../secrets.txt' leaves the project's root /srv/flows
    """
    return _resolve_checked(resolve_path, path, root, parameter)


def located_store(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """Locates, as `locate_path` does, a file that is made and written to."""
    return _resolve_checked(resolve_store, path, root, parameter)


def _resolve_checked(
    resolve: Callable[[str | os.PathLike[str], Path], Path],
    path: str | os.PathLike[str],
    root: Path | None,
    parameter: str,
) -> Path:
    if root is None:
        return Path(path).expanduser().absolute()
    try:
        return resolve(path, root)
    except RefusedPathError as error:
        raise OutsideError(str(error), parameter) from None
