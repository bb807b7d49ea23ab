"""Speaks the protocol of OpenAI's chat completions, which most vendors and servers of one's own speak too.

Where they differ is data (`vendor_traits`). Fields that an answer lacks stay unknown; what it has beyond the protocol
is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from flowengine.models.http.chat_messages import KeptFields, to_chat_message, vendor_parts_of
from flowengine.models.http.chat_protocol import (
    IncompleteAnswerError,
    StreamedEvent,
    StreamFailureError,
    VendorAnswer,
    api_key_header,
    as_object,
    as_text,
    bearer_header,
    list_of_objects,
    with_own_ids,
)
from flowengine.models.http.openai_cache import find_shared_beginning
from flowengine.models.http.openai_schema import describe_function, describe_schema
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import ToolRequest
from flowengine.models.model import (
    Reply,
    Request,
    TokenUsage,
    read_cost,
    read_finish_reason,
    read_token_count,
)

# --- What is sent


class OpenAIChat:
    """`ChatProtocol` of `/chat/completions`."""

    def path(self, model: str, settings: Mapping[str, Any], service: str = "chat/completions") -> str:
        return f"/{service}"

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return bearer_header(settings)

    def body(self, request: Request, traits: VendorTraits, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [to_chat_message(each, traits) for each in request.messages],
        }
        is_sampled = traits.can.is_sampled_at(request.extra.get("reasoning_effort")) is not False
        if request.temperature is not None and is_sampled:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            body[traits.token_limit] = request.max_tokens
        if request.tools:
            body["tools"] = [{**each, "function": describe_function(each, traits)} for each in request.tools]
        if request.response_schema is not None and (traits.schema_with_tools or not request.tools):
            body |= _ask_for_schema(request, traits)
        if stream:
            body["stream"] = True
            if traits.takes_stream_options:
                body["stream_options"] = {"include_usage": True}
        body |= traits.cache_options(request.cache)
        if (shared := find_shared_beginning(request, traits)) is not None:
            text = request.messages[shared.message].content
            body["messages"][shared.message]["content"] = shared.split_text(text, "text")
            body |= shared.options
        return body | _options(request, traits)

    def read(self, body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
        choice = _first_choice(body)
        if choice is None and body.get("error"):
            raise StreamFailureError(body)  # Some servers tell it with a status of 200.
        if choice is None:
            raise IncompleteAnswerError("the server's answer is empty, it has no choices", is_final=not body)
        message = as_object(choice.get("message"))
        if not message:
            raise IncompleteAnswerError("the server's answer has no message")
        content, refusal = _read_content(message.get("content"))
        entries = list_of_objects(message.get("tool_calls"))
        calls = with_own_ids(_read_call(each, index) for index, each in enumerate(entries))
        vendor_parts = vendor_parts_of(message, zip((each.id for each in calls), entries, strict=True), traits)
        reply = Reply(
            content=content,
            tool_calls=calls,
            usage=read_chat_usage(body.get("usage"), traits),
            cost_usd=read_told_cost(body.get("usage"), traits),
            finish_reason=read_finish_reason(choice.get("finish_reason"), _REASONS, has_calls=bool(calls)),
            model=as_text(body.get("model")),
            vendor_parts=vendor_parts,
        )
        return VendorAnswer(_unwrap_answer_tool(reply, traits), as_text(message.get("refusal")) or refusal)

    def collector(self, traits: VendorTraits) -> ChatCollector:
        return ChatCollector(traits)


class AzureChat(OpenAIChat):
    """The same at Azure: a deployment stands in the path, and the key in a header of its own."""

    def path(self, model: str, settings: Mapping[str, Any], service: str = "chat/completions") -> str:
        if str(settings.get("api_base") or "").rstrip("/").endswith("/v1"):
            return super().path(model, settings, service)
        version = quote(str(settings.get("api_version") or _AZURE_VERSION), safe="")
        return f"/openai/deployments/{quote(model, safe='')}/{service}?api-version={version}"

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return api_key_header(settings)


_AZURE_VERSION: Final = "2024-10-21"
"""The latest version that Azure calls generally available."""

OPENAI_CHAT: Final = OpenAIChat()
AZURE_CHAT: Final = AzureChat()

_ANSWER_TOOL: Final = "give_answer"
"""The tool that a model is made to call where that is how a vendor takes schemas."""


def _options(request: Request, traits: VendorTraits) -> dict[str, Any]:
    """The further parameters of a request, by the vendor's names."""
    options: dict[str, Any] = {}
    for name, value in request.extra.items():
        if name == "parallel_tool_calls" and not request.tools:
            continue  # Vendors refuse it where there is nothing to call.
        if name == "thinking" and isinstance(value, Mapping):
            options |= _thinking_options(cast("Mapping[str, Any]", value), traits)
        elif name == "reasoning_effort" and value == "none" and traits.can.stops_thinking_by:
            options["thinking"] = {"type": traits.can.stops_thinking_by}
        elif wire := traits.options.get(name, name):
            options[wire] = value
    return options


def _thinking_options(thinking: Mapping[str, Any], traits: VendorTraits) -> dict[str, Any]:
    budget = thinking.get("budget_tokens")
    if traits.thinking_budget == "openrouter" and budget is not None:
        return {"reasoning": {"max_tokens": budget}}
    if traits.thinking_budget == "google" and budget is not None:
        return {"extra_body": {"google": {"thinking_config": {"thinking_budget": budget}}}}
    return {"thinking": {"type": "enabled", **thinking}}


def _ask_for_schema(request: Request, traits: VendorTraits) -> dict[str, Any]:
    if traits.structured_output == "json_schema":
        return {"response_format": {"type": "json_schema", "json_schema": describe_schema(request, traits)}}
    if traits.structured_output == "json_object":
        return {"response_format": {"type": "json_object"}}
    if traits.structured_output == "tool":
        function = {"name": _ANSWER_TOOL, "parameters": request.response_schema}
        tool = {"type": "function", "function": function}
        choice = {"type": "function", "function": {"name": _ANSWER_TOOL}}
        return {"tools": [*request.tools, tool], "tool_choice": "required" if request.tools else choice}
    return {}


# --- Whole answers


def _first_choice(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = list_of_objects(body.get("choices"))
    return choices[0] if choices else None


def _read_content(content: Any) -> tuple[str, str]:
    """(text, refusal) of a content, which may be a text, nothing, or a list of parts."""
    if isinstance(content, str):
        return content, ""
    parts = list_of_objects(content)
    texts = (as_text(each.get("text")) for each in parts if each.get("type") in ("text", "output_text"))
    return "".join(texts), "".join(as_text(each.get("refusal")) for each in parts)


def _read_call(call: Mapping[str, Any], index: int) -> ToolRequest:
    function = as_object(call.get("function"))
    return ToolRequest(
        as_text(call.get("id")) or f"call_{index}",
        as_text(function.get("name")),
        _read_arguments(function.get("arguments")),
    )


def _read_arguments(arguments: Any) -> str:
    """Some servers send a value where the protocol has its JSON text."""
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


_REASONS: Final = {
    **dict.fromkeys(("eos", "end_turn", "stop_sequence", "STOP", "COMPLETE"), "stop"),
    **dict.fromkeys(("max_tokens", "model_length", "MAX_TOKENS"), "length"),
    "function_call": "tool_calls",
}
"""Words of vendors and servers whose answers are otherwise OpenAI's."""


def read_chat_usage(usage: Any, traits: VendorTraits) -> TokenUsage:
    """The tokens that were told; all unknown where there are none."""
    if not isinstance(usage, Mapping):
        return TokenUsage()
    counts = cast("Mapping[str, Any]", usage)
    prompt, completion = _count(counts, "prompt_tokens"), _count(counts, "completion_tokens")
    if not (prompt or completion):
        return TokenUsage()
    reasoning, total = _first_count(counts, traits.reasoning_tokens), _count(counts, "total_tokens")
    if traits.reasoning_is_apart and (total or reasoning):
        whole = max(completion or 0, total - (prompt or 0) if total else (completion or 0) + (reasoning or 0))
        reasoning = reasoning or whole - (completion or 0) or None
        completion = whole
    cached, cache_writes = (_first_count(counts, each) for each in (traits.cached_tokens, traits.cache_write_tokens))
    return TokenUsage(prompt, completion, cached, cache_writes, reasoning)


def read_told_cost(usage: Any, traits: VendorTraits) -> float | None:
    """Dollars that the vendor says it charged; None where it says nothing.

    With a key of the customer's own OpenRouter's price is a fee, beside what the other vendor takes.
    """
    cost = read_cost(_find_place(usage, traits.told_cost)) if traits.told_cost else None
    if cost is None:
        return None
    is_fee = _find_place(usage, "is_byok") is True
    upstream = read_cost(_find_place(usage, "cost_details.upstream_inference_cost")) if is_fee else None
    return cost * traits.told_cost_unit + (upstream or 0.0)


def _first_count(usage: Mapping[str, Any], places: Sequence[str]) -> int | None:
    return next((count for each in places if (count := _count(usage, each)) is not None), None)


def _count(usage: Mapping[str, Any], place: str) -> int | None:
    """The number at a place such as `prompt_tokens_details.cached_tokens`."""
    return read_token_count(_find_place(usage, place))


def _find_place(usage: Any, place: str) -> Any:
    value: Any = usage
    for name in place.split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value


def _unwrap_answer_tool(reply: Reply, traits: VendorTraits) -> Reply:
    """The answer as text, where the model was made to give it as a tool's arguments."""
    answer = next((each for each in reply.tool_calls if each.name == _ANSWER_TOOL), None)
    if answer is None or traits.structured_output != "tool":
        return reply
    return reply._replace(content=answer.arguments, tool_calls=(), finish_reason="stop")


# --- Streamed answers


class ChatCollector:
    """`AnswerCollector` of chunks."""

    def __init__(self, traits: VendorTraits) -> None:
        self.is_complete = self.has_begun = False
        self._traits = traits
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: dict[int, list[str]] = {}
        """Id and name."""
        self._arguments: dict[int, list[str]] = {}
        """Their pieces."""
        self._by_id: dict[str, int] = {}
        """Id → the first call that was given it."""
        self._last = 0
        """The greatest index of a call."""
        self._indices: dict[int, int] = {}
        """Index as the server tells it → the call that its pieces belong to by now."""
        self._vendor_fields = KeptFields(traits)
        self._usage: Any = None
        self._model = ""
        self._reason = ""
        self._choice: Any = None
        """The index of the answer that is read."""

    def add(self, event: StreamedEvent) -> str:
        if event.data.strip() == "[DONE]":
            self.is_complete = True
            return ""
        chunk = event.read()
        if chunk.get("error") or event.kind == "error":
            raise StreamFailureError(chunk)
        return self.add_chunk(chunk)

    def add_chunk(self, chunk: Mapping[str, Any]) -> str:
        """Take the content of an event."""
        self._model = as_text(chunk.get("model")) or self._model
        self._usage = chunk.get("usage") or self._usage
        for choice in list_of_objects(chunk.get("choices")):
            index = choice.get("index") or 0
            self._choice = index if self._choice is None else self._choice
            if index == self._choice:  # Of several answers the first one is taken.
                return self._add_choice(choice)
        return ""

    @property
    def has_ended(self) -> bool:
        return bool(self._reason)

    def answer(self) -> VendorAnswer:
        if not (self._reason or (self.is_complete and (self._texts or self._calls))):
            raise IncompleteAnswerError("the answer broke off before its end")
        parts = sorted(self._calls.items())
        calls = with_own_ids(ToolRequest(id, name, "".join(self._arguments[index])) for index, (id, name) in parts)
        reply = Reply(
            content="".join(self._texts),
            tool_calls=calls,
            usage=read_chat_usage(self._usage, self._traits),
            cost_usd=read_told_cost(self._usage, self._traits),
            finish_reason=read_finish_reason(self._reason, _REASONS, has_calls=bool(calls)),
            model=self._model,
            vendor_parts=self._vendor_fields.parts(
                {index: call.id for (index, _), call in zip(parts, calls, strict=True)}
            ),
        )
        return VendorAnswer(_unwrap_answer_tool(reply, self._traits), "".join(self._refusals))

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        self._reason = as_text(choice.get("finish_reason")) or self._reason
        self._usage = choice.get("usage") or self._usage  # Some vendors put it here.
        delta = as_object(choice.get("delta") or choice.get("message"))
        self.has_begun = self.has_begun or any(value for name, value in delta.items() if name != "role")
        self._vendor_fields.add(delta)
        for position, call in enumerate(list_of_objects(delta.get("tool_calls"))):
            self._add_call(call, position)
        piece, refusal = _read_content(delta.get("content"))
        if piece:
            self._texts.append(piece)
        if refusal_text := as_text(delta.get("refusal")) or refusal:
            self._refusals.append(refusal_text)
        return piece

    def _add_call(self, call: Mapping[str, Any], position: int) -> None:
        """Name and id come with the first piece of a tool call, its arguments bit by bit."""
        own_index = call.get("index")
        index = self._told_index(own_index, call) if isinstance(own_index, int) else self._next_index(call, position)
        self._last = max(self._last, index) if self._calls else index
        parts = self._calls.setdefault(index, [f"call_{index}", ""])
        function = as_object(call.get("function"))
        self._vendor_fields.add_call(index, call)
        parts[0] = as_text(call.get("id")) or parts[0]
        self._by_id.setdefault(parts[0], index)
        name = as_text(function.get("name"))
        parts[1] += "" if name == parts[1] else name  # Some servers say it again with every piece.
        self._arguments.setdefault(index, []).append(_read_arguments(function.get("arguments")))

    def _told_index(self, own_index: int, call: Mapping[str, Any]) -> int:
        """Some servers give every call the index 0: another id with a name begins another call."""
        index = self._indices.get(own_index)
        if index is None:
            index = self._last + 1 if own_index in self._calls else own_index
        elif (id := as_text(call.get("id"))) and id != self._calls[index][0] and self._calls[index][1]:
            index = self._last + 1 if as_text(as_object(call.get("function")).get("name")) else index
        elif not id and as_text(as_object(call.get("function")).get("name")) and self._is_whole(index):
            index = self._last + 1
        self._indices[own_index] = index
        return index

    def _is_whole(self, index: int) -> bool:
        """Tells whether a call has all its arguments: what comes with a name then is another one."""
        try:
            return isinstance(json.loads("".join(self._arguments[index])), dict)
        except (ValueError, RecursionError):
            return False

    def _next_index(self, call: Mapping[str, Any], position: int) -> int:
        """Returns the index of a tool call's piece without one: a new id starts a call, other pieces continue the
        last.
        """
        id = as_text(call.get("id"))
        if not id:
            return self._last if self._calls else position
        index = self._by_id.get(id)
        return index if index is not None and self._calls[index][0] == id else len(self._calls)
