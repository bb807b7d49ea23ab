"""Declares the shapes that the API takes and gives, as JSON Schemas, and writes runs and flows in these shapes.

Bodies are checked against them; OpenAPI shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from flowengine.core import NodeStatus, RunStatus, to_json_value
from flowengine.engine import ErrorInfo, RunResumed, RunStarted
from flowengine.journal import RunDigest, RunLine, labels_of, open_questions
from flowengine.web.service import About, dates_of, make_input_schema
from visualize.progress import NodeRow
from visualize.viewer import Reading

Schema = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
_MAYBE_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_MAYBE_COUNT: Final[Schema] = {"type": ["integer", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_ANY_OBJECT: Final[Schema] = {"type": "object"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object_schema(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, **more: Any) -> Schema:
    """An object that has no other members."""
    properties = {**required, **(optional or {})}
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {**schema, **more}


def _list_schema(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


LABELS: Final = _list_schema(
    {"type": "string", "pattern": "^[A-Za-z0-9_]([A-Za-z0-9_./-]{0,62}[A-Za-z0-9_])?=[!-~]{0,200}$"}
)
"""Labels that runs are looked for by, each as NAME=VALUE."""
POSITION: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
"""The position of an event in its run."""
MALFORMED: Final = "What was sent is no request, or its body no JSON."
UNREADABLE_BODY: Final[Mapping[int, str]] = {
    413: "The body is too large.",
    415: "The body has another media type or encoding than JSON.",
    422: "The body does not fit.",
}
"""Problems of an operation that takes a body, by status."""

START: Final = _object_schema(
    {"flow": {"type": "string", "description": "A name of `GET /api/flows`."}},
    {
        "inputs": _ANY_OBJECT,
        "run_id": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_@-]{0,63}$"},
        "session": {"type": "string", "description": "Continue the session of this name."},
        "reuse": {"type": "string", "description": "An earlier run whose results are taken where they still hold."},
        "labels": {"type": "object", "additionalProperties": _TEXT, "description": "By which it is found again."},
        "model": {"type": "string", "description": "Use it instead of every model that the flow names."},
    },
)
ANSWER: Final = _object_schema(
    {"choice": _TEXT},
    {
        "node": {"type": "string", "description": "Left out where the run waits with one question."},
        "comment": _TEXT,
        "form": {"description": "What fits the question's form."},
    },
)
_LIMITS: Final = _object_schema(
    {},
    {
        "cost_usd": {"type": "number", "exclusiveMinimum": 0},
        "tokens": {"type": "integer", "minimum": 1},
        "model_calls": {"type": "integer", "minimum": 1},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
        "concurrency": {"type": "integer", "minimum": 1, "maximum": 10_000},
    },
    description="In the place of those that held before; what the run has spent counts.",
)
RESUME: Final = _object_schema(
    {},
    {
        "allow_changed": {"type": "boolean", "description": "Although the flow was edited since the run started."},
        "retry_effects": {
            **_TEXTS,
            "description": "Nodes whose interrupted external calls are made again; `NODE:TOOL` is one of several.",
        },
        "assume_done": {
            **_TEXTS,
            "description": "Nodes whose interrupted external calls are taken as done; `NODE:TOOL` is one of several.",
        },
        "limits": _LIMITS,
    },
)

_RUN_LINE: Final[Mapping[str, Schema]] = {
    "run_id": _TEXT,
    "flow": _TEXT,
    "status": {"enum": list(get_args(RunStatus))},
    "started": {"type": "number", "description": "Unix seconds."},
    "finished": {**_MAYBE_NUMBER, "description": "Unix seconds; also since when it waits."},
    "started_at": {**_TEXT, "format": "date-time"},
    "finished_at": {**_MAYBE_TEXT, "format": "date-time", "description": "Once it has ended."},
    "events": _COUNT,
    "path": {**_MAYBE_TEXT, "description": "The flow file, as it was given."},
    "labels": {"type": "object", "additionalProperties": _TEXT},
}
_SAID: Final[Mapping[str, Schema]] = {"by": _TEXT, "at": {"type": "number", "description": "Unix seconds."}}
_NOTES: Final[Mapping[str, Schema]] = {
    "notes": _list_schema(_object_schema({"id": _TEXT, "text": _TEXT, **_SAID})),
    "marks": _list_schema(_object_schema({"name": _TEXT, **_SAID})),
    "scores": _list_schema(_object_schema({"name": _TEXT, "value": {"type": "number"}, **_SAID})),
}
_LISTED: Final[Mapping[str, Schema]] = {
    "standing": {**_TEXT, "description": "How it stands: its status, or `queued` or `interrupted`."},
    "model_calls": _COUNT,
    "tokens": _MAYBE_COUNT,
    "cost_usd": _MAYBE_NUMBER,
    "model": {**_TEXT, "description": "Of its first call, and how many others there were."},
    "session": _TEXT,
    "first_input": {**_TEXT, "description": "The beginning of it."},
    "error": {**_TEXT, "description": "The beginning of what it failed with."},
    "found": {**_TEXT, "description": "Where a word of the search stands."},
    **_NOTES,
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Start": START,
    "Answer": ANSWER,
    "Resume": RESUME,
    "RunLine": _object_schema({**_RUN_LINE, **_LISTED}),
    "Runs": _object_schema({"runs": _list_schema(ref("RunLine")), "total": _COUNT, "page": _COUNT, "pages": _COUNT}),
    "Error": _object_schema({"type": _TEXT, "message": _TEXT, "node": _MAYBE_TEXT}),
    "Node": _object_schema(
        {
            "status": {"enum": list(get_args(NodeStatus))},
            "kind": _TEXT,
            "cause": {**_MAYBE_TEXT, "description": "Why it was skipped."},
            "error": {"anyOf": [ref("Error"), {"type": "null"}]},
            "output": {},
            "earlier_errors": {
                **_list_schema(ref("Error")),
                "description": "How it failed before the run was resumed and it ran again.",
            },
            "seconds": _MAYBE_NUMBER,
            "waited_seconds": {**_MAYBE_NUMBER, "description": "Of an approval: how long a person was waited for."},
            "model_calls": _COUNT,
            "tokens": _MAYBE_COUNT,
            "cost_usd": _MAYBE_NUMBER,
            "retries": _COUNT,
            "reused": {
                "anyOf": [ref("Reused"), {"type": "null"}],
                "description": "Where its result comes from, where it did not run.",
            },
        }
    ),
    "Reused": _object_schema({"run_id": _TEXT, "node": _TEXT}),
    "Question": _object_schema(
        {
            "message": _TEXT,
            "choices": _TEXTS,
            "form": {"type": ["object", "null"], "description": "JSON Schema of what is filled in beside the choice."},
            "expires": _MAYBE_NUMBER,
            "on_expire": _MAYBE_TEXT,
            "name": {"type": "string", "description": "Which of the node's questions; empty where it has but one."},
            "tool": {"type": "string", "description": "The tool that is to be called; empty where none is."},
            "arguments": {
                "type": ["object", "null"],
                "description": "What it is to be called with; `form` of an acceptance may give others.",
            },
            "key": _TEXT,
            "occurrence": _COUNT,
            "describe": {
                "type": "object",
                "additionalProperties": _TEXT,
                "description": "What a choice means, in Markdown.",
            },
            "form_for": {**_TEXTS, "description": "The choices that the form goes with; empty: all of them."},
            "approvers": {**_TEXTS, "description": "Who alone may answer; empty: anybody who may answer at all."},
        }
    ),
    "Run": _object_schema(
        {
            **_RUN_LINE,
            "inputs": _ANY_OBJECT,
            "outputs": {"type": ["object", "null"]},
            "error": {"anyOf": [ref("Error"), {"type": "null"}]},
            "nodes": {"type": "object", "additionalProperties": ref("Node"), "description": "By their paths."},
            "questions": {"type": "object", "additionalProperties": ref("Question"), "description": "By their paths."},
            "seconds": _MAYBE_NUMBER,
            "idle_seconds": {"type": "number", "description": "In which it was not going on until it was resumed."},
            "model_calls": _COUNT,
            "tokens": _MAYBE_COUNT,
            "cost_usd": {**_MAYBE_NUMBER, "description": "Of the calls whose price is known; null where none is."},
            "driven_here": {"type": "boolean", "description": "Whether this server runs it, so that it can cancel it."},
        }
    ),
    "Started": _object_schema({"run_id": _TEXT}),
    "Answered": _object_schema({"run_id": _TEXT, "node": _TEXT, "resumed": {"type": "boolean"}}),
    "Diagnostic": _object_schema(
        {
            "code": _TEXT,
            "severity": {"enum": ["error", "warning"]},
            "message": _TEXT,
            "line": _MAYBE_COUNT,
            "column": _MAYBE_COUNT,
            "node": _MAYBE_TEXT,
        }
    ),
    "Flow": _object_schema(
        {
            "name": _TEXT,
            "path": _TEXT,
            "description": _TEXT,
            "inputs": {"type": "object", "description": "A JSON Schema of the inputs."},
            "problems": _list_schema(ref("Diagnostic")),
        }
    ),
    "Flows": _object_schema({"flows": _list_schema(ref("Flow"))}),
    "Problem": {
        "type": "object",
        "properties": {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT},
        "required": ["type", "title", "status", "detail"],
    },
}


# --- Runs and flows in these shapes


def to_run_line(line: RunLine) -> Mapping[str, Any]:
    """A run in a list."""
    digest = line.digest or RunDigest(0)
    info = line.info
    return info._asdict() | {
        **dates_of(info.status, info.started, info.finished),
        "standing": line.word,
        "model_calls": digest.calls,
        "tokens": digest.tokens,
        "cost_usd": digest.cost_usd,
        "model": digest.model,
        "session": digest.session,
        "first_input": digest.first_input,
        "error": digest.error,
        "found": line.excerpt,
        **{name: [each._asdict() for each in rows] for name, rows in line.notes._asdict().items()},
    }


def to_run_object(run: Reading, *, driven_here: bool) -> Mapping[str, Any]:
    """A run with its nodes and what it asks."""
    progress = run.progress
    started, finished, usage = progress.started, progress.finished, progress.usage
    assert isinstance(started, RunStarted)  # As the store gives them.
    return {
        "run_id": run.run_id,
        "flow": progress.flow,
        "status": progress.status,
        "started": started.at,
        "finished": None if finished is None else finished.at,
        **dates_of(progress.status, started.at, None if finished is None else finished.at),
        "events": len(run.events),
        "path": started.path,
        "labels": labels_of(started),
        "inputs": to_json_value(started.inputs),
        "outputs": None if finished is None else to_json_value(finished.outputs),
        "error": None if finished is None else _to_error_object(finished.error, finished.node),
        "nodes": {row.id: _to_node_object(row) for row in run.rows},
        "questions": _to_questions(run),
        "seconds": progress.seconds(progress.last_at),
        "idle_seconds": progress.idle,
        "model_calls": usage.calls,
        "tokens": usage.tokens,
        "cost_usd": usage.cost_usd,
        "driven_here": driven_here,
    }


def to_flow_object(name: str, about: About) -> Mapping[str, Any]:
    problems: Sequence[Mapping[str, Any]] = [
        {
            "code": each.code,
            "severity": each.severity,
            "message": f"{each.message}{each.hint}",
            "line": each.line,
            "column": each.column,
            "node": each.node,
        }
        for each in about.problems
    ]
    return {
        "name": name,
        "path": about.path,
        "description": about.description,
        "inputs": to_json_value(make_input_schema(about.inputs)),
        "problems": problems,
    }


def _to_questions(run: Reading) -> Mapping[str, Any]:
    """Only a run that is parked waits with them; while it goes on, they may just have been answered."""
    if run.progress.finished is None or isinstance(run.events[-1], RunResumed):
        return {}
    return {
        node: {name: to_json_value(each) for name, each in question._asdict().items() if name != "notify"}
        for node, question in open_questions(run.events).items()
    }


def _to_node_object(row: NodeRow) -> Mapping[str, Any]:
    return {
        **row.to_object(),
        "error": _to_error_object(row.error, row.id),
        "output": None if row.result is None else to_json_value(row.result.output),
        "earlier_errors": [_to_error_object(each, row.id) for each in row.earlier_errors],
    }


def _to_error_object(error: ErrorInfo | None, node: str | None) -> Mapping[str, Any] | None:
    return None if error is None else {"type": error.type, "message": error.message, "node": error.node or node}
