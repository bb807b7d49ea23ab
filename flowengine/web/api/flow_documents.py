"""Describes flows as an API: OpenAPI 3.1, made of their own inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from flowengine.core import RunStatus
from flowengine.errors import FlowEngineError
from flowengine.flow import Flow
from flowengine.web.api.api_operations import (
    BODY_PROBLEMS,
    ApiAnswer,
    Operation,
    Parameter,
    RunAnswers,
    json_answer,
    make_openapi,
    problems,
    run_operations,
    stream_answer,
)
from flowengine.web.api.schemas import ANSWER, LABELS, MALFORMED, ref
from flowengine.web.service import escape_pointer, make_input_schema, move_references, outputs_schema_of, spec_of

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
    calls = [each for flow in flows for each in _flow_operations(flow, takes_callbacks)]
    common = problems(
        {status: description for status, description in EVERY_PROBLEM.items() if needs_key or status != 401}
    )
    return make_openapi([*calls, *RUN_OPERATIONS], _SCHEMAS, common, root, "key" if needs_key else None)


def _flow_operations(flow: Flow, takes_callbacks: bool) -> Sequence[Operation]:
    """`GET /flows/NAME` and `POST /flows/NAME`."""
    path = f"/flows/{flow.name}"
    place = f"#/paths/~1flows~1{escape_pointer(flow.name)}/post/requestBody/content/application~1json/schema"
    inputs = move_references(input_schema(flow), lambda reference: place + reference[1:])
    schema = {
        "application/json": {"schema": output_schema(flow)},
        "text/event-stream": {"schema": {"description": _STREAM}},
    }
    return [
        Operation("GET", path, f"describe_{flow.name}", "Describe this flow and its runs as this document does.",
                  {200: json_answer("OpenAPI 3.1.", {"type": "object"})}),
        Operation(
            "POST", path, flow.name, flow.description or flow.name,
            {
                200: ApiAnswer("The outputs of the run.", schema),
                202: json_answer("The run goes on, or waits for a person.", ref("Run")),
                **BODY_PROBLEMS, **problems(_CALL_PROBLEMS),
            },
            inputs, bool(inputs.get("required")),
            [each for each in _CALL_PARAMETERS if takes_callbacks or each.name != "Flowengine-Callback"],
        ),
    ]  # fmt: skip


EVERY_PROBLEM: Final[Mapping[int, str]] = {
    400: MALFORMED,
    401: "A key is needed.",
    403: "The key, or pages of that site, may not do this.",
    404: "There is no such flow or run of this key.",
    421: "The server is not known by this name.",
    429: "Too many runs or requests, or today's budget is spent; `Retry-After` says when to ask again.",
    500: "Something went wrong; the server's log says more.",
    503: "The store cannot be used now, or the server stops.",
}
"""Problems that any operation may answer with, by status."""
_CALL_PARAMETERS: Final = (
    Parameter(
        "Idempotency-Key", "The run: the same key with the same inputs finds the run that there is.", "header",
        {"type": "string", "pattern": "[!#-~]", "maxLength": 255},
    ),
    Parameter("Prefer", "`respond-async`: 202 at once. `wait=SECONDS`: 202 after so long.", "header"),
    Parameter(
        "Flowengine-Session", "Continue the session of this name, in UTF-8 or as RFC 8187 writes it.", "header",
        {"type": "string", "pattern": "[!-~]", "maxLength": 200},
    ),
    Parameter(
        "Flowengine-Label",
        "NAME=VALUE, by which the run is found again; written as a session's name, and may stand several times.",
        "header", {**LABELS["items"], "example": "team=billing"},
    ),
    Parameter(
        "Flowengine-Callback", "An address that is told when the run ends or asks; see the documentation.", "header"
    ),
)  # fmt: skip
_CALL_PROBLEMS: Final = {
    409: "The run was cancelled.",
    422: "The inputs do not fit, or the key was used with others.",
    500: "The run failed.",
    503: "The server stops; the run goes on at its next start.",
}
_ANSWERED: Final[Schema] = {
    "type": "object",
    "properties": {"run_id": _TEXT, "node": {"type": "string", "description": "Whose question it was."}},
    "required": ["run_id", "node"],
}
_SCHEMAS: Final[Mapping[str, Schema]] = {"Run": _RUN, "Problem": _PROBLEM, "Answer": ANSWER, "Answered": _ANSWERED}

RUN_OPERATIONS: Final = run_operations(
    "",
    {
        "listRuns": RunAnswers(
            {
                200: json_answer("Those of this key, at most 100.", {"type": "object"}),
                **problems({422: "A label is none."}),
            },
            (
                Parameter("flow", "Runs of the flow of this name."),
                Parameter("status", "Runs of this status.", schema={"enum": [*get_args(RunStatus), ""]}),
                Parameter(
                    "label", "Runs with this label, `NAME=VALUE`; given several times, with all of them.", schema=LABELS
                ),
            ),
        ),
        "getRun": RunAnswers({200: json_answer("The run.", ref("Run"))}),
        "followRun": RunAnswers({200: stream_answer(_STREAM), 204: ApiAnswer("No more will come.")}),
        "answerRun": RunAnswers(
            {202: json_answer("The answer is kept.", ref("Answered"))}, body=ref("Answer"), needs_body=True
        ),
        "resumeRun": RunAnswers({202: json_answer("It goes on.", ref("Run"))}),
        "cancelRun": RunAnswers({200: json_answer("It has stopped.", ref("Run"))}),
    },
)
