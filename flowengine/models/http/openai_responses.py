"""Speaks OpenAI's Responses API: how a request becomes a body. How answers are read is in `responses_answers`.

It is asked where a model has no chat completions, or these refuse what is asked (tools beside thinking). The vendor
keeps nothing of a chat (`store: false`): what the model thought goes back with it, encrypted, from round to round.
Sources, as of November 2026: https://developers.openai.com/api/reference/resources/responses/methods/create,
https://developers.openai.com/api/docs/guides/reasoning, https://developers.openai.com/api/docs/guides/function-calling
and https://learn.microsoft.com/azure/ai-foundry/openai/how-to/responses
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, cast

from flowengine.models.attachments import responses_parts
from flowengine.models.http.chat_protocol import OF_CALL, VendorAnswer, api_key_header, bearer_header
from flowengine.models.http.openai_cache import SharedBeginning, find_shared_beginning
from flowengine.models.http.openai_schema import describe_function, describe_schema
from flowengine.models.http.responses_answers import PHASE, REASONING, ResponseCollector, read_response
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import Message
from flowengine.models.model import Request


class OpenAIResponses:
    """`ChatProtocol` of `/responses`."""

    def path(self, model: str, settings: Mapping[str, Any]) -> str:
        return "/responses"

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return bearer_header(settings)

    def body(self, request: Request, traits: VendorTraits, *, stream: bool) -> dict[str, Any]:
        system_messages = list(takewhile(lambda each: each.role == "system", request.messages))
        shared = find_shared_beginning(request, traits)
        if shared is not None and shared.message < len(system_messages):
            system_messages = []  # No mark can stand in the instructions.
        items = [
            item
            for at, each in enumerate(request.messages[len(system_messages) :], len(system_messages))
            for item in _to_items(each, traits, shared if shared is not None and at == shared.message else None)
        ]
        body: dict[str, Any] = {"model": request.model, "input": items, "store": False}
        if instructions := "\n\n".join(each.content for each in system_messages if each.content.strip()):
            body["instructions"] = instructions
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        body |= traits.cache_options(request.cache) | (shared.options if shared is not None else {})
        body |= _make_options(request, traits)
        if request.tools:
            body["tools"] = [_make_tool(each, traits) for each in request.tools]
        if request.response_schema is not None and (traits.schema_with_tools or not request.tools):
            body |= _ask_for_schema(request, traits, body.get("text", {}))
        return body | {"stream": True} if stream else body

    def read(self, body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
        return read_response(body, traits)

    def collector(self, traits: VendorTraits) -> ResponseCollector:
        return ResponseCollector(traits)


class AzureResponses(OpenAIResponses):
    """The same at Azure: the deployment is named as the model, and the key stands in a header of its own."""

    def path(self, model: str, settings: Mapping[str, Any]) -> str:
        is_below = str(settings.get("api_base") or "").rstrip("/").endswith("/v1")
        return "/responses" if is_below else "/openai/v1/responses"

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return api_key_header(settings)


OPENAI_RESPONSES: Final = OpenAIResponses()
AZURE_RESPONSES: Final = AzureResponses()


# --- The chat, as items


def _to_items(message: Message, traits: VendorTraits, shared: SharedBeginning | None) -> Iterator[dict[str, Any]]:
    """`shared`: what other prompts begin with, where it ends in the message."""
    text = message.content if shared is None else shared.split_text(message.content, "input_text")
    match message.role:
        case "system":
            yield {"role": "developer", "content": text}
        case "tool":
            yield {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": message.content}
        case "user":
            yield {"role": "user", "content": responses_parts(message) if message.attachments else text}
        case "assistant":
            yield from _to_answer_items(message, traits)


def _to_answer_items(message: Message, traits: VendorTraits) -> Iterator[dict[str, Any]]:
    """Yields the items of an answer: a thought stands before what the model said or asked for then."""
    yield from _thoughts(message.vendor_parts, traits, None)
    if message.content:
        marks = [each for each in message.vendor_parts if PHASE in each]
        yield {"role": "assistant", "content": message.content, **(marks[0] if marks else {})}
    for call in message.tool_calls:
        yield from _thoughts(message.vendor_parts, traits, call.id)
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"}


def _thoughts(parts: Sequence[Mapping[str, Any]], traits: VendorTraits, call: str | None) -> Iterator[dict[str, Any]]:
    """Those of this vendor; another one could not read them."""
    for part in parts:
        if part.get("type") == REASONING and part.get("vendor") == traits.name and part.get(OF_CALL) == call:
            yield {key: value for key, value in part.items() if key not in ("vendor", OF_CALL)}


# --- Options, tools and shapes

_ELSEWHERE: Final = frozenset({"reasoning_effort", "reasoning", "verbosity", "temperature", "top_p", "tool_choice"})
"""Options that have another form here, or are sent under a condition."""


def _make_options(request: Request, traits: VendorTraits) -> dict[str, Any]:
    extra, can = request.extra, traits.can
    options = {name: value for name, value in extra.items() if name not in _ELSEWHERE}
    if not request.tools:
        options.pop("parallel_tool_calls", None)
    effort = extra.get("reasoning_effort")
    sampling = {"temperature": request.temperature, "top_p": extra.get("top_p")}
    if can.is_sampled_at(effort) is not False:
        options |= {name: value for name, value in sampling.items() if value is not None}
    further: Any = extra.get("reasoning")
    reasoning = dict(cast("Mapping[str, Any]", further)) if isinstance(further, Mapping) else {}
    if reasoning or effort is not None:
        options["reasoning"] = reasoning if effort is None else {**reasoning, "effort": effort}
    if can.thinks:
        options["include"] = ["reasoning.encrypted_content"]
    if "verbosity" in extra:
        options["text"] = {"verbosity": extra["verbosity"]}
    if "tool_choice" in extra:
        options["tool_choice"] = _make_choice(extra["tool_choice"])
    return options


def _make_choice(tool_choice: Any) -> Any:
    """A function is named here without a map of its own."""
    if not isinstance(tool_choice, Mapping):
        return tool_choice
    choice = cast("Mapping[str, Any]", tool_choice)
    return {"type": "function", **choice["function"]} if "function" in choice else choice


def _make_tool(schema: Mapping[str, Any], traits: VendorTraits) -> dict[str, Any]:
    """Functions are strict here where nothing is said, and their schemas would be changed for it."""
    return {"type": "function", "strict": False, **describe_function(schema, traits)}


def _ask_for_schema(request: Request, traits: VendorTraits, text: Mapping[str, Any]) -> dict[str, Any]:
    if traits.structured_output == "json_object":
        return {"text": {**text, "format": {"type": "json_object"}}}
    if traits.structured_output == "prompt":
        return {}
    return {"text": {**text, "format": {"type": "json_schema", **describe_schema(request, traits)}}}
