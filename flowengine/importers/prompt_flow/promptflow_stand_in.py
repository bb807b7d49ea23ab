"""Holds the modules that imported projects have in the place of promptflow: what its code imports, and embeddings.

They are texts here, and are never imported: they run in the project that is made.
"""

from __future__ import annotations

from typing import Final

from flowengine.importers.carried_code import StandIn

PARTS: Final = "promptflow_parts"
_MODULE: Final = '''\
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
_HOMES: Final = (
    r"promptflow(\.(core(\._connection)?|tracing|connections|_core\.tool|contracts\.(types|multimedia)|exceptions"
    r"|_utils\.logger_utils|(_sdk\.)?entities|tools\.(aoai|openai)))?"
)
STAND_IN: Final = StandIn("promptflow", PARTS, _MODULE, _HOMES)
CONNECTIONS: Final = frozenset(each for each in STAND_IN.names if each.endswith("Connection"))


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
