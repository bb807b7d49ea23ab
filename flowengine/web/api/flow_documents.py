"""Describes flows as an API: OpenAPI 3.1, made of their own inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from flowengine.core.context import RunStatus
from flowengine.errors import FlowEngineError
from flowengine.flow import Flow
from flowengine.version import __version__
from flowengine.web.api.schemas import ANSWER, LABELS, MALFORMED, POSITION, UNREADABLE_BODY, ref
from flowengine.web.gate.problems import MEDIA_TYPE
from flowengine.web.service.chat_shape import outputs_schema_of, spec_of
from flowengine.web.service.flow_catalog import make_input_schema
from flowengine.web.service.placed_schemas import escape_pointer, move_references

__all__ = ["EVERY_PROBLEM", "describe_flows", "input_schema", "output_schema"]

Schema = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_RUN: Final[Schema] = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "flow": _TEXT,
        "status": {"enum": list(get_args(RunStatus))},
        "started": {"type": "number", "description": "Unix seconds."},
        "finished": {"type": ["number", "null"], "description": "Unix seconds; also since when it waits."},
        "started_at": {"type": "string", "format": "date-time"},
        "finished_at": {"type": ["string", "null"], "format": "date-time", "description": "Once it has ended."},
        "outputs": {"type": ["object", "null"]},
        "error": {"type": ["object", "null"], "description": "`type`, `message` and `node` of what failed."},
        "questions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "node": _TEXT,
                    "message": _TEXT,
                    "choices": {"type": "array", "items": _TEXT},
                    "form": {"type": ["object", "null"], "description": "JSON Schema of what is filled in."},
                    "expires": {"type": ["number", "null"]},
                    "answer": {"type": "string", "description": "Where it is answered."},
                },
            },
        },
        "links": {"type": "object", "additionalProperties": _TEXT},
    },
    "required": ["run_id", "flow", "status", "links"],
}
_PROBLEM: Final[Schema] = {
    "type": "object",
    "properties": {"title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT, "run_id": _TEXT},
    "required": ["title", "status"],
}
_CONTENT: Final = "^data:[^,]{0,200};base64,([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_STREAM: Final = "`progress` and `token` events, and at the end `result`, `question` or `error`."


def input_schema(flow: Flow) -> Schema:
    """A flow's inputs as a JSON Schema. Files are contents or addresses."""
    schema = dict(make_input_schema(flow.plan.inputs))
    fields = flow.plan.inputs or {}
    files = {
        name: {
            "type": "string",
            "pattern": f"{_CONTENT}|^https?://" if flow.plan.files.allow_urls else _CONTENT,
            "description": f"{field.description} (data:TYPE;base64,CONTENT or an address)".strip(),
        }
        for name, field in fields.items()
        if field.type == "file"
    }
    return {**schema, "properties": {**schema["properties"], **files}} if files else schema


def output_schema(flow: Flow) -> Schema:
    """Returns the JSON Schema of a flow's outputs, as far as known."""
    try:
        return {"type": "object"} if spec_of(flow) is None else outputs_schema_of(flow)
    except FlowEngineError:  # A file beside it is gone since.
        return {"type": "object"}


def describe_flows(
    flows: Iterable[Flow], root: str = "", *, needs_key: bool = True, takes_callbacks: bool = True
) -> Mapping[str, Any]:
    """OpenAPI 3.1 of the flows and their runs; `root` is where the app is mounted.

    `needs_key`, `takes_callbacks`: what else holds of the server.
    """
    parameters = [each for each in _CALL_PARAMETERS if takes_callbacks or each["name"] != "Flowengine-Callback"]
    calls = {f"/flows/{flow.name}": {"get": _DESCRIPTION, "post": _describe_call(flow, parameters)} for flow in flows}
    every = EVERY_PROBLEM if needs_key else {status: said for status, said in EVERY_PROBLEM.items() if status != "401"}
    paths = {
        path: {
            method: {**each, "responses": {**_problems(every), **each["responses"]}} for method, each in methods.items()
        }
        for path, methods in {**calls, **_RUN_PATHS}.items()
    }
    schemes = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}} if needs_key else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlowEngine", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": {"Run": _RUN, "Problem": _PROBLEM, "Answer": ANSWER}, **schemes},
        **({"security": [{"key": []}]} if needs_key else {}),
    }


def _describe_call(flow: Flow, parameters: Sequence[Schema]) -> Schema:
    """`POST /flows/NAME`."""
    place = f"#/paths/~1flows~1{escape_pointer(flow.name)}/post/requestBody/content/application~1json/schema"
    inputs = move_references(input_schema(flow), lambda reference: place + reference[1:])
    body = {"required": bool(inputs.get("required")), "content": _json(inputs)}
    return {
        "operationId": flow.name,
        "summary": flow.description or flow.name,
        "parameters": parameters,
        "requestBody": body,
        "responses": {
            "200": {
                "description": "The outputs of the run.",
                "content": {**_json(output_schema(flow)), "text/event-stream": {"schema": {"description": _STREAM}}},
            },
            "202": {"description": "The run goes on, or waits for a person.", "content": _json(ref("Run"))},
            **_problems(_CALL_PROBLEMS),
        },
    }


def _header(name: str, description: str, schema: Schema | None = None) -> Schema:
    said = {"name": name, "in": "header", "description": description, "required": False}
    return {**said, "schema": _TEXT if schema is None else schema}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _problem(description: str) -> Schema:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": ref("Problem")}}}


def _problems(described: Mapping[str, str]) -> dict[str, Schema]:
    return {status: _problem(said) for status, said in described.items()}


EVERY_PROBLEM: Final = {
    "400": MALFORMED,
    "401": "A key is needed.",
    "403": "The key, or pages of that site, may not do this.",
    "404": "There is no such flow or run of this key.",
    "421": "The server is not known by this name.",
    "429": "Too many runs or requests, or today's budget is spent; `Retry-After` says when to ask again.",
    "500": "Something went wrong; the server's log says more.",
    "503": "The store cannot be used now, or the server stops.",
}
"""What any operation may answer."""
_BODY_PROBLEMS: Final = {str(status): said for status, said in UNREADABLE_BODY.items()}
_CALL_PARAMETERS: Final = [
    _header(
        "Idempotency-Key",
        "The run: the same key with the same inputs finds the run that there is.",
        {"type": "string", "pattern": "[!#-~]", "maxLength": 255},
    ),
    _header("Prefer", "`respond-async`: 202 at once. `wait=SECONDS`: 202 after so long."),
    _header(
        "Flowengine-Session",
        "Continue the session of this name, in UTF-8 or as RFC 8187 writes it.",
        {"type": "string", "pattern": "[!-~]", "maxLength": 200},
    ),
    _header(
        "Flowengine-Label",
        "NAME=VALUE, by which the run is found again; written as a session's name, and may stand several times.",
        {**LABELS["items"], "example": "team=billing"},
    ),
    _header("Flowengine-Callback", "An address that is told when the run ends or asks; see the documentation."),
]
_CALL_PROBLEMS: Final = {
    **_BODY_PROBLEMS,
    "409": "The run was cancelled.",
    "422": "The inputs do not fit, or the key was used with others.",
    "500": "The run failed.",
    "503": "The server stops; the run goes on at its next start.",
}
_RUN_ID: Final = {"name": "run_id", "in": "path", "description": "The run's id.", "required": True, "schema": _TEXT}


_RUN_REF: Final = ref("Run")
_ANSWERED: Final[Schema] = {
    "type": "object",
    "properties": {"run_id": _TEXT, "node": {"type": "string", "description": "Whose question it was."}},
    "required": ["run_id", "node"],
}


def _on_run(
    id: str, summary: str, body: str | None = None, status: str = "200", answer: Schema | None = None
) -> Schema:
    asked: dict[str, Any] = {"parameters": [_RUN_ID]}
    problems = {"409": "As the run stands, it cannot be done.", "422": "Its record cannot be read."}
    if body is not None:
        asked["requestBody"] = {"required": True, "content": _json(ref(body))}
        problems |= _BODY_PROBLEMS
    return {
        "operationId": id,
        "summary": summary,
        **asked,
        "responses": {status: {"description": "The run.", "content": _json(answer or _RUN_REF)}, **_problems(problems)},
    }


_EVENTS: Final[Schema] = {
    "operationId": "followRun",
    "summary": "Follow a run",
    "parameters": [_RUN_ID, _header("Last-Event-ID", "The last position that is known.", POSITION)],
    "responses": {
        "200": {"description": _STREAM, "content": {"text/event-stream": {}}},
        "204": {"description": "No more will come."},
        **_problems(
            {"404": "There is no such run of this key, or no such position.", "422": "Its record cannot be read."}
        ),
    },
}
_FILTERS: Final[Mapping[str, tuple[str, Schema]]] = {
    "flow": ("Runs of the flow of this name.", _TEXT),
    "status": ("Runs of this status.", {"enum": [*get_args(RunStatus), ""]}),
    "label": ("Runs with this label, `NAME=VALUE`; given several times, with all of them.", LABELS),
}
_RUNS: Final[Schema] = {
    "operationId": "listRuns",
    "summary": "The runs of this key, the newest first",
    "parameters": [
        {"name": name, "in": "query", "description": words, "schema": schema}
        for name, (words, schema) in _FILTERS.items()
    ],
    "responses": {
        "200": {"description": "At most 100.", "content": _json({"type": "object"})},
        "422": _problem("A label is none."),
    },
}
_DESCRIPTION: Final[Schema] = {
    "summary": "Describe this flow and its runs as this document does",
    "responses": {"200": {"description": "OpenAPI 3.1.", "content": _json({"type": "object"})}},
}
_RUN_PATHS: Final[Schema] = {
    "/runs": {"get": _RUNS},
    "/runs/{run_id}": {"get": _on_run("getRun", "How a run stands")},
    "/runs/{run_id}/events": {"get": _EVENTS},
    "/runs/{run_id}/answer": {"post": _on_run("answerRun", "Answer what a run asks", "Answer", "202", _ANSWERED)},
    "/runs/{run_id}/cancel": {"post": _on_run("cancelRun", "Stop a run")},
    "/runs/{run_id}/resume": {"post": _on_run("resumeRun", "Go on with a run that failed or was stopped", None, "202")},
}
