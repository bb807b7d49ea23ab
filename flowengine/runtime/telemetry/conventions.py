"""Writes what was said in a call in the form of the GenAI conventions: messages made of parts. Pure; masks nothing.

Source: the JSON schemas of `gen_ai.input.messages` and `gen_ai.output.messages` in the OpenTelemetry semantic
conventions for generative AI, as they stood in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from flowengine.core import ModelCall, ToolCall

# --- Names of spans, attributes and metrics

OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

WORKFLOW_NAME: Final = "gen_ai.workflow.name"
AGENT_NAME: Final = "gen_ai.agent.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_OPTIONS: Final = {
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
"""Option of a model call → its attribute."""
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"
TOKEN_TYPE: Final = "gen_ai.token.type"

EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

RUN_ID: Final = "flowengine.run.id"
RUN_STATUS: Final = "flowengine.run.status"
RUN_OUTPUTS: Final = "flowengine.run.outputs"
NODE: Final = "flowengine.node.path"
NODE_KIND: Final = "flowengine.node.kind"
NODE_STATUS: Final = "flowengine.node.status"
NODE_ROUTE: Final = "flowengine.node.route"
NODE_CAUSE: Final = "flowengine.node.skip_cause"
NODE_OUTPUT: Final = "flowengine.node.output"
PURPOSE: Final = "flowengine.call.purpose"
ATTEMPTS: Final = "flowengine.call.attempts"
COST: Final = "flowengine.cost_usd"
COSTS: Final = (COST, "gen_ai.usage.cost", "llm.cost.total")
"""Where the cost of a call stands, in dollars: our name, the one that Langfuse reads, and OpenInference's. The
convention has no name for it."""
EFFECT: Final = "flowengine.tool.effect"
SKILL: Final = "flowengine.skill.id"
SKILL_LEVEL: Final = "flowengine.skill.level"
SKILL_TOKENS: Final = "flowengine.skill.tokens"
SKILL_MEMORY: Final = "flowengine.skill.memory_bytes"
PROVIDER: Final = "flowengine.context_provider"
FRAGMENTS_KEPT: Final = "flowengine.context.fragments_kept"
FRAGMENTS_DROPPED: Final = "flowengine.context.fragments_dropped"
CONTEXT_TOKENS: Final = "flowengine.context.tokens"

TOKEN_USAGE_METRIC: Final = "gen_ai.client.token.usage"
DURATION_METRIC: Final = "gen_ai.client.operation.duration"
COST_METRIC: Final = "flowengine.run.cost"
NODE_DURATION_METRIC: Final = "flowengine.node.duration"


_FINISH: Final = {"tool_calls": "tool_call", "function_call": "tool_call"}
"""Finish reasons that the convention calls otherwise than the chat format does."""


class ToolRequestPart(NamedTuple):
    """A model's wish to have a tool called."""

    id: str
    name: str
    arguments: Any
    """Parsed; the text itself where it is no JSON."""


def input_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages as they were sent.

    >>> input_messages([{"role": "user", "content": "Hello"}])
    [{'role': 'user', 'parts': [{'type': 'text', 'content': 'Hello'}]}]
    """
    return [_make_message(each) for each in messages]


def output_messages(call: ModelCall) -> list[dict[str, Any]]:
    """The answer of a model call, with the reason why it ended."""
    message = _make_message({"role": "assistant", "content": call.content, "tool_calls": call.tool_calls})
    reason = call.finish_reason or ("tool_call" if call.tool_calls else "stop")
    return [{**message, "finish_reason": _FINISH.get(reason, reason)}]


def _make_message(shape: Mapping[str, Any]) -> dict[str, Any]:
    role, content = str(shape.get("role", "")), shape.get("content")
    if role == "tool":
        parts = [{"type": "tool_call_response", "id": shape.get("tool_call_id"), "response": content}]
        return {"role": role, "parts": parts}
    parts = list(_text_parts(content))
    for id, name, arguments in requests_of(shape.get("tool_calls") or ()):
        parts.append({"type": "tool_call", "id": id, "name": name, "arguments": arguments})
    return {"role": role, "parts": parts}


def _text_parts(content: Any) -> Iterable[dict[str, Any]]:
    """A content that is a text, or a list of parts of the chat format."""
    for each in cast("list[Any]", content) if isinstance(content, list) else [content]:
        text = cast("Mapping[str, Any]", each).get("text") if isinstance(each, Mapping) else each
        if text:
            yield {"type": "text", "content": str(text)}


def requests_of(calls: Sequence[Mapping[str, Any]]) -> list[ToolRequestPart]:
    """Tool calls of the chat format, or of a record (where name and arguments stand beside the id)."""
    parts: list[ToolRequestPart] = []
    for call in calls:
        function = cast("Mapping[str, Any]", call.get("function") or call)
        parts.append(
            ToolRequestPart(str(call.get("id", "")), str(function.get("name", "")), _parse_arguments(function))
        )
    return parts


def _parse_arguments(function: Mapping[str, Any]) -> Any:
    text = function.get("arguments")
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def take_request(requests: list[ToolRequestPart], call: ToolCall) -> str | None:
    """The id of the request that a tool call answers, which is taken off the list; None where none fits."""
    matches = [each for each in requests if each.name == call.name]
    equal = [each for each in matches if each.arguments == dict(call.arguments)]
    match = next(iter(equal or matches), None)
    if match is None:
        return None
    requests.remove(match)
    return match.id
