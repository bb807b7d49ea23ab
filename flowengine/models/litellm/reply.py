"""Reads litellm's answers, whole or in pieces, into a `Reply`.

Numbers that the vendor did not give stay unknown: litellm puts zeros in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowengine.core.secret_values import NO_SECRETS, Secrets
from flowengine.errors import TransientModelError
from flowengine.models.http.status_errors import check_answer
from flowengine.models.messages import ToolRequest, as_vector, texts_of
from flowengine.models.model import Reply, TokenUsage, read_token_count

__all__ = ["THINKING", "PieceCollector", "read_reply", "read_vectors"]


THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of the parts that hold a model's signed thinking."""


def read_reply(response: Any, provider: str, name: str, seconds: float, keys: Secrets = NO_SECRETS) -> Reply:
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
    if len(ordered) != count:
        raise TransientModelError(f"{provider}/{name} gave {len(ordered)} vectors for {count} texts")
    vectors = [as_vector(each["embedding"]) for each in ordered]
    if any(each is None for each in vectors):
        raise TransientModelError(f"{provider}/{name} gave a vector that is no list of numbers")
    return Reply(
        content="",
        usage=(usage := _read_usage(getattr(response, "usage", None))),
        cost_usd=_known_cost(response._hidden_params.get("response_cost"), usage),
        model=response.model or name,
        provider=provider,
        seconds=seconds,
        vectors=texts_of(each for each in vectors if each is not None),
    )


class PieceCollector:
    """Puts the chunks of a streamed answer together."""

    def __init__(self, litellm: Any, provider: str, name: str, model_id: str, keys: Secrets = NO_SECRETS) -> None:
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
    return None if usage.prompt_tokens is None else cost
