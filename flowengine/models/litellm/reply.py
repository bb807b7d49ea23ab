"""Reads what litellm gives: answers, whole or in pieces, into a `Reply`, and its exceptions into our errors.

Numbers that the vendor did not give stay unknown: litellm puts zeros in their place. Of an error it is told whether the
same request may work later, or never will.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from json import JSONDecodeError
from typing import Any, Final, cast

from flowengine.core import Secrets, find_secret_values, find_url_secrets
from flowengine.errors import FlowEngineError, PermanentModelError, TransientModelError
from flowengine.models.http import (
    OPENAI_CHAT,
    ChatCollector,
    IncompleteAnswerError,
    VendorTraits,
    as_object,
    as_text,
    check_answer,
    list_of_objects,
    may_work_later,
    message_in,
    read_chat_usage,
    read_retry_after,
    read_vectors,
    show_address,
)
from flowengine.models.model import Reply, TokenUsage, read_cost

_TRAITS: Final = VendorTraits("openai", (), reasoning_tokens=())
"""litellm gives every vendor's answers the shape of OpenAI's."""


def read_reply(response: Any, provider: str, name: str, seconds: float, keys: Secrets) -> Reply:
    """A whole answer, without these keys. Refused content is an error, since it is no answer to what was asked."""
    body = response.model_dump()
    try:
        reply, refusal, _ = OPENAI_CHAT.read(body, _TRAITS)
    except IncompleteAnswerError as error:
        raise TransientModelError(f"{provider}/{name}: {error}") from None
    message: Mapping[str, Any] = body["choices"][0]["message"]
    refusal = refusal or as_text(as_object(message.get("provider_specific_fields")).get("refusal"))
    reply = reply._replace(
        cost_usd=_known_cost(response._hidden_params.get("response_cost"), reply.usage),
        model=reply.model or name,
        provider=provider,
        seconds=seconds,
        vendor_parts=_read_thinking(message) if reply.tool_calls else (),
    )
    return check_answer(reply, refusal, keys)


def read_embedding(response: Any, provider: str, name: str, count: int, seconds: float) -> Reply:
    """The vectors of so many texts, in their order."""
    body = response.model_dump()
    vectors = read_vectors(body.get("data"), count, f"{provider}/{name}")
    return Reply(
        content="",
        usage=(usage := read_chat_usage(body.get("usage"), _TRAITS)),
        cost_usd=_known_cost(response._hidden_params.get("response_cost"), usage),
        model=response.model or name,
        provider=provider,
        seconds=seconds,
        vectors=vectors,
    )


_LARGEST: Final = 64 * 1024 * 1024
"""Characters of a streamed answer, with what stands around its pieces."""


class PieceCollector:
    """Puts the chunks of a streamed answer together."""

    def __init__(self, litellm: Any, provider: str, name: str, model_id: str, keys: Secrets) -> None:
        self._litellm = litellm
        self._provider = provider
        self._name = name
        self._model_id = model_id
        self._keys = keys
        self._answer = ChatCollector(_TRAITS)
        self._usage: Any = None
        self._thinking: list[Mapping[str, Any]] = []
        self._size = 0

    @property
    def has_ended(self) -> bool:
        """Whether the answer is whole."""
        return self._answer.has_ended

    def add(self, chunk: Any) -> str:
        """Take a chunk; its piece of the text, which may be empty. An answer without an end is an error."""
        self._usage = getattr(chunk, "usage", None) or self._usage
        body = chunk.model_dump()
        for choice in body["choices"][:1]:
            self._thinking += _read_thinking(choice["delta"])
        self._size += len(repr(body["choices"]))
        if self._size > _LARGEST:
            message = f"{self._provider}/{self._name}: the server's answer has more than {_LARGEST:,} characters"
            raise PermanentModelError(message)
        return self._answer.add_chunk(body)

    def reply(self, seconds: float) -> Reply:
        """The whole answer, once the last chunk was taken."""
        try:
            reply, refusal, _ = self._answer.answer()
        except IncompleteAnswerError as error:
            raise TransientModelError(f"{self._provider}/{self._name}: {error}") from None
        reply = reply._replace(
            cost_usd=_known_cost(self._cost(reply.usage), reply.usage),
            model=reply.model or self._name,
            provider=self._provider,
            seconds=seconds,
            vendor_parts=tuple(_join_thinking(self._thinking)) if reply.tool_calls else (),
        )
        return check_answer(reply, refusal, self._keys)

    def _cost(self, usage: TokenUsage) -> float | None:
        if usage.prompt_tokens is None:
            return None
        try:
            prompt, completion = self._litellm.cost_per_token(model=self._model_id, usage_object=self._usage)
        except Exception:  # litellm raises a plain Exception for a model whose price it does not know
            return None
        return prompt + completion


def _read_thinking(message: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Signed thinking, which goes back with the answer. litellm gives it in one piece where the answer is whole."""
    blocks = list_of_objects(message.get("thinking_blocks"))
    return tuple({name: value for name, value in each.items() if name in _SIGNED} for each in blocks)


def _join_thinking(pieces: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The blocks of a stream, in which one comes bit by bit, its signature with the last one."""
    pieces_of_block: list[Mapping[str, Any]] = []
    for number, piece in enumerate(pieces, 1):
        if "data" in piece:
            yield piece
            continue
        pieces_of_block.append(piece)
        if piece.get("signature") or number == len(pieces) or "data" in pieces[number]:
            texts = {
                name: "".join(each.get(name) or "" for each in pieces_of_block) for name in ("thinking", "signature")
            }
            yield {**pieces_of_block[0], **texts}
            pieces_of_block = []


_SIGNED: Final = frozenset({"type", "thinking", "signature", "data"})
"""The fields of a block of thinking; litellm adds marks for caches."""


def _known_cost(cost: Any, usage: TokenUsage) -> float | None:
    return None if usage.prompt_tokens is None else read_cost(cost)


# --- Errors

_CLASS_NAMES: Final = re.compile(
    r"^(?:(?:litellm\.)?[A-Za-z_]*(?:Error|Timeout)(?: Error)?: |[A-Za-z_]+Exception(?: [A-Za-z]+Error)? - )+"
)
_ADVICE: Final = re.compile(r"\.? Handle with `litellm\.\w+`\.?$")
"""To those who call litellm themselves."""
_OBJECTS: Final = re.compile(r" ?(?:ssl:)?<[\w.]+ object at 0x[0-9a-f]+>")
_NO_CONNECTION: Final = re.compile(r"^(?:Connection error\.?|Cannot connect to host (?P<host>[^\s]+))", re.IGNORECASE)


def as_model_error(
    error: Exception, provider: str, model: str, secrets: Secrets, address: str | None = None
) -> FlowEngineError:
    """Our error for one that a call of litellm raised. `address`: where the vendor is said to be.

    `secrets`: what it must not tell, even if a server sends it back.
    """
    if isinstance(error, FlowEngineError):
        return error
    message = secrets.hide(f"{provider}/{model}: {_message(error, address)}")
    status = getattr(error, "status_code", None)
    text = f"{error} {getattr(error, 'code', '')} {getattr(error, 'body', '')}"
    if may_work_later(status, text) or isinstance(error, OSError):
        failure = TransientModelError(message, read_retry_after(_headers(error), text), is_rate_limit=status == 429)
        failure.status = status if isinstance(status, int) else None
        return failure
    return PermanentModelError(message)


def secrets_of(settings: Mapping[str, Any]) -> Secrets:
    """Returns the secrets in the settings of calls: keys, and secret parts of the address.

    >>> secrets_of({"base_url": "http://me:word-12345@models.example"}).hide("it says word-12345")
    'it says [hidden]'
    """
    addresses = [str(settings.get(name) or "") for name in ("api_base", "base_url")]
    return Secrets([*find_secret_values(settings), *(each for url in addresses for each in find_url_secrets(url))])


def tellable(error: Exception, secrets: Secrets) -> Exception | None:
    """The error as the cause of another one, which is told with it; None where it holds a key or a traceback."""
    text = str(error)
    return None if secrets.holds(text) or _TRACEBACK in text else error


_TRACEBACK: Final = "Traceback (most recent call last)"
"""litellm's own, in the text of some of its errors."""

_DEEPEST: Final = 8
"""Causes of causes that are looked at."""


def _message(error: Exception, address: str | None) -> str:
    """Returns the error's message without litellm's class names and traceback."""
    text = str(error).partition(" Original exception: ")[0].partition(_TRACEBACK)[0]
    message = _ADVICE.sub("", _OBJECTS.sub("", _CLASS_NAMES.sub("", text).strip()))
    message = message_in(message) or type(error).__name__
    if (failed := _NO_CONNECTION.match(message)) is not None:
        where = (address and show_address(address)) or failed["host"] or _address_asked(error) or "the server"
        return f"no connection to {where}{message[failed.end() :].rstrip(' .')}"
    return f"the server's answer cannot be read as JSON: {message}" if _is_unreadable(error) else message


def _address_asked(error: BaseException) -> str | None:
    """The address that was asked, where a cause of the error knows it."""
    for cause in _list_causes(error):
        with suppress(AttributeError, RuntimeError):  # httpx raises the second where there was none
            return show_address(str(cast("Any", cause).request.url))
    return None


def _is_unreadable(error: BaseException) -> bool:
    """Tells whether a body that is no JSON is behind it."""
    return any(isinstance(each, JSONDecodeError | UnicodeDecodeError) for each in _list_causes(error))


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is not None:
            yield cause
            cause = cause.__cause__ or cause.__context__


def _headers(error: Exception) -> Mapping[str, str]:
    """litellm keeps the server's headers in one place or in the other."""
    response: Any = getattr(error, "response", None)
    return getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
