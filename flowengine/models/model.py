"""Defines what a model is: an object that turns a `Request` into a `Reply`.

Only the seam is here. Vendors, retries, limits, fallbacks and stand-ins are all objects of the
`Model` protocol, most of them wrapped round another one. Nothing here waits or reads a setting.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from flowengine.models.call_options import OPTIONS, VENDOR_OPTIONS, PromptCaching
from flowengine.models.messages import Message, ToolRequest, as_dict, from_dict

_FIRST_WORD: Final = 600.0
"""Seconds in which an answer begins, and for which a stream may be silent: as the vendors' own clients have it."""
_LONGEST_ANSWER: Final = 128_000
"""Tokens of the longest answers that models are known to give."""
_SLOWEST: Final = 50.0
"""Tokens a second of a slow model."""

_LONGEST_KEY: Final = 64
"""Characters that OpenAI takes."""


class PromptCache(NamedTuple):
    """The settings of a vendor's prompt cache for one prompt."""

    key: str = ""
    """The same for requests that begin alike: those of one node of a flow."""
    is_asked_for: bool = False
    """Whether the author of the flow said so, and no default did."""
    is_asked_again: bool = True
    """Whether another prompt that begins alike is to come: writing to some vendors' caches costs more than asking."""

    @property
    def is_wanted(self) -> bool:
        """Whether writing the prompt to a cache is worth its price, or was asked for."""
        return self.is_asked_for or self.is_asked_again

    @classmethod
    def of(cls, choice: PromptCaching | None, *names: str, is_asked_again: bool = True) -> PromptCache:
        """Makes it by an author's choice: `auto`, `off`, or None for nothing. `names`: what requests that begin alike
        share. Where it is off, there is no key, and nothing is asked again.

        >>> PromptCache.of(None, "triage", "answer"), PromptCache.of("off", "triage", "answer").key
        (PromptCache(key='triage.answer', is_asked_for=False, is_asked_again=True), '')
        """
        if choice == "off":
            return cls(is_asked_again=False)
        key = ".".join(filter(None, names))
        if not (key.isascii() and key.isprintable() and len(key) <= _LONGEST_KEY):
            key = blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest()
        return cls(key, choice is not None, is_asked_again)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model, complete in itself."""

    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    """None leaves it to the vendor."""
    max_tokens: int | None = None
    """Tokens of the answer at most; None leaves it to the vendor."""
    timeout: float | None = None
    """Seconds a call may take in all, each retry anew; None: as long as its longest answer may take."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """OpenAI function schemas."""
    response_schema: Mapping[str, Any] | None = None
    """JSON Schema that the answer's text should follow."""
    response_name: str = "answer"
    """The schema's name, as vendors want one."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keyword arguments for the vendor."""
    cache: PromptCache | None = field(default=None, repr=False, compare=False)
    """None: nothing is marked for the vendor's cache. No part of the key: the answer is the same."""
    _key: str = field(default="", init=False, repr=False, compare=False)
    _plain_messages: Sequence[Mapping[str, Any]] = field(default=(), init=False, repr=False, compare=False)

    def seconds(self, longest_answer: int | None = None) -> float:
        """Seconds that a call may take in all. `longest_answer`: tokens that the model writes at most, if known.

        >>> Request("m", (), timeout=5).seconds(), Request("m", (), max_tokens=1000).seconds()
        (5, 620.0)
        """
        if self.timeout is not None:
            return self.timeout
        bounds = (self.max_tokens, longest_answer, _LONGEST_ANSWER)
        return _FIRST_WORD + next(each for each in bounds if each is not None) / _SLOWEST

    def key(self) -> str:
        """Hash of everything that shapes the answer: equal questions have equal keys.

        32 hexadecimal digits, the same in every process. The timeout is left out. Values in
        `extra` that are not JSON count by their `repr`.

        >>> question = (Message("user", "Why?"),)
        >>> Request("a", question, timeout=1).key() == Request("a", question, timeout=2).key()
        True
        """
        if not self._key:
            object.__setattr__(self, "_key", self._compute_hash())
        return self._key

    def plain_messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages in the OpenAI chat shape, made once: to change them, take a copy."""
        if not self._plain_messages:
            object.__setattr__(self, "_plain_messages", [as_dict(each) for each in self.messages])
        return self._plain_messages

    def _key_messages(self) -> Sequence[Mapping[str, Any]]:
        if not any(each.is_error for each in self.messages):
            return self.plain_messages()
        return [as_dict(each._replace(is_error=False)) for each in self.messages]

    def _compute_hash(self) -> str:
        shape = {
            "model": self.model,
            "messages": self._key_messages(),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "tools": self.tools,
            "response_schema": self.response_schema,
            "response_name": self.response_name,
            "extra": self.extra,
        }
        return blake2b(_CANONICAL.encode(shape).encode(), digest_size=16).hexdigest()


def to_plain(value: Any) -> Any:
    """Makes a JSON value of one that JSON does not know: of a mapping its entries, of all else the `repr`."""
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else repr(value)


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=to_plain)


class TokenUsage(NamedTuple):
    """Tokens of one call; None where the vendor did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of `prompt_tokens` that the vendor served from its cache."""
    cache_write_tokens: int | None = None
    """The part of `prompt_tokens` that the vendor wrote to its cache."""
    reasoning_tokens: int | None = None
    """The part of `completion_tokens` that the model thought with."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has: at once, with nothing to load.

    A token is about four characters of a Latin script and a bit more than one of most others.

    >>> estimate_tokens("Hello, world!"), estimate_tokens("今日は世界。")
    (4, 5)
    """
    if not text:
        return 0
    latin = len(text) if text.isascii() else sum(character < "\u0250" for character in text)
    return max(1, -(-latin // 4) + round((len(text) - latin) * 0.8))


_MOST_TOKENS: Final = 10**12


def read_token_count(value: Any) -> int | None:
    """A number of tokens that a server told; None for what cannot be one.

    >>> [read_token_count(each) for each in (12, 12.0, -1, True, "12", 10**400, float("inf"))]
    [12, 12, None, None, None, None, None]
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= _MOST_TOKENS and value == int(value) else None


def read_cost(value: Any) -> float | None:
    """A cost that a model told; None for what cannot be one, and so is unknown.

    >>> [read_cost(each) for each in (0.5, -0.5, float("nan"), float("inf"), None, "0.5", True)]
    [0.5, None, None, None, None, None, None]
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _MOST_DOLLARS else None


_MOST_DOLLARS: Final = 1e12


# --- How an answer ended

FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter"})
"""Those that are known here, by our names."""

_LONGEST_REASON: Final = 40


def read_finish_reason(vendor_reason: Any, names: Mapping[str, str], *, has_calls: bool) -> str:
    """The reason by our name; a vendor's own word where we have none for it. `names`: the vendor's words → ours.

    >>> [read_finish_reason(each, {"eos": "stop"}, has_calls=False) for each in ("eos", None, "paused")]
    ['stop', 'stop', 'paused']
    """
    word = vendor_reason[:_LONGEST_REASON] if isinstance(vendor_reason, str) and vendor_reason else "stop"
    reason = names.get(word, word)
    return "tool_calls" if reason == "stop" and has_calls else reason


class Unanswered(NamedTuple):
    """Attempts that were sent and neither answered nor refused: the vendor may bill them, at most so much."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    """None where the price is unknown."""


class Reply(NamedTuple):
    """A model's answer."""

    content: str
    tool_calls: tuple[ToolRequest, ...] = ()
    usage: TokenUsage = TokenUsage()
    cost_usd: float | None = None
    """None where the price is unknown; never 0 for unknown."""
    finish_reason: str = "stop"
    """`stop`, `length`, `tool_calls` or `content_filter`; another word of the vendor's where it is none of these."""
    model: str = ""
    """The model that answered, as it names itself."""
    provider: str = ""
    attempts: int = 1
    """Requests sent, transient failures included."""
    seconds: float = 0.0
    vectors: tuple[str, ...] = ()
    """The vectors of a model for embeddings, one for each message, as `texts_of` writes it."""
    vendor_parts: tuple[Mapping[str, Any], ...] = ()
    """The parts that the vendor wants back unchanged where the chat goes on (`Message.vendor_parts`)."""
    unanswered: Unanswered = Unanswered()
    """The unanswered attempts before it."""


class Model(Protocol):
    """Something that answers.

    Failures are `TransientModelError` (may work when tried again) or `PermanentModelError`;
    a setting that cannot work is a `ModelConfigError`. Implementations are free of shared state
    that a request could leave behind: one model serves any number of requests at once.
    """

    @property
    def name(self) -> str:
        """The model's name, without its provider; goes into `Request.model`."""
        ...

    @property
    def provider(self) -> str:
        """Who answers: the name before the slash, as prices and limits know it."""
        ...

    async def complete(self, request: Request) -> Reply:
        """The whole answer at once."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        """The answer piece by piece, and at the end the `Reply` that holds all of it.

        Leaving the context early cancels the call: `async with model.stream(request) as pieces`.
        """
        ...


@asynccontextmanager
async def stream_whole(
    complete: Callable[[Request], Awaitable[Reply]], request: Request, pieces: str = r"(?s).+"
) -> AsyncGenerator[AsyncIterator[str | Reply]]:
    """The stream of a model whose answers come at once: the text, cut as a pattern says, and the reply."""

    async def write() -> AsyncGenerator[str | Reply]:
        for piece in re.findall(pieces, reply.content):
            yield piece
        yield reply

    reply = await complete(request)
    async with aclosing(write()) as source:
        yield source


def missing_members(value: object) -> list[str]:
    """The members that an object lacks to be a `Model`."""
    return [each for each in ("name", "provider", "complete", "stream") if not hasattr(value, each)]


# --- Models whose library is slow to load


@runtime_checkable
class LoadsLibrary(Protocol):
    """A model that can load its library before it is asked."""

    def preload(self) -> None:
        """Start loading in the background, for a call that will come."""
        ...

    async def ready(self) -> None:
        """Wait until it is loaded."""
        ...


# --- Models that follow a JSON Schema


@runtime_checkable
class _KnowsItsSchemas(Protocol):
    async def supports_schema(self) -> bool: ...


async def supports_schema(model: Model) -> bool:
    """True if `Request.response_schema` is enforced; False if the prompt has to describe the shape.

    Models that say nothing about it follow schemas.
    """
    return await model.supports_schema() if isinstance(model, _KnowsItsSchemas) else True


# --- Requests as plain data

MASKED: Final = "***"

_HARMLESS: Final = frozenset({*OPTIONS, *VENDOR_OPTIONS}) - {"metadata", "safety_identifier", "user"}
"""Options whose values are no secrets, whatever they hold."""


def plain_request(request: Request) -> dict[str, Any]:
    """Returns the request's options as JSON values, beside the messages; defaults are left out.

    >>> plain_request(Request("gpt-4o", (), 0.2, extra={"seed": 7, "api_key": "sk-1"}))
    {'model': 'gpt-4o', 'temperature': 0.2, 'extra': {'seed': 7, 'api_key': '***'}}
    """
    shape: dict[str, Any] = {"model": as_json(request.model)}
    if request.temperature is not None:
        shape["temperature"] = as_json(request.temperature)
    if request.max_tokens is not None:
        shape["max_tokens"] = as_json(request.max_tokens)
    if request.tools:
        shape["tools"] = as_json(list(request.tools))
    if request.response_schema is not None:
        shape["response_schema"] = as_json(request.response_schema)
        shape["response_name"] = as_json(request.response_name)
    if request.extra:
        shape["extra"] = as_json(without_secrets(request.extra))
    return shape


def request_of(shape: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> Request:
    """The request that `plain_request` described, masked values included."""
    fields = {name: value for name, value in shape.items() if name != "tools"}
    tools = cast("Iterable[Mapping[str, Any]]", shape.get("tools", ()))
    return Request(messages=tuple(from_dict(each) for each in messages), tools=tuple(tools), **fields)


def without_secrets(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a model call, the values that could be secrets masked."""
    return {
        name: value if value is None or isinstance(value, int | float) or name in _HARMLESS else MASKED
        for name, value in extra.items()
    }


def as_json(value: Any) -> Any:
    """The value as JSON has it; text that no encoding can carry is mended."""
    if value is None or type(value) in (bool, int, float) or (type(value) is str and value.isascii()):
        return value
    text = json.dumps(value, default=to_plain, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


# --- What every wrapper of a model shares


Finish: TypeAlias = Callable[[Reply], Reply]
"""Has the last word on a reply."""


class PassThroughModel:
    """Round one model. What a wrapper is for, it adds in `_around`, or to `complete` and `stream`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str:
        return self._model.provider

    def inside(self) -> Sequence[Model]:
        """The model that is asked."""
        return (self._model,)

    async def supports_schema(self) -> bool:
        """Tells whether the model inside is held to a JSON Schema."""
        return await supports_schema(self._model)

    @asynccontextmanager
    async def _around(self, request: Request) -> AsyncGenerator[tuple[Request, Finish]]:
        """Surrounds a call: gives what is asked instead, and what becomes of the reply."""
        yield request, lambda reply: reply

    async def complete(self, request: Request) -> Reply:
        async with self._around(request) as (inner_request, finish):
            return finish(await self._model.complete(inner_request))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            async for piece in stream:
                yield finish(piece) if isinstance(piece, Reply) else piece

        async with self._around(request) as (inner_request, finish), self._model.stream(inner_request) as stream:
            yield pieces()
