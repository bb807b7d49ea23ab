"""Reads what litellm gives: answers, whole or in pieces, into a `Reply`, and its exceptions into our errors.

Numbers that the vendor did not give stay unknown: litellm puts zeros in their place. Of an error it is told whether the
same request may work later, or never will.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any, Final, cast

from flowengine.core.secret_values import Secrets, find_secret_values, find_url_secrets
from flowengine.errors import FlowEngineError, PermanentModelError, TransientModelError
from flowengine.models.http.status_errors import (
    may_work_later,
    message_in,
    read_retry_after,
    show_address,
)
from flowengine.models.http.vendor_endpoint import check_answer
from flowengine.models.messages import ToolRequest, check_vectors
from flowengine.models.model import Reply, TokenUsage, read_cost, read_token_count

__all__ = [
    "THINKING",
    "PieceCollector",
    "as_model_error",
    "read_reply",
    "read_vectors",
    "secrets_of",
    "tellable",
]


THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of the parts that hold a model's signed thinking."""


def read_reply(response: Any, provider: str, name: str, seconds: float, keys: Secrets) -> Reply:
    """A whole answer, without these keys. Refused content is an error, since it is no answer to what was asked."""
    if not response.choices:
        raise TransientModelError(f"{provider}/{name}: the server's answer is empty, it has no choices")
    choice = response.choices[0]
    message = choice.message
    fields: dict[str, Any] = getattr(message, "provider_specific_fields", None) or {}
    reply = Reply(
        content=message.content or "",
        tool_calls=tuple(_tool_request(call, index) for index, call in enumerate(message.tool_calls or ())),
        usage=(usage := _read_usage(getattr(response, "usage", None))),
        cost_usd=_known_cost(response._hidden_params.get("response_cost"), usage),
        finish_reason=choice.finish_reason or "stop",
        model=response.model or name,
        provider=provider,
        seconds=seconds,
        vendor_parts=_read_thinking(message) if message.tool_calls else (),
    )
    return check_answer(reply, fields.get("refusal") or "", keys)


def read_vectors(response: Any, provider: str, name: str, count: int, seconds: float) -> Reply:
    """The vectors of so many texts, in their order."""
    ordered = sorted(response.data, key=lambda each: each["index"])
    vectors = check_vectors([each["embedding"] for each in ordered], count, f"{provider}/{name}")
    return Reply(
        content="",
        usage=(usage := _read_usage(getattr(response, "usage", None))),
        cost_usd=_known_cost(response._hidden_params.get("response_cost"), usage),
        model=response.model or name,
        provider=provider,
        seconds=seconds,
        vectors=vectors,
    )


class PieceCollector:
    """Puts the chunks of a streamed answer together."""

    def __init__(self, litellm: Any, provider: str, name: str, model_id: str, keys: Secrets) -> None:
        self._litellm = litellm
        self._provider = provider
        self._name = name
        self._model_id = model_id
        self._keys = keys
        self._texts: list[str] = []
        self._calls: dict[int, list[str]] = {}
        self._usage: Any = None
        self._model = ""
        self._finish_reason = ""
        self._refusal = ""
        self._thinking: list[dict[str, Any]] = []

    def add(self, chunk: Any) -> str:
        """Take a chunk; its piece of the text, which may be empty."""
        self._model = getattr(chunk, "model", None) or self._model
        self._usage = getattr(chunk, "usage", None) or self._usage
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self._finish_reason = choice.finish_reason or self._finish_reason
        for call in choice.delta.tool_calls or ():
            self._add_call(call)
        for block in _read_thinking(choice.delta):
            self._add_thinking(block)
        self._refusal += getattr(choice.delta, "refusal", None) or ""
        piece = choice.delta.content or ""
        self._texts.append(piece)
        return piece

    def reply(self, seconds: float) -> Reply:
        """The whole answer, once the last chunk was taken."""
        if not self._finish_reason:
            raise TransientModelError(f"{self._provider}/{self._name}: the answer broke off before its end")
        usage = _read_usage(self._usage)
        reply = Reply(
            content="".join(self._texts),
            tool_calls=tuple(ToolRequest(*self._calls[index]) for index in sorted(self._calls)),
            usage=usage,
            cost_usd=_known_cost(self._cost(usage), usage),
            finish_reason=self._finish_reason,
            model=self._model or self._name,
            provider=self._provider,
            seconds=seconds,
            vendor_parts=tuple(self._thinking) if self._calls else (),
        )
        return check_answer(reply, self._refusal, self._keys)

    def _add_call(self, call: Any) -> None:
        """Name and id come with the first piece of a tool call, its arguments bit by bit."""
        parts = self._calls.setdefault(call.index, [f"call_{call.index}", "", ""])
        parts[0] = call.id or parts[0]
        parts[1] += call.function.name or ""
        parts[2] += call.function.arguments or ""

    def _add_thinking(self, block: Mapping[str, Any]) -> None:
        """A block comes bit by bit, its signature with the last one."""
        last = self._thinking[-1] if self._thinking else {"data": ""}
        if "data" in block or "data" in last or last.get("signature"):
            self._thinking.append(dict(block))
            return
        for name in ("thinking", "signature"):
            last[name] = (last.get(name) or "") + (block.get(name) or "")

    def _cost(self, usage: TokenUsage) -> float | None:
        if usage.prompt_tokens is None:
            return None
        try:
            prompt, completion = self._litellm.cost_per_token(model=self._model_id, usage_object=self._usage)
        except Exception:  # litellm raises a plain Exception for a model whose price it does not know
            return None
        return prompt + completion


def _read_thinking(message: Any) -> tuple[Mapping[str, Any], ...]:
    """Signed thinking, which goes back with the answer. litellm gives it in one piece where the answer is whole."""
    blocks: list[dict[str, Any]] = getattr(message, "thinking_blocks", None) or []
    return tuple({name: value for name, value in each.items() if name in _SIGNED} for each in blocks)


_SIGNED: Final = frozenset({"type", "thinking", "signature", "data"})
"""What a block of thinking consists of; litellm adds marks for caches."""


def _tool_request(call: Any, index: int) -> ToolRequest:
    return ToolRequest(call.id or f"call_{index}", call.function.name or "", call.function.arguments or "")


def _read_usage(usage: Any) -> TokenUsage:
    if usage is None or not (usage.prompt_tokens or usage.completion_tokens):
        return TokenUsage()
    details = getattr(usage, "prompt_tokens_details", None)
    told = (usage.prompt_tokens, usage.completion_tokens, getattr(details, "cached_tokens", None))
    return TokenUsage(*map(read_token_count, told))


def _known_cost(cost: float | None, usage: TokenUsage) -> float | None:
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
    if may_work_later(status, str(error)) or isinstance(error, OSError):
        return TransientModelError(message, read_retry_after(_headers(error)), is_rate_limit=status == 429)
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
    told = str(error)
    return None if secrets.holds(told) or _TRACEBACK in told else error


_TRACEBACK: Final = "Traceback (most recent call last)"
"""litellm's own, in the text of some of its errors."""

_DEEPEST: Final = 8
"""Causes of causes that are looked at."""


def _message(error: Exception, address: str | None) -> str:
    """Returns the error's message without litellm's class names and traceback."""
    text = str(error).partition(" Original exception: ")[0].partition(_TRACEBACK)[0]
    told = _ADVICE.sub("", _OBJECTS.sub("", _CLASS_NAMES.sub("", text).strip()))
    told = message_in(told) or type(error).__name__
    if (failed := _NO_CONNECTION.match(told)) is not None:
        where = (address and show_address(address)) or failed["host"] or _address_asked(error) or "the server"
        return f"no connection to {where}{told[failed.end() :].rstrip(' .')}"
    return f"the server's answer cannot be read as JSON: {told}" if _is_unreadable(error) else told


def _address_asked(error: BaseException) -> str | None:
    """The address that was asked, where a cause of the error knows it."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return None
        try:
            url: Any = cast("Any", cause).request.url
        except (AttributeError, RuntimeError):  # httpx raises the second where there was none
            cause = cause.__cause__ or cause.__context__
        else:
            return show_address(str(url))
    return None


def _is_unreadable(error: BaseException) -> bool:
    """Tells whether a body that is no JSON is behind it."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None or isinstance(cause, JSONDecodeError | UnicodeDecodeError):
            return cause is not None
        cause = cause.__cause__ or cause.__context__
    return False


def _headers(error: Exception) -> Mapping[str, str]:
    """litellm keeps the server's headers in one place or in the other."""
    response: Any = getattr(error, "response", None)
    return getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
