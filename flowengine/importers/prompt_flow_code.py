"""Carries the Python of a Prompt flow: what it imports of promptflow is led to a module of the new project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from flowengine.importers.carried_code import CarriedCode, argument_name, format_import, format_wrapper, module_name
from flowengine.importers.form import CarriedFile
from flowengine.importers.python_code import Import, PythonSource, call_name, decorators_of, parameters_of
from flowengine.importers.source_tree import SourceTree

__all__ = ["EMBEDDING", "EMBEDDING_MODULE", "PARTS", "Function", "PromptFlowCode"]

PARTS: Final = "promptflow_parts"
_CONNECTIONS: Final = frozenset(
    {
        *("AzureOpenAIConnection", "OpenAIConnection", "CustomConnection", "CognitiveSearchConnection"),
        *("SerpConnection", "FormRecognizerConnection", "AzureContentSafetyConnection", "QdrantConnection"),
        *("WeaviateConnection", "ServerlessConnection", "CustomStrongTypeConnection"),
    }
)
_NAMES: Final = frozenset(
    {
        *(
            "tool",
            "trace",
            "start_trace",
            "log_metric",
            "get_logger",
            "Secret",
            "InputSetting",
            "FilePath",
            "PromptTemplate",
        ),
        *("SystemErrorException", "UserErrorException", "Image", "chat"),
        *_CONNECTIONS,
    }
)
"""What the module has that stands in for promptflow."""
_HOMES: Final = re.compile(
    r"promptflow(\.(core(\._connection)?|tracing|connections|_core\.tool|contracts\.(types|multimedia)|exceptions"
    r"|_utils\.logger_utils|(_sdk\.)?entities|tools\.(aoai|openai)))?"
)
PARTS_MODULE: Final = '''\
"""Stands in for the parts of promptflow that the code of this project imports."""

from __future__ import annotations

import base64
import functools
import inspect
import logging
import os
import re
import typing
from pathlib import Path
from typing import Any


class Connection:
    """What code reads of a connection; each value is a variable of the environment: NAME_API_KEY for `api_key`."""

    _named = {"api_key": (), "api_base": (), "endpoint": ()}
    _fixed: dict[str, Any] = {}

    def __init__(self, name: str = "", **values: Any) -> None:
        self.name = name
        self._values = values

    def _prefix(self) -> str:
        return re.sub(r"[^A-Za-z0-9]+", "_", self.name).upper()

    def _items(self) -> dict[str, Any]:
        prefix = f"{self._prefix()}_"
        found = {key[len(prefix) :].lower(): text for key, text in os.environ.items() if key.startswith(prefix)}
        usual = {key: os.environ[each] for key, names in self._named.items() for each in names if each in os.environ}
        return {**self._fixed, **usual, **found, **self._values}

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        found = {re.sub(r"[^a-z0-9]", "_", each.lower()): value for each, value in self._items().items()}
        wanted = re.sub(r"[^a-z0-9]", "_", key.lower())
        if wanted not in found:
            raise AttributeError(f"set {self._prefix()}_{wanted.upper()}: the connection '{self.name}' has no '{key}'")
        return found[wanted]

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)

    def keys(self) -> list[str]:
        return list(self._items())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hasattr(self, key)

    @property
    def secrets(self) -> Connection:
        return self

    @property
    def configs(self) -> Connection:
        return self


class AzureOpenAIConnection(Connection):
    _named = {"api_key": ("AZURE_OPENAI_API_KEY",), "api_base": ("AZURE_OPENAI_ENDPOINT",)}
    _fixed = {"api_type": "azure", "api_version": "2024-06-01"}


class OpenAIConnection(Connection):
    _named = {"api_key": ("OPENAI_API_KEY",), "base_url": ("OPENAI_BASE_URL",)}
    _fixed = {"organization": None, "base_url": None}


class CustomConnection(Connection): ...


class CustomStrongTypeConnection(Connection): ...


class CognitiveSearchConnection(Connection): ...


class SerpConnection(Connection): ...


class FormRecognizerConnection(Connection): ...


class AzureContentSafetyConnection(Connection): ...


class QdrantConnection(Connection): ...


class WeaviateConnection(Connection): ...


class ServerlessConnection(Connection): ...


class Image(bytes):
    """The bytes of an image."""

    def __new__(cls, value: Any = b"", mime_type: str = "image/*", source_url: str | None = None) -> Image:
        made = super().__new__(cls, value)
        made._mime_type, made.source_url = mime_type, source_url
        return made

    def to_base64(self, **settings: Any) -> str:
        return base64.b64encode(self).decode()


def _image(value: Any) -> Any:
    """The image that a file is, or that a path below this folder names."""
    if hasattr(value, "read_bytes"):
        return Image(value.read_bytes(), getattr(value, "media_type", "image/*"))
    root = Path(__file__).resolve().parent
    if isinstance(value, str) and (file := (root / value).resolve()).is_relative_to(root) and file.is_file():
        return Image(file.read_bytes())
    return Image(value) if isinstance(value, bytes) else value


_ROLE = re.compile(r"(?im)^[ \\t]*#?[ \\t]*(system|user|assistant|function|tool)[ \\t]*:[ \\t]*$")
_GUARD = "\\ue000"
_CHAT = frozenset(
    "temperature top_p n stop max_tokens presence_penalty frequency_penalty logit_bias user function_call functions"
    " tool_choice tools response_format seed".split()
)


def _guard(value: Any) -> Any:
    """A value whose lines open no role of the chat."""
    if isinstance(value, str):
        return _ROLE.sub(lambda found: _GUARD + found[0], value)
    if isinstance(value, dict):
        return {key: _guard(each) for key, each in value.items()}
    return [_guard(each) for each in value] if isinstance(value, list) else value


def chat(connection: Any, prompt: str, deployment_name: str = "", model: str = "", **given: Any) -> Any:
    """Ask a model as promptflow's tool of this name does; such a call is in no journal, and no limit counts it."""
    from jinja2.sandbox import SandboxedEnvironment
    from openai import AzureOpenAI, OpenAI

    asked = {key: given.pop(key) for key in _CHAT & given.keys()}
    asked = {key: value for key, value in asked.items() if value not in (None, "", [], {})}
    given.pop("stream", None)
    text = SandboxedEnvironment().from_string(prompt).render(**_guard(given))
    _, *parts = _ROLE.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True) if parts else [("user", text)]
    messages = [{"role": role.lower(), "content": said.replace(_GUARD, "").strip()} for role, said in pairs]
    if isinstance(connection, AzureOpenAIConnection):
        client: Any = AzureOpenAI(
            api_key=connection.api_key, azure_endpoint=connection.api_base, api_version=connection.api_version
        )
    else:
        client = OpenAI(api_key=connection.api_key, base_url=connection.base_url)
    answer = client.chat.completions.create(model=deployment_name or model, messages=messages, **asked)
    message = answer.choices[0].message
    return message.model_dump() if asked.keys() & {"functions", "tools"} else message.content or ""


def tool(function: Any = None, **settings: Any) -> Any:
    """The function; a name for a connection becomes that connection, and a file for an image that image."""
    if function is None:
        return tool
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return _plain(await function(*args, **_fit(function, kwargs)))

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **_fit(function, kwargs))
        return "".join(str(each) for each in found) if inspect.isgenerator(found) else _plain(found)

    return call


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, Image) else value


def _fit(function: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        return kwargs
    for name, value in kwargs.items():
        kinds = [hints.get(name), *typing.get_args(hints.get(name))]
        kind = next((each for each in kinds if isinstance(each, type) and issubclass(each, Connection)), None)
        if kind is not None and isinstance(value, str):
            kwargs[name] = kind(value)
        elif Image in kinds:
            kwargs[name] = _image(value)
    return kwargs


def trace(function: Any = None, **settings: Any) -> Any:
    return trace if function is None else function


def start_trace(*args: Any, **settings: Any) -> None: ...


def log_metric(key: str, value: Any, **settings: Any) -> None:
    logging.getLogger("metrics").info("%s = %s", key, value)


def get_logger(name: str = "flow", *args: Any, **settings: Any) -> logging.Logger:
    return logging.getLogger(name)


class InputSetting:
    def __init__(self, **settings: Any) -> None: ...


class Secret(str): ...


class FilePath(str): ...


class PromptTemplate(str): ...


class UserErrorException(Exception): ...


class SystemErrorException(Exception): ...
'''


EMBEDDING: Final = "imported_embedding:embed"
EMBEDDING_MODULE: Final = '''\
"""Makes vectors of texts."""

from __future__ import annotations


async def embed(text: str, model: str) -> list[float]:
    """The vector of a text, by a model such as `openai/text-embedding-3-small`."""
    from flowengine.models.embedding import embedder

    [vector] = await embedder(model).embed([text])
    return vector
'''


class Function(NamedTuple):
    """A function of the source, as a node can call it."""

    call: str
    parameters: tuple[str, ...]
    """Names; `**` where it takes any."""
    required: frozenset[str]
    connections: frozenset[str]
    """Parameters that take a connection."""
    needs: tuple[str, ...]
    """Packages that have to be installed."""
    line: int
    asks_models: bool
    """It asks a model by itself."""


class PromptFlowCode(CarriedCode):
    """The Python files of a Prompt flow."""

    def __init__(self, tree: SourceTree, paths: Mapping[str, str]) -> None:
        super().__init__(tree, paths, "promptflow", _lead)
        self.variables: dict[str, str] = {}
        """Variables of the environment that are set before the code is imported."""

    def function(self, name: str) -> Function | str:
        """The tool of a file, or why it cannot be called."""
        module = self.modules.get(name)
        if module is None:
            return f"there is no file '{name}'"
        if module.source.text == "" and module.problem:
            return module.problem
        found = _tool_of(module.source)
        if isinstance(found, str):
            return found
        problem = self.problem_of(name)
        if problem:
            return problem
        path = module_name(name)
        if path is None:
            return f"'{name}' is no name of a module"
        needs = self.needs_of(name)
        call = f"{path}:{found.name}"
        given = [*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs]
        if len({argument_name(each.arg) for each in given}) < len(given):
            return "two of its parameters differ by signs that arguments of a node do not have"
        if needs or found.name.startswith("_") or any(argument_name(each.arg) != each.arg for each in given):
            call = self._wrap(path, found)
        arguments = found.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        optional = (
            {each.arg for each in [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) :]}
            if arguments.defaults
            else set[str]()
        )
        optional |= {
            each.arg
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }
        names = [each.arg for each in every] + (["**"] if arguments.kwarg else [])
        connected = {
            each.arg
            for each in every
            if each.annotation and _CONNECTIONS & set(re.findall(r"\w+", ast.unparse(each.annotation)))
        }
        return Function(
            call,
            tuple(names),
            frozenset({each.arg for each in every} - optional),
            frozenset(connected),
            tuple(needs),
            found.lineno,
            any(
                each.module.startswith("promptflow.tools.")
                for one in self.closure(name)
                for each in self.modules[one].source.imports()
            ),
        )

    def stub_of(self, name: str) -> tuple[list[str], str]:
        """Parameters and text of a file's tool, for a stub."""
        module = self.modules.get(name)
        found = "" if module is None else _tool_of(module.source)
        return (
            ([], "")
            if module is None or isinstance(found, str)
            else (parameters_of(found), module.source.segment(found))
        )

    def files(self) -> Iterator[CarriedFile]:
        """What goes along: all files without a problem, the wrappers, the part of promptflow that they use."""
        yield from self.carried_files()
        if self.uses_parts:
            lines = [f"os.environ.setdefault({key!r}, {value!r})\n" for key, value in self.variables.items()]
            text = "".join(["\n\n# What the flow said of the environment\n\n", *lines]) if lines else ""
            yield CarriedFile(f"{PARTS}.py", PARTS_MODULE + text)

    def add_package_tool(self, parts: Sequence[str], names: Sequence[str]) -> str:
        """A function that calls one of a package when it is called."""
        head = ", ".join(f"{each}: Any = None" for each in names)
        text = (
            f"\n\ndef {parts[-1]}({head}) -> Any:\n"
            f"{format_import('.'.join(parts[:-1]), parts[-1])}"
            f"    return original({', '.join(f'{each}={each}' for each in names)})\n"
        )
        return self.add_wrapper(parts[-1], lambda name: text.replace(f"def {parts[-1]}(", f"def {name}(", 1))

    def _wrap(self, path: str, found: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        return self.add_wrapper(argument_name(found.name), lambda name: format_wrapper(name, path, found))


def _lead(given: Import) -> str | None:
    if not given.names or any(name not in _NAMES for name, _ in given.names) or not _HOMES.fullmatch(given.module):
        return None
    return f"from {PARTS} import {', '.join(f'{name} as {alias}' if alias else name for name, alias in given.names)}"


def _tool_of(source: PythonSource) -> ast.FunctionDef | ast.AsyncFunctionDef | str:
    functions = source.functions()
    marked = [each for each in functions if any(name.rpartition(".")[2] == "tool" for name, _ in decorators_of(each))]
    found = marked or ([] if len(functions) != 1 else functions)
    if found:
        return found[0]
    for each in source.classes():
        if any(call_name(base).endswith("ToolProvider") for base in each.bases):
            return f"the tool is a method of the class '{each.name}', which promptflow makes"
    return "no function in it is marked with @tool"
