"""Speaks Anthropic's protocol of messages: how a request becomes a body.

Its chat has two roles that take turns; the system's messages stand apart, and the results of tools belong to the
user's turn. What models differ in is data (`vendor_traits`); how answers are read is in `anthropic_answers`.
Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

from flowengine.models.attachments import anthropic_parts
from flowengine.models.capabilities import EFFORT_BUDGETS
from flowengine.models.http.anthropic_answers import (
    ANSWER_TOOL,
    THINKING,
    VALUE_TOOL,
    WRAPPED_VALUE,
    MessageCollector,
    read_message,
)
from flowengine.models.http.anthropic_schema import (
    answer_format,
    as_tool_input,
    is_object,
    make_strict_tools,
    takes_as_format,
)
from flowengine.models.http.chat_protocol import VendorAnswer
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Request

# --- How far the cache may keep a prompt: up to the ends of tools, system and what stays of the question
#
# A prompt is a prefix of tools, system and messages, in this order. What is shorter than the model's minimum is not
# kept whatever is marked; a text has at most as many tokens as bytes, so that nothing is counted here.
# Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching

MARK: Final = {"type": "ephemeral"}
"""Kept for five minutes from the last use on."""

_MARK_KEY: Final = "cache_control"


def split_text(text: str, stable: int) -> list[dict[str, Any]]:
    """The blocks of a text whose first characters are the same for other questions; these are marked.

    >>> [(each["text"], "cache_control" in each) for each in split_text("Context: long\\n\\nWhy?", 13)]
    [('Context: long', True), ('\\n\\nWhy?', False)]
    """
    if not 0 < stable < len(text) or not text[:stable].strip() or not text[stable:].strip():
        return [{"type": "text", "text": text}]
    return [{"type": "text", "text": text[:stable], _MARK_KEY: MARK}, {"type": "text", "text": text[stable:]}]


def mark_prefixes(body: dict[str, Any], minimum: int) -> None:
    """Mark the prompt of a body whose messages have the marks of `split_text`; those that keep nothing go.

    Where tools have answered, the whole chat is marked too: the next round begins with it. The API takes four marks,
    and none of five minutes before one of an hour: where an author asks for a mark, all are as that one.
    """
    mark = body.get(_MARK_KEY, MARK)
    size = 0
    for part in ("tools", "system"):
        blocks: list[dict[str, Any]] = body.get(part) or []
        size += sum(map(_size_of, blocks))
        if blocks and size >= minimum:
            blocks[-1][_MARK_KEY] = mark
    marked: list[dict[str, Any]] = []
    for block in _each_block(body):
        size += _size_of(block)
        if block.pop(_MARK_KEY, None) is not None and size >= minimum:
            marked.append(block)
    last: dict[str, Any] = body["messages"][-1]["content"][-1]
    has_answers = any(each.get("type") == "tool_result" for each in _each_block(body))
    if has_answers and size >= minimum and _can_be_marked(last):
        last[_MARK_KEY] = mark
    for block in marked[-1:]:
        block[_MARK_KEY] = mark


def _each_block(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        yield from message["content"]


def _size_of(block: dict[str, Any]) -> int:
    """Bytes: of a text its own, of all else as JSON."""
    text = block.get("text")
    return len((text if isinstance(text, str) else json.dumps(block, ensure_ascii=False)).encode("utf-8", "replace"))


def _can_be_marked(block: dict[str, Any]) -> bool:
    return block.get("type") not in THINKING and block.get("text") != ""


_VERSION: Final = "2023-06-01"

_NOTHING: Final = "."
"""Stands where the API wants a text and there is none."""

_EFFORTS: Final = ((2048, "low"), (8192, "medium"))
"""Up to so many tokens to think with: the effort, for models that take no budget."""


class AnthropicMessages:
    """`ChatProtocol` of `/v1/messages`."""

    def path(self, model: str, settings: Mapping[str, Any]) -> str:
        address = str(settings.get("api_base") or "").rstrip("/")
        if address.endswith("/messages"):
            return ""
        return "/messages" if address.endswith("/v1") else "/v1/messages"

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        key = settings.get("api_key")
        return {
            "anthropic-version": str(settings.get("api_version") or _VERSION),
            **({"x-api-key": str(key)} if key else {}),
        }

    def body(self, request: Request, traits: VendorTraits, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": request.model, "max_tokens": 0}
        cache = request.cache
        is_marked = cache is not None and traits.cache_marks == "blocks" and cache.is_wanted
        body |= _make_chat(request.messages, is_marked=is_marked)
        body |= _make_options(request, traits)
        body |= _make_tools(request, traits, is_thinking=_is_thinking(body))
        if request.response_schema is not None and (traits.schema_with_tools or not request.tools):
            _ask_for_schema(body, request.response_schema, traits)
        body["max_tokens"] = request.max_tokens or _longest_answer(traits, body.get("thinking", {}))
        if request.temperature is not None and traits.can.sampling != "never" and not _is_thinking(body):
            body["temperature"] = request.temperature
        if is_marked:
            mark_prefixes(body, traits.cache_minimum)
        return body | {"stream": True} if stream else body

    def read(self, body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
        return read_message(body)

    def collector(self, traits: VendorTraits) -> MessageCollector:
        return MessageCollector()


ANTHROPIC_MESSAGES: Final = AnthropicMessages()

# --- The chat


def _make_chat(messages: Sequence[Message], *, is_marked: bool) -> dict[str, Any]:
    """`is_marked`: what stays of a message is a block of its own, and marked."""
    system = [each.content for each in messages if each.role == "system" and each.content.strip()]
    dialog = (each if is_marked else each._replace(stable=0) for each in messages if each.role != "system")
    turns = list(_take_turns(dialog))
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": []})
    _end_without_space(turns[-1])
    for turn in turns:
        turn["content"] = turn["content"] or [_text_block(_NOTHING)]
    chat: dict[str, Any] = {"system": [_text_block(each) for each in system]} if system else {}
    return chat | {"messages": turns}


def _take_turns(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Messages in a row that are one side's, as one."""
    for role, turn in groupby(messages, lambda each: "assistant" if each.role == "assistant" else "user"):
        yield {"role": role, "content": [block for each in turn for block in _to_blocks(each)]}


def _to_blocks(message: Message) -> list[dict[str, Any]]:
    texts = split_text(message.content, message.stable) if message.content.strip() else []
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": _to_id(message.tool_call_id or ""), "content": message.content}
        return [result | {"is_error": True} if message.is_error else result]
    if message.attachments:
        return anthropic_parts(message)
    thinking = [dict(each) for each in message.vendor_parts if each.get("type") in THINKING]
    return [*thinking, *texts, *map(_make_tool_use, message.tool_calls)]


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _make_tool_use(call: ToolRequest) -> dict[str, Any]:
    try:
        arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = {}
    return {
        "type": "tool_use",
        "id": _to_id(call.id),
        "name": call.name,
        "input": cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {},
    }


def _to_id(id: str) -> str:
    """An id as the API takes it, which may be another vendor's."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", id) or "_"


def _end_without_space(turn: dict[str, Any]) -> None:
    """Removes trailing spaces from the required beginning of an answer, which vendors reject."""
    if turn["role"] == "assistant" and turn["content"] and turn["content"][-1]["type"] == "text":
        turn["content"][-1]["text"] = turn["content"][-1]["text"].rstrip()


# --- Options

_NEVER_SENT: Final = frozenset({"tool_choice", "parallel_tool_calls", "thinking", "reasoning_effort", "stop"})
"""Options that have another form here."""


def _make_options(request: Request, traits: VendorTraits) -> dict[str, Any]:
    extra = request.extra
    options = {
        wire: value
        for name, value in extra.items()
        if name not in _NEVER_SENT and (wire := traits.options.get(name, name))
    }
    stop: Any = extra.get("stop")
    if stop:
        options["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    return options | _make_thinking(extra, traits)


def _make_thinking(extra: Mapping[str, Any], traits: VendorTraits) -> dict[str, Any]:
    """Makes the options that say whether and how much the model thinks: by tokens or by effort, as it takes it."""
    thinking: Any = extra.get("thinking")
    budget: Any = cast("Mapping[str, Any]", thinking).get("budget_tokens") if isinstance(thinking, Mapping) else None
    effort: Any = extra.get("reasoning_effort")
    if isinstance(budget, int) and traits.can.thinks_by != "effort":
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    if isinstance(budget, int) and effort is None:
        effort = next((name for most, name in _EFFORTS if budget <= most), "high")
    elif isinstance(thinking, Mapping) and effort is None:
        return {"thinking": dict(cast("Mapping[str, Any]", thinking))}
    if effort == "none" and traits.can.stops_thinking_by:
        return {"thinking": {"type": traits.can.stops_thinking_by}}
    if not isinstance(effort, str) or effort == "none":
        return {}
    if traits.can.thinks_by not in ("effort", "both"):
        return {"thinking": {"type": "enabled", "budget_tokens": EFFORT_BUDGETS.get(effort, EFFORT_BUDGETS["medium"])}}
    config = {"output_config": {"effort": "low" if effort == "minimal" else effort}}
    return config | ({"thinking": {"type": "adaptive"}} if traits.can.thinks_adaptively else {})


def _longest_answer(traits: VendorTraits, thinking: Mapping[str, Any]) -> int:
    """The API wants a bound: the longest answer of the model, which holds what it thinks."""
    budget = thinking.get("budget_tokens")
    return max(traits.longest_answer, _SHORTEST, (budget if isinstance(budget, int) else 0) + 1)


_SHORTEST: Final = 4096


# --- Tools and schemas


def _make_tools(request: Request, traits: VendorTraits, *, is_thinking: bool) -> dict[str, Any]:
    """Tools as the API has them. A chat in which tools were called names them even where none may be called now."""
    if not request.tools:
        called = dict.fromkeys(call.name for each in request.messages for call in each.tool_calls)
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in called]
        return {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}
    choice = _make_choice(request.extra, takes_forced=traits.can.takes_forced_tool is not False and not is_thinking)
    tools = [_make_tool(each) for each in request.tools]
    if traits.strict_tools:
        make_strict_tools(tools)
    return {"tools": tools, **({"tool_choice": choice} if choice else {})}


def _make_tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    function = cast("Mapping[str, Any]", schema.get("function", schema))
    parameters = cast("Mapping[str, Any]", function.get("parameters") or {})
    tool: dict[str, Any] = {"name": function["name"]}
    if description := function.get("description"):
        tool["description"] = description
    return tool | {"input_schema": {"type": "object", "properties": {}, **parameters}}


def _make_choice(extra: Mapping[str, Any], *, takes_forced: bool) -> dict[str, Any]:
    tool_choice: Any = extra.get("tool_choice")
    choice: dict[str, Any] = {}
    if isinstance(tool_choice, Mapping):
        shape = cast("Mapping[str, Any]", tool_choice)
        name = cast("Mapping[str, Any]", shape.get("function") or {}).get("name")
        choice = {"type": "tool", "name": name} if name else dict(shape)
    elif isinstance(tool_choice, str):
        choice = {"type": {"required": "any"}.get(tool_choice, tool_choice)}
    if choice.get("type") in ("any", "tool") and not takes_forced:
        choice = {"type": "auto"}
    if extra.get("parallel_tool_calls") is not None and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": not extra["parallel_tool_calls"]}
    return choice


def _is_thinking(body: Mapping[str, Any]) -> bool:
    return body.get("thinking", {}).get("type", "disabled") != "disabled"


def _ask_for_schema(body: dict[str, Any], schema: Mapping[str, Any], traits: VendorTraits) -> None:
    """Asks for it as the answer's format where the model has that and a grammar can be made of it; else as the input of
    a tool."""
    if traits.structured_output not in ("json_schema", "tool"):
        return
    if traits.structured_output == "json_schema" and takes_as_format(schema):
        format = {"type": "json_schema", "schema": answer_format(schema)}
        body["output_config"] = {**body.get("output_config", {}), "format": format}
        return
    if "tools" in body:
        return  # A tool that has to be called would keep the model from calling the others.
    name = ANSWER_TOOL if is_object(schema) else VALUE_TOOL
    description = "Give the answer by calling this tool, once and with nothing said beside it."
    body["tools"] = [{"name": name, "description": description, "input_schema": as_tool_input(schema, WRAPPED_VALUE)}]
    is_forced = traits.can.takes_forced_tool is not False and not _is_thinking(body)
    body["tool_choice"] = {"type": "tool", "name": name} if is_forced else {"type": "auto"}
