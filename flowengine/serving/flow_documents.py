"""Describes flows as an API: OpenAPI 3.1, made of their own inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from flowengine.core.context import RunStatus
from flowengine.errors import FlowEngineError
from flowengine.flow import Flow
from flowengine.server.flow_catalog import make_input_schema
from flowengine.server.problems import MEDIA_TYPE
from flowengine.server.schemas import ANSWER, ref
from flowengine.serving.chat_shape import outputs_schema_of, spec_of
from flowengine.version import __version__

__all__ = ["describe_flows", "input_schema", "output_schema"]

Schema = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_RUN: Final[Schema] = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "flow": _TEXT,
        "status": {"enum": list(get_args(RunStatus))},
        "started": {"type": "number", "description": "Unix seconds."},
        "finished": {"type": ["number", "null"]},
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
_STREAM: Final = "`progress` and `token` events, and at the end `result`, `question` or `error`."


def input_schema(flow: Flow) -> Schema:
    """A flow's inputs as a JSON Schema. Files are contents or addresses."""
    schema = dict(make_input_schema(flow.plan.inputs))
    fields = flow.plan.inputs or {}
    files = {
        name: {
            "type": "string",
            "format": "uri",
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


def describe_flows(flows: Iterable[Flow], root: str = "") -> Mapping[str, Any]:
    """OpenAPI 3.1 of the flows and their runs; `root` is where the app is mounted."""
    paths: dict[str, Any] = {f"/flows/{flow.name}": {"post": _describe_call(flow)} for flow in flows}
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlowEngine", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": {**paths, **_RUN_PATHS},
        "components": {
            "schemas": {"Run": _RUN, "Problem": _PROBLEM, "Answer": ANSWER},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _describe_call(flow: Flow) -> Schema:
    """`POST /flows/NAME`."""
    inputs = input_schema(flow)
    body = {"required": bool(inputs.get("required")), "content": _json(inputs)}
    return {
        "operationId": flow.name,
        "summary": flow.description or flow.name,
        "parameters": _CALL_PARAMETERS,
        "requestBody": body,
        "responses": {
            "200": {
                "description": "The outputs of the run.",
                "content": {**_json(output_schema(flow)), "text/event-stream": {"schema": {"description": _STREAM}}},
            },
            "202": {"description": "The run goes on, or waits for a person.", "content": _json(ref("Run"))},
            **{status: _problem(said) for status, said in _CALL_PROBLEMS.items()},
        },
    }


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "description": description, "required": False, "schema": _TEXT}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _problem(description: str) -> Schema:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": ref("Problem")}}}


_CALL_PARAMETERS: Final = [
    _header("Idempotency-Key", "The run: the same key with the same inputs finds the run that there is."),
    _header("Prefer", "`respond-async`: 202 at once. `wait=SECONDS`: 202 after so long."),
    _header("Flowengine-Session", "Continue the session of this name, in UTF-8 or as RFC 8187 writes it."),
    _header(
        "Flowengine-Label",
        "NAME=VALUE, by which the run is found again; written as a session's name, and may stand several times.",
    ),
    _header("Flowengine-Callback", "An address that is told when the run ends or asks; see the documentation."),
]
_CALL_PROBLEMS: Final = {
    "400": "The body is no JSON.",
    "401": "A key is needed.",
    "404": "There is no such flow for this key.",
    "409": "The run was cancelled.",
    "413": "The body is too large.",
    "422": "The inputs do not fit, or the key was used with others.",
    "429": "Too many runs or requests, or today's budget is spent; `Retry-After` says when to ask again.",
    "500": "The run failed.",
    "503": "The server stops; the run goes on at its next start.",
}
_RUN_ID: Final = {"name": "run_id", "in": "path", "description": "The run's id.", "required": True, "schema": _TEXT}


def _on_run(id: str, summary: str, body: str | None = None, status: str = "200") -> Schema:
    asked = {} if body is None else {"requestBody": {"required": True, "content": _json(ref(body))}}
    return {
        "operationId": id,
        "summary": summary,
        "parameters": [_RUN_ID],
        **asked,
        "responses": {
            status: {"description": "The run.", "content": _json(ref("Run"))},
            "404": _problem("There is no such run of this key."),
            "409": _problem("As the run stands, it cannot be done."),
        },
    }


_EVENTS: Final[Schema] = {
    "operationId": "followRun",
    "summary": "Follow a run",
    "parameters": [_RUN_ID, _header("Last-Event-ID", "The last position that is known.")],
    "responses": {"200": {"description": _STREAM, "content": {"text/event-stream": {}}}},
}
_FILTERS: Final = {
    "flow": "Runs of the flow of this name.",
    "status": "Runs of this status: succeeded, failed, waiting and so on.",
    "label": "Runs with this label, `NAME=VALUE`; given several times, with all of them.",
}
_RUNS: Final[Schema] = {
    "operationId": "listRuns",
    "summary": "The runs of this key, the newest first",
    "parameters": [
        {"name": name, "in": "query", "description": words, "schema": _TEXT} for name, words in _FILTERS.items()
    ],
    "responses": {"200": {"description": "At most 100.", "content": _json({"type": "object"})}},
}
_RUN_PATHS: Final[Schema] = {
    "/runs": {"get": _RUNS},
    "/runs/{run_id}": {"get": _on_run("getRun", "How a run stands")},
    "/runs/{run_id}/events": {"get": _EVENTS},
    "/runs/{run_id}/answer": {"post": _on_run("answerRun", "Answer what a run asks", "Answer", "202")},
    "/runs/{run_id}/cancel": {"post": _on_run("cancelRun", "Stop a run")},
    "/runs/{run_id}/resume": {"post": _on_run("resumeRun", "Go on with a run that failed or was stopped", None, "202")},
}
