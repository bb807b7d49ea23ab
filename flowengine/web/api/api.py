"""Serves the HTTP API: one table of operations, from which routes and the OpenAPI document are made.

What a request may do is decided elsewhere (`safety`, `run_service`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from flowengine.core.context import EMPTY
from flowengine.core.json_values import dumps
from flowengine.journal.run_lookup import parse_label_filter
from flowengine.runtime.run import RunOptions
from flowengine.version import __version__
from flowengine.web.api.schemas import (
    ANSWER,
    LABELS,
    MALFORMED,
    POSITION,
    RESUME,
    SCHEMAS,
    START,
    UNREADABLE_BODY,
    ref,
    to_flow_object,
    to_run_line,
    to_run_object,
)
from flowengine.web.api.sse import stream_events
from flowengine.web.gate.problems import MEDIA_TYPE, Handler, ProblemError, answering_errors, problem_response
from flowengine.web.gate.requests import get_parts, read_json
from visualize.viewer.html import whole
from visualize.viewer.runs import PAGE_SIZE, filters_of, query_of

__all__ = ["OPERATIONS", "make_api_routes", "make_document"]


@dataclass(frozen=True)
class Parameter:
    name: str
    description: str
    place: str = "query"
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True)
class Operation:
    """One thing that the API does."""

    method: str
    path: str
    id: str
    summary: str
    handler: Handler
    answers: Mapping[int, tuple[str, str | None]]
    """Status → what it means, and the name of the answer's schema; None: nothing, or no JSON."""
    body: str | None = None
    """Name of the body's schema."""
    parameters: Sequence[Parameter] = ()
    media_type: str = "application/json"


def make_api_routes() -> Sequence[BaseRoute]:
    return [
        Route(each.path, answering_errors(each.handler, _answer_error), methods=[each.method], name=each.id)
        for each in OPERATIONS
    ]


def _answer_error(request: Request, error: Exception) -> Response:
    return problem_response(error, as_page=False)


def _json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(whole(dumps(value)), status, headers, "application/json")


async def _list_runs(request: Request) -> Response:
    parts = get_parts(request)
    asked = request.query_params
    labels = parse_label_filter(asked.getlist("label"))
    filters = filters_of(asked, labels or {}, parts.by)
    days = {"since": filters.since, "until": filters.until, "ended": filters.ended}
    for name in (each for each, day in days.items() if day is None and asked.get(each)):
        raise ProblemError(422, "No such day", f"`{name}` is a day such as 2026-03-01, found {asked[name]!r:.40}")
    if (page := asked.get("page", "1")) != str(filters.page):
        raise ProblemError(422, "No such page", f"`page` is a whole number from 1 on, found {page!r:.40}")
    if labels is None:
        return _json_response({"runs": [], "total": 0, "page": filters.page, "pages": 1})
    found = await parts.shelf.do(parts.shelf.page, query_of(filters), filters.page)
    pages = max(1, -(-found.total // PAGE_SIZE))
    lines = [to_run_line(each) for each in found.lines] if filters.page <= pages else []
    return _json_response({"runs": lines, "total": found.total, "page": filters.page, "pages": pages})


async def _get_run(request: Request) -> Response:
    parts = get_parts(request)
    run_id: str = request.path_params["run_id"]

    def make() -> str:
        return whole(dumps(to_run_object(parts.shelf.read(run_id), driven_here=parts.acts.drives(run_id))))

    return Response(await parts.shelf.do(make), media_type="application/json")


async def _stream_events(request: Request) -> Response:
    return await stream_events(request, "plain")


async def _start_run(request: Request) -> Response:
    body = await read_json(request, START)
    name, inputs = body.pop("flow"), body.pop("inputs", {})
    run_id = await get_parts(request).acts.start(name, inputs, **body)
    return _json_response(
        {"run_id": run_id}, 201, {"Location": f"{request.scope.get('root_path', '')}/api/runs/{run_id}"}
    )


async def _approve_run(request: Request) -> Response:
    body = await read_json(request, ANSWER)
    node: str | None = body.get("node")
    run_id: str = request.path_params["run_id"]
    parts = get_parts(request)
    choice, comment, form = body["choice"], body.get("comment", ""), body.get("form")
    answered = await parts.acts.answer(run_id, node, choice, form, parts.by, comment=comment)
    return _json_response({"run_id": run_id, "node": answered.node, "resumed": answered.goes_on})


async def _resume_run(request: Request) -> Response:
    body = await read_json(request, RESUME)
    run_id: str = request.path_params["run_id"]
    await get_parts(request).acts.resume(run_id, RunOptions(settings=body.pop("limits", EMPTY), **body))
    return _json_response({"run_id": run_id}, 202)


async def _cancel_run(request: Request) -> Response:
    run_id: str = request.path_params["run_id"]
    await get_parts(request).acts.cancel(run_id)
    return _json_response({"run_id": run_id})


async def _list_flows(request: Request) -> Response:
    parts = get_parts(request)

    def make() -> list[Mapping[str, Any]]:
        return [to_flow_object(name, entry.about()) for name, entry in parts.library.entries().items()]

    return _json_response({"flows": await parts.shelf.do(make)})


async def _get_flow(request: Request) -> Response:
    parts = get_parts(request)
    name: str = request.path_params["name"]

    def make() -> Mapping[str, Any]:
        return to_flow_object(name, parts.library.find(name).about())

    return _json_response(await parts.shelf.do(make))


async def _get_openapi(request: Request) -> Response:
    return _json_response(make_document(request.scope.get("root_path", "")))


_DAY: Final = {"type": "string", "anyOf": [{"format": "date"}, {"maxLength": 0}]}
_PAGE: Final = {"type": "integer", "minimum": 1, "maximum": 99_999_999}
_RUN_ID_PARAMETER: Final = Parameter("run_id", "The run's id.", "path")
_NO_RUN: Final[Mapping[int, tuple[str, str | None]]] = {
    404: ("There is no such run, or its flow is not here.", "Problem")
}
_INVALID_BODY: Final[Mapping[int, tuple[str, str | None]]] = {
    status: (said, "Problem") for status, said in UNREADABLE_BODY.items()
}
_CONFLICT: Final[Mapping[int, tuple[str, str | None]]] = {409: ("As the run stands, it cannot be done.", "Problem")}

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "GET", "/api/runs", "listRuns", "The runs of the store, the newest first, 100 on a page.", _list_runs,
        {200: ("The runs that are asked for.", "Runs"), 422: ("A label, a day or a page is none.", "Problem")},
        parameters=(
            Parameter("flow", "The flow's name."),
            Parameter("status", "The run's status."),
            Parameter("label", "NAME=VALUE: the run has that label; given several times, all of them.", schema=LABELS),
            Parameter("q", "Words in the run's inputs, outputs or errors, or in its id, flow's name, file or labels."),
            Parameter("mark", "The run has this mark."),
            Parameter("session", "The run belongs to it."),
            Parameter("mine", "1: the run waits for an answer of who asks."),
            Parameter("since", "The first day on which they started, as 2026-03-01.", schema=_DAY),
            Parameter("until", "The last day.", schema=_DAY),
            Parameter("ended", "The first day on which they stopped.", schema=_DAY),
            Parameter("page", "Counted from 1.", schema=_PAGE),
        ),
    ),
    Operation(
        "POST", "/api/runs", "startRun", "Start a flow in this server's process.", _start_run,
        {
            201: ("It runs.", "Started"), 404: ("There is no such flow, or no such run to reuse.", "Problem"),
            **_CONFLICT, **_INVALID_BODY,
        },
        body="Start",
    ),
    Operation(
        "GET", "/api/runs/{run_id}", "getRun", "A run with its nodes and what it asks.", _get_run,
        {200: ("The run.", "Run"), **_NO_RUN, 422: ("Its record is damaged or too new.", "Problem")},
        parameters=(_RUN_ID_PARAMETER,),
    ),
    Operation(
        "GET", "/api/runs/{run_id}/events", "followRun",
        "The run's events as server-sent events, until it has ended; `id` is an event's position.", _stream_events,
        {
            200: ("One JSON object an event.", None), 204: ("No more will come.", None),
            404: ("There is no such run, or no such position.", "Problem"),
            422: ("Its record is damaged or too new.", "Problem"),
        },
        parameters=(
            _RUN_ID_PARAMETER,
            Parameter("after", "The position to begin at, counted from 0.", schema=POSITION),
            Parameter("Last-Event-ID", "The last position that is known; it wins over `after`.", "header", POSITION),
        ),
        media_type="text/event-stream",
    ),
    Operation(
        "POST", "/api/runs/{run_id}/approve", "answerRun", "Answer what the run waits with, and go on with it.",
        _approve_run, {200: ("The answer is kept.", "Answered"), **_NO_RUN, **_CONFLICT, **_INVALID_BODY},
        body="Answer", parameters=(_RUN_ID_PARAMETER,),
    ),
    Operation(
        "POST", "/api/runs/{run_id}/resume", "resumeRun", "Resume a run that was interrupted or failed.",
        _resume_run, {202: ("It goes on.", "Started"), **_NO_RUN, **_CONFLICT, **_INVALID_BODY},
        body="Resume", parameters=(_RUN_ID_PARAMETER,),
    ),
    Operation(
        "POST", "/api/runs/{run_id}/cancel", "cancelRun", "Stop a run, also one that waits.", _cancel_run,
        {200: ("It has stopped.", "Started"), **_NO_RUN, **_CONFLICT}, parameters=(_RUN_ID_PARAMETER,),
    ),
    Operation(
        "GET", "/api/flows", "listFlows", "The flows that can be started here.", _list_flows,
        {200: ("All of them.", "Flows")},
    ),
    Operation(
        "GET", "/api/flows/{name:path}", "getFlow", "One flow, with its inputs and what is wrong with it.", _get_flow,
        {200: ("The flow.", "Flow"), 404: ("There is no such flow.", "Problem")},
        parameters=(Parameter("name", "The flow's name.", "path"),),
    ),
    Operation(
        "GET", "/api/openapi.json", "describe", "This description.", _get_openapi, {200: ("OpenAPI 3.1.", None)},
    ),
)  # fmt: skip


# --- The OpenAPI document

_COMMON_ANSWERS: Mapping[int, tuple[str, str | None]] = {
    400: (MALFORMED, "Problem"),
    401: ("A token is needed.", "Problem"),
    403: ("The request is of another site, has a cookie alone, or the server is there to look at.", "Problem"),
    421: ("The server is not known by this name.", "Problem"),
    500: ("Something went wrong; the server's log says more.", "Problem"),
    503: ("The store cannot be used now.", "Problem"),
}


def make_document(root: str = "") -> Mapping[str, Any]:
    """OpenAPI 3.1; `root` is where the app is mounted."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path.replace(":path}", "}"), {})[each.method.lower()] = _describe_operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "FlowEngine", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _describe_operation(each: Operation) -> Mapping[str, Any]:
    said: dict[str, Any] = {"operationId": each.id, "summary": each.summary}
    if each.parameters:
        said["parameters"] = [_describe_parameter(parameter) for parameter in each.parameters]
    if each.body is not None:
        is_needed = bool(SCHEMAS[each.body]["required"])
        said["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": ref(each.body)}}}
    answers = {**each.answers, **_COMMON_ANSWERS}
    said["responses"] = {str(status): _describe_answer(each, *answers[status]) for status in sorted(answers)}
    return said


def _describe_parameter(parameter: Parameter) -> Mapping[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.place == "path",
        "schema": parameter.schema,
    }


def _describe_answer(each: Operation, description: str, schema: str | None) -> Mapping[str, Any]:
    if schema is not None:
        media_type = MEDIA_TYPE if schema == "Problem" else each.media_type
        return {"description": description, "content": {media_type: {"schema": ref(schema)}}}
    if description.startswith("No more"):
        return {"description": description}
    return {"description": description, "content": {each.media_type: {}}}
