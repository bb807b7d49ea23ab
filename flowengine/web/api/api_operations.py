"""The table of what is done with runs over HTTP: routes and OpenAPI documents of every door are made from it.

A door selects operations, says where they are (`run_operations`) and what they answer beyond what holds at all doors,
and adds those of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flowengine.core import EMPTY
from flowengine.version import __version__
from flowengine.web.api.schemas import POSITION, UNREADABLE_BODY, ref
from flowengine.web.gate import MEDIA_TYPE, Handler, answering_errors

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    name: str
    description: str
    place: str = "query"
    schema: Schema = field(default_factory=lambda: {"type": "string"})


class ApiAnswer(NamedTuple):
    """The meaning of a status."""

    description: str
    content: Mapping[str, Schema] = EMPTY
    """Media type → what it holds; empty: nothing."""


@dataclass(frozen=True)
class Operation:
    """One thing that is done."""

    method: str
    path: str
    id: str
    summary: str
    answers: Mapping[int, ApiAnswer]
    body: Schema | None = None
    """A reference to a schema of the document, or a schema."""
    needs_body: bool = False
    parameters: Sequence[Parameter] = ()


def json_answer(description: str, schema: Schema) -> ApiAnswer:
    return ApiAnswer(description, {"application/json": {"schema": schema}})


def stream_answer(description: str) -> ApiAnswer:
    return ApiAnswer(description, {"text/event-stream": {}})


def problems(described: Mapping[int, str]) -> dict[int, ApiAnswer]:
    """Answers that are problem objects."""
    content = {MEDIA_TYPE: {"schema": ref("Problem")}}
    return {status: ApiAnswer(description, content) for status, description in described.items()}


BODY_PROBLEMS: Final[Mapping[int, ApiAnswer]] = problems(UNREADABLE_BODY)
"""Answers that any operation with a body may give."""


# --- What every door does with runs


class RunAnswers(NamedTuple):
    """One door's answers to an operation on a run that was done, and its parameters beside the run's id."""

    answers: Mapping[int, ApiAnswer]
    parameters: Sequence[Parameter] = ()
    body: Schema | None = None
    needs_body: bool = False


_RUN_ID: Final = Parameter("run_id", "The run's id.", "path")
_LAST: Final = Parameter("Last-Event-ID", "The last position that is known; it wins over `after`.", "header", POSITION)
_AFTER: Final = Parameter("after", "The position to begin at, counted from 0.", schema=POSITION)
_UNREADABLE: Final = {422: "Its record is damaged or too new."}
_CONFLICT: Final = {
    404: "There is no such run, or its flow is not here.",
    409: "As the run stands, it cannot be done.",
    **_UNREADABLE,
}
_RUNS: Final[Sequence[tuple[str, str, str, str, Mapping[int, str]]]] = (
    ("listRuns", "GET", "/runs", "The runs, the newest first.", {}),
    (
        "getRun",
        "GET",
        "/runs/{run_id}",
        "How a run stands, and what it asks.",
        {404: "There is no such run.", **_UNREADABLE},
    ),
    (
        "followRun",
        "GET",
        "/runs/{run_id}/events",
        "The run's events as server-sent events, until it has ended; `id` is an event's position.",
        {404: "There is no such run, or no such position.", **_UNREADABLE},
    ),
    ("answerRun", "POST", "/runs/{run_id}/answer", "Answer what the run waits with, and go on with it.", _CONFLICT),
    (
        "resumeRun",
        "POST",
        "/runs/{run_id}/resume",
        "Resume a run that was interrupted, failed or cancelled.",
        _CONFLICT,
    ),
    ("cancelRun", "POST", "/runs/{run_id}/cancel", "Stop a run, also one that waits.", _CONFLICT),
)
"""Id, method, path, summary, and the problems that there may be."""


def run_operations(root: str, selected: Mapping[str, RunAnswers]) -> list[Operation]:
    """The operations on runs that a door selects by their ids; `root`: below which path they are."""
    return [
        Operation(
            method,
            f"{root}{path}",
            id,
            summary,
            {**problems(statuses), **(BODY_PROBLEMS if own.body is not None else {}), **own.answers},
            own.body,
            own.needs_body,
            [
                *([_RUN_ID] if "{run_id}" in path else []),
                *([_AFTER, _LAST] if id == "followRun" else []),
                *own.parameters,
            ],
        )
        for id, method, path, summary, statuses in _RUNS
        if (own := selected.get(id)) is not None
    ]


# --- Routes and documents


def make_operation_routes(
    operations: Iterable[Operation], handlers: Mapping[str, Handler], answer: Callable[[Exception], Response]
) -> list[Route]:
    """The routes, with the handlers by the operations' ids, whose errors are answered."""

    def answer_error(request: Request, error: Exception) -> Response:
        return answer(error)

    return [
        Route(each.path, answering_errors(handlers[each.id], answer_error), methods=[each.method], name=each.id)
        for each in operations
    ]


def make_openapi(
    operations: Iterable[Operation],
    schemas: Mapping[str, Schema],
    common: Mapping[int, ApiAnswer],
    root: str = "",
    secret: str | None = None,
) -> Mapping[str, Any]:
    """OpenAPI 3.1; `common`: what any operation may answer. `root`: where the app is mounted. `secret`: the name of
    what opens it, if anything does."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        described = _describe_operation(each, {**common, **each.answers})
        paths.setdefault(each.path.replace(":path}", "}"), {})[each.method.lower()] = described
    security = {} if secret is None else {"securitySchemes": {secret: {"type": "http", "scheme": "bearer"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlowEngine", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": schemas, **security},
        **({} if secret is None else {"security": [{secret: []}]}),
    }


def _describe_operation(each: Operation, answers: Mapping[int, ApiAnswer]) -> Schema:
    operation: dict[str, Any] = {"operationId": each.id, "summary": each.summary}
    if each.parameters:
        operation["parameters"] = [_describe_parameter(parameter) for parameter in each.parameters]
    if each.body is not None:
        operation["requestBody"] = {"required": each.needs_body, "content": {"application/json": {"schema": each.body}}}
    operation["responses"] = {
        str(status): {"description": answer.description, **({"content": answer.content} if answer.content else {})}
        for status, answer in sorted(answers.items())
    }
    return operation


def _describe_parameter(parameter: Parameter) -> Schema:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.place == "path",
        "schema": parameter.schema,
    }
