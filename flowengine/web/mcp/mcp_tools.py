"""Describes flows as MCP tools, and runs as their results. Needs the extra `mcp`; it asks no store and runs nothing.

A flow's tool has the flow's name (`flow_NAME` where a tool of the server's own has it), its inputs as the arguments and
its outputs inside the result. What a run does outside is told by the annotations: hints, as the protocol says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import mcp_types as types

from flowengine.agents.tools.mcp import ServerTool
from flowengine.core import dumps, is_map, to_json_value
from flowengine.flow import Flow
from flowengine.nodes import CompiledFlow
from flowengine.runs import Question
from flowengine.web.service import PersonsAnswer, RunOutcome, make_input_schema, outputs_schema_of, to_text, tooling_of
from visualize.viewer import whole

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_RUN_ID: Final = {"run_id": {"type": "string", "description": "The run's id."}}
_FLOW: Final = {"flow": {"type": "string", "description": "The flow's name."}}
_INPUTS: Final = {"inputs": {"type": "object", "description": "Inputs that are known."}}
_SECONDS: Final = {"type": "number", "minimum": 0, "maximum": 600, "description": "How long to wait at most."}
_QUESTION: Final = {"type": "string", "description": "Which question; left out where the run waits with one."}
_CHOICE: Final = {"type": "string", "description": "One of the question's choices; left out: the client asks its user."}


def _control_tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    **hints: bool,
) -> types.Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    annotations = types.ToolAnnotations.model_validate({"read_only_hint": True, "open_world_hint": False, **hints})
    return types.Tool(name=name, description=description, input_schema=schema, annotations=annotations)


CONTROL_TOOLS: Final[Sequence[types.Tool]] = (
    _control_tool("run_status", "How a run stands: its status, its outputs, what it asks.", _RUN_ID, ["run_id"]),
    _control_tool(
        "await_run",
        "Wait until a run has ended or asks something, and say how it stands then.",
        {**_RUN_ID, "seconds": _SECONDS},
        ["run_id"],
    ),
    _control_tool(
        "answer_approval",
        "Answer what a run waits for; it then goes on, and its result is given.",
        {
            **_RUN_ID,
            "question": _QUESTION,
            "choice": _CHOICE,
            "comment": {"type": "string", "description": "Why."},
            "form": {"type": "object", "description": "What the question asks to be filled in."},
        },
        ["run_id"],
        read_only_hint=False,
        destructive_hint=True,
    ),
    _control_tool(
        "list_runs",
        "The runs, the newest first.",
        {
            **_FLOW,
            "status": {"type": "string", "description": "running, waiting, succeeded, failed, partial, cancelled, …"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        },
    ),
    _control_tool(
        "cancel_run",
        "Stop a run.",
        _RUN_ID,
        ["run_id"],
        read_only_hint=False,
        destructive_hint=True,
        idempotent_hint=True,
    ),
    _control_tool("validate", "Every problem of a flow's file, without running it.", _FLOW, ["flow"]),
    _control_tool(
        "plan", "How many model calls, tokens and dollars a flow can take at most.", {**_FLOW, **_INPUTS}, ["flow"]
    ),
    _control_tool(
        "explain",
        "What the code of a problem means, such as FE203; without one, all codes.",
        {"code": {"type": "string"}},
    ),
)
"""The server's own tools."""


def name_tools(flows: Iterable[str]) -> Mapping[str, str]:
    """Tool → flow.

    >>> name_tools(["triage", "plan"])
    {'triage': 'triage', 'flow_plan': 'plan'}
    """
    own = {each.name for each in CONTROL_TOOLS}
    return {f"flow_{flow}" if flow in own else flow: flow for flow in flows}


def make_flow_tool(name: str, flow: Flow) -> types.Tool:
    """The tool of a flow."""
    waits = any(node.kind == "approval" for node in flow.plan.all_nodes.values())
    more = " It may ask a person before it goes on." if waits else ""
    return types.Tool(
        name=name,
        description=(flow.description or f"Run the flow '{flow.name}'.") + more,
        input_schema={"$schema": _DIALECT, **make_input_schema(flow.plan.inputs)},
        output_schema=_result_schema(flow),
        annotations=_annotations_of(flow.plan),
    )


def _result_schema(flow: Flow) -> dict[str, Any]:
    """Returns the schema of the structured result: how the run stands, with the outputs once there are any."""
    outputs = {key: value for key, value in outputs_schema_of(flow).items() if key != "required"}
    return {
        "type": "object",
        "properties": {
            "run_id": {"type": "string"},
            "status": {"type": "string"},
            "outputs": {**outputs, "description": "Of a run that succeeded."},
            "questions": {"type": "array", "items": {"type": "object"}},
            "error": {"type": "string"},
        },
        "required": ["run_id", "status"],
    }


def _annotations_of(plan: CompiledFlow) -> types.ToolAnnotations:
    """Read-only: no node has an effect outside. Idempotent: all effects may be had twice. The world is open to what
    calls tools, servers or addresses."""
    effects = set(_effects_of(plan))
    open_kinds = {"http", "tool", "function", "code"}
    calls_out = any(node.kind in open_kinds or _tools_of(node) for node in plan.all_nodes.values())
    if effects <= {"none"}:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=calls_out)
    is_idempotent = "external" not in effects
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=not is_idempotent,
        idempotent_hint=is_idempotent,
        open_world_hint=calls_out,
    )


def _effects_of(plan: CompiledFlow) -> Iterable[str]:
    for node in plan.all_nodes.values():
        yield node.effect
        yield from _tools_of(node)


def _tools_of(node: Any) -> list[str]:
    """The effects of the tools that a node's agent has; what servers have is not known, and counts as external."""
    if isinstance(getattr(node, "tool", None), ServerTool):
        return [node.effect]
    tooling = tooling_of(node)
    if tooling is None:
        return []
    effects = [tool.effect for each in tooling.sets for tool in each.tools]
    return [*effects, *("external" for _ in tooling.servers)]


# --- How a run stands, as a tool's result


def data_result(
    text: str, data: Mapping[str, Any], files: Sequence[types.ContentBlock] = (), *, is_error: bool = False
) -> types.CallToolResult:
    """A result with its text; halves of characters, which no message can carry, are replaced."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=whole(text)), *files],
        structured_content=json.loads(whole(json.dumps(to_json_value(data), ensure_ascii=False))),
        is_error=is_error,
    )


def outcome_data(outcome: RunOutcome) -> dict[str, Any]:
    """Returns a run's state in JSON types."""
    data: dict[str, Any] = {"run_id": outcome.run_id, "flow": outcome.flow, "status": outcome.status}
    if outcome.status in ("succeeded", "partial"):
        data["outputs"] = to_json_value(outcome.outputs)
    if outcome.questions:
        data["questions"] = [_question_data(each) for each in outcome.questions]
    if outcome.error is not None:
        data["error"] = f"{f'{outcome.failed_node}: ' if outcome.failed_node else ''}{outcome.error.message}"
    return data


def _question_data(question: Question) -> Mapping[str, Any]:
    data: dict[str, Any] = {
        "question": question.node,
        "message": question.message,
        "choices": list(question.choices),
        "expires": question.expires,
    }
    if question.form is not None:
        data["form"] = to_json_value(question.form)
    if question.tool:
        data["tool"], data["arguments"] = question.tool, to_json_value(question.arguments)
    return data


def describe_outcome(outcome: RunOutcome) -> str:
    """Describes a run's state for the model that called it."""
    match outcome.status:
        case "succeeded" | "partial":
            outputs = outcome.outputs
            return to_text(next(iter(outputs.values()))) if len(outputs) == 1 else dumps(outputs, indent=1)
        case "waiting":
            questions = "\n".join(
                f"{each.node}: {each.message}\nchoices: {', '.join(each.choices)}" for each in outcome.questions
            )
            return f"The run {outcome.run_id} waits for a person:\n{questions}\nAnswer it with answer_approval."
        case "running":
            return f"The run {outcome.run_id} goes on. Call await_run or run_status with its id for its result."
        case status:
            return f"The run {outcome.run_id} is {status}. {outcome_data(outcome).get('error', '')}".strip()


def result_of(outcome: RunOutcome, files: Sequence[types.ContentBlock] = ()) -> types.CallToolResult:
    """A tool's result with the files of its outputs; a run that failed is an error that the model sees."""
    is_error = outcome.status in ("failed", "cancelled")
    return data_result(describe_outcome(outcome), outcome_data(outcome), files, is_error=is_error)


# --- Questions to the client's user

_FIELD_KEYS: Final = ("type", "title", "description", "default")
_FIELD_RULES: Final[Mapping[str, Sequence[str]]] = {
    "string": ("enum", "enumNames", "minLength", "maxLength"),
    "number": ("enum", "minimum", "maximum"),
    "integer": ("enum", "minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
"""Type of a field → the rules that a client's form knows; the rest is checked when the answer comes."""
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})


def elicitation_of(question: Question) -> types.ElicitRequest | None:
    """The question as a form of the client's; None where the form asks for more than such forms have: plain fields
    and choices. Where there is one choice, to accept the form is to choose it."""
    fields: dict[str, Any] = {
        "choice": {"type": "string", "enum": list(question.choices), "description": "What is decided"},
        "comment": {"type": "string", "description": "Why"},
    }
    required = ["choice"]
    if question.form is not None and not question.tool:
        form = cast("Mapping[str, Any]", to_json_value(question.form))
        properties: Mapping[str, Any] = form.get("properties") or {}
        plain = {name: _make_field(each) for name, each in properties.items()}
        if not properties or fields.keys() & properties or None in plain.values():
            return None
        fields |= plain
        required += [name for name in form.get("required", ()) if name in properties]
    if len(question.choices) == 1:
        del fields["choice"], required[0]
    schema = {"type": "object", "properties": fields, "required": required}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=whole(question.message), requested_schema=schema)
    )


def _make_field(schema: Any) -> Mapping[str, Any] | None:
    """The field of a property; None where no form of a client has such fields."""
    rules: Mapping[str, Any] = schema if is_map(schema) else {}
    kind: Any = rules.get("type")
    if kind not in _FIELD_RULES:
        return None
    field = {key: rules[key] for key in (*_FIELD_KEYS, *_FIELD_RULES[kind]) if key in rules}
    if kind == "array":
        items = _make_field(rules.get("items") or {}) or _make_titled(rules.get("items"), "anyOf")
        if items is None or not items.keys() & {"enum", "anyOf"}:
            return None
        return {**field, "items": items}
    if kind == "string":
        field |= _make_titled(rules, "oneOf") or {}
        if rules.get("format") in _FORMATS:
            field["format"] = rules["format"]
    return field


def _make_titled(schema: Any, word: str) -> Mapping[str, Any] | None:
    """Choices with titles, under the word that forms have for them: `oneOf` for one of them, `anyOf` for several."""
    choices: Sequence[Any] = (schema.get(word) if is_map(schema) else None) or ()
    titled = [each for each in choices if is_map(each) and {"const", "title"} <= each.keys()]
    if not titled or len(titled) < len(choices):
        return None
    return {word: [{key: each[key] for key in ("const", "title")} for each in titled]}


def read_elicited(question: Question, reply: types.ElicitResult) -> PersonsAnswer | None:
    """The person's answer; None where there was none: declined, or dismissed."""
    content: Mapping[str, Any] = reply.content or {}
    only = question.choices[0] if len(question.choices) == 1 else None
    choice, comment = content.get("choice", only), content.get("comment")
    if reply.action != "accept" or not isinstance(choice, str):
        return None
    rest = {name: value for name, value in content.items() if name not in ("choice", "comment")}
    has_form = question.form is not None and not question.tool
    return PersonsAnswer(question.node, choice, str(comment or ""), rest if has_form else None)
