"""Serves the HTTP API of the viewer: its selection of the table of operations, and how they are done.

What a request may do is decided elsewhere (`safety`, `run_service`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from flowengine.core import EMPTY, dumps
from flowengine.journal import parse_label_filter
from flowengine.runtime import RunOptions
from flowengine.web.api.api_operations import (
    BODY_PROBLEMS,
    ApiAnswer,
    Operation,
    Parameter,
    RunAnswers,
    json_answer,
    make_openapi,
    make_operation_routes,
    problems,
    run_operations,
    stream_answer,
)
from flowengine.web.api.schemas import (
    ANSWER,
    LABELS,
    MALFORMED,
    RESUME,
    SCHEMAS,
    START,
    ref,
    to_flow_object,
    to_run_line,
    to_run_object,
)
from flowengine.web.api.sse import stream_events
from flowengine.web.gate import Handler, ProblemError, get_parts, problem_response, read_json
from visualize.viewer import PAGE_SIZE, filters_of, query_of, whole


def make_api_routes() -> Sequence[BaseRoute]:
    answering = [*OPERATIONS, replace(_ANSWER_RUN, path="/api/runs/{run_id}/approve")]  # Its name in 0.2.0.
    return make_operation_routes(answering, _HANDLERS, partial(problem_response, as_page=False))


def _json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(whole(dumps(value)), status, headers, "application/json")


async def _list_runs(request: Request) -> Response:
    parts = get_parts(request)
    query = request.query_params
    labels = parse_label_filter(query.getlist("label"))
    filters = filters_of(query, labels or {}, parts.by)
    days = {"since": filters.since, "until": filters.until, "ended": filters.ended}
    for name in (each for each, day in days.items() if day is None and query.get(each)):
        raise ProblemError(422, "No such day", f"`{name}` is a day such as 2026-03-01, found {query[name]!r:.40}")
    if (page := query.get("page", "1")) != str(filters.page):
        raise ProblemError(422, "No such page", f"`page` is a whole number from 1 on, found {page!r:.40}")
    if labels is None:
        return _json_response({"runs": [], "total": 0, "page": filters.page, "pages": 1})
    runs = await parts.shelf.do(parts.shelf.page, query_of(filters), filters.page)
    pages = max(1, -(-runs.total // PAGE_SIZE))
    lines = [to_run_line(each) for each in runs.lines] if filters.page <= pages else []
    return _json_response({"runs": lines, "total": runs.total, "page": filters.page, "pages": pages})


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


async def _answer_run(request: Request) -> Response:
    body = await read_json(request, ANSWER)
    node: str | None = body.get("node")
    run_id: str = request.path_params["run_id"]
    parts = get_parts(request)
    choice, comment, form = body["choice"], body.get("comment", ""), body.get("form")
    outcome = await parts.acts.answer(run_id, node, choice, form, parts.by, comment=comment)
    return _json_response({"run_id": run_id, "node": outcome.node, "resumed": outcome.goes_on})


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
_RUNS: Final = run_operations(
    "/api",
    {
        "listRuns": RunAnswers(
            {
                200: json_answer("The runs that are asked for, 100 on a page.", ref("Runs")),
                **problems({422: "A label, a day or a page is none."}),
            },
            (
                Parameter("flow", "The flow's name."),
                Parameter("status", "The run's status."),
                Parameter(
                    "label", "NAME=VALUE: the run has that label; given several times, all of them.", schema=LABELS
                ),
                Parameter(
                    "q", "Words in the run's inputs, outputs or errors, or in its id, flow's name, file or labels."
                ),
                Parameter("mark", "The run has this mark."),
                Parameter("session", "The run belongs to it."),
                Parameter("mine", "1: the run waits for an answer of who asks."),
                Parameter("since", "The first day on which they started, as 2026-03-01.", schema=_DAY),
                Parameter("until", "The last day.", schema=_DAY),
                Parameter("ended", "The first day on which they stopped.", schema=_DAY),
                Parameter("page", "Counted from 1.", schema=_PAGE),
            ),
        ),
        "getRun": RunAnswers({200: json_answer("The run.", ref("Run"))}),
        "followRun": RunAnswers(
            {200: stream_answer("One JSON object an event."), 204: ApiAnswer("No more will come.")}
        ),
        "answerRun": RunAnswers(
            {200: json_answer("The answer is kept.", ref("Answered"))}, body=ref("Answer"), needs_body=True
        ),
        "resumeRun": RunAnswers({202: json_answer("It goes on.", ref("Started"))}, body=ref("Resume")),
        "cancelRun": RunAnswers({200: json_answer("It has stopped.", ref("Started"))}),
    },
)
_ANSWER_RUN: Final = next(each for each in _RUNS if each.id == "answerRun")
_NO_FLOW: Final = problems({404: "There is no such flow."})

OPERATIONS: Final[Sequence[Operation]] = (
    *_RUNS,
    Operation(
        "POST", "/api/runs", "startRun", "Start a flow in this server's process.",
        {
            201: json_answer("It runs.", ref("Started")), **BODY_PROBLEMS,
            **problems({404: "There is no such flow, or no such run to reuse.", 409: "There is such a run already."}),
        },
        ref("Start"), needs_body=True,
    ),
    Operation(
        "GET", "/api/flows", "listFlows", "The flows that can be started here.",
        {200: json_answer("All of them.", ref("Flows"))},
    ),
    Operation(
        "GET", "/api/flows/{name:path}", "getFlow", "One flow, with its inputs and what is wrong with it.",
        {200: json_answer("The flow.", ref("Flow")), **_NO_FLOW},
        parameters=(Parameter("name", "The flow's name.", "path"),),
    ),
    Operation(
        "GET", "/api/openapi.json", "describe", "This description.",
        {200: ApiAnswer("OpenAPI 3.1.", {"application/json": {}})},
    ),
)  # fmt: skip
_HANDLERS: Final[Mapping[str, Handler]] = {
    "listRuns": _list_runs,
    "getRun": _get_run,
    "followRun": _stream_events,
    "answerRun": _answer_run,
    "resumeRun": _resume_run,
    "cancelRun": _cancel_run,
    "startRun": _start_run,
    "listFlows": _list_flows,
    "getFlow": _get_flow,
    "describe": _get_openapi,
}
_COMMON_ANSWERS: Final = problems(
    {
        400: MALFORMED,
        401: "A token is needed.",
        403: "The request is of another site, has a cookie alone, or the server is there to look at.",
        421: "The server is not known by this name.",
        500: "Something went wrong; the server's log says more.",
        503: "The store cannot be used now, or nothing is taken.",
    }
)


def make_document(root: str = "") -> Mapping[str, Any]:
    """OpenAPI 3.1; `root` is where the app is mounted."""
    return make_openapi(OPERATIONS, SCHEMAS, _COMMON_ANSWERS, root, "token")
