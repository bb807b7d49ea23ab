"""Answers the addresses of the viewer's pages: `visualize.viewer` makes them of what the store holds now."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from time import time
from typing import Any, Final, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from flowengine.core import OTHER, FileValue, find_files, media_type_of
from flowengine.engine import NodeRecorded
from flowengine.errors import RunNotFoundError
from flowengine.journal import blobs_of, open_questions, parse_labels
from flowengine.web.api import stream_events
from flowengine.web.gate import (
    LARGE_FORM_BYTES,
    Handler,
    ProblemError,
    answering_errors,
    get_parts,
    problem_response,
    read_own_form,
)
from flowengine.web.pages.chosen_runs import act_on_chosen, keep_note
from flowengine.web.pages.run_actions import get_actions, mark_of, perform_action, show_action
from flowengine.web.pages.run_fields import input_fields, read_inputs, read_start, start_fields
from flowengine.web.service import About, RunCache, make_input_schema
from visualize.plain import compact
from visualize.run_difference import MOST_RUNS
from visualize.run_times import times_of
from visualize.viewer import (
    ASSETS,
    SHOWN_IMAGES,
    Acting,
    FlowLine,
    Reading,
    answer_of,
    asset,
    compare_page,
    files_of_record,
    filters_of,
    flow_page,
    flows_page,
    node_panel,
    query_of,
    run_before,
    run_page,
    run_url,
    runs_page,
    runs_url,
    said_in,
    start_form,
    whole,
)

# --- The content of a file: only of one that the run names, and as nothing that a browser would run
#
# The media type is told from the content. Four kinds of raster images are shown; everything else, SVG and HTML too,
# is a download. Whatever it is stands in a sandbox, with no script and no request of its own.

_FILE_CSP: Final = "default-src 'none'; sandbox"
"""The `Content-Security-Policy` of files: they load nothing and run nothing."""

_HEADERS: Final = {
    "Content-Security-Policy": _FILE_CSP,
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, max-age=31536000, immutable",
}


def make_file_response(shelf: RunCache, run_id: str, blob: str) -> Response:
    """The content of a file of a run; 404 for every other. Call it on a thread."""
    file = _find(shelf, run_id, blob)
    if file is None:
        raise ProblemError(404, "No such file", f"run '{run_id}' names no such file")
    content = blobs_of(shelf.store).read_blob(file.blob)
    media_type = media_type_of(content)
    is_shown = media_type in SHOWN_IMAGES
    headers = {**_HEADERS, "Content-Disposition": disposition(file.name, inline=is_shown)}
    return Response(content, media_type=media_type if is_shown else OTHER, headers=headers)


def disposition(name: str, *, inline: bool) -> str:
    """The header that names a file (RFC 6266), whatever its name has in it.

    >>> print(disposition('a";\\r\\nX: ü.png', inline=False))
    attachment; filename="a____X_ _.png"; filename*=UTF-8''a%22%3B%0D%0AX%3A%20%C3%BC.png
    """
    plain = "".join(each if each.isascii() and (each.isalnum() or each in " ._-()") else "_" for each in name)
    how = "inline" if inline else "attachment"
    return f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


def _find(shelf: RunCache, run_id: str, blob: str) -> FileValue | None:
    for event in shelf.read(run_id).events:
        for file in find_files(event):
            if file.blob == blob:
                return file
        if isinstance(event, NodeRecorded):
            for file in files_of_record(event.record):
                if file.blob == blob:
                    return file
    return None


def make_page_routes() -> Sequence[BaseRoute]:
    table: Sequence[tuple[str, Handler, Sequence[str]]] = [
        ("/", _show_runs, ["GET"]),
        ("/runs/{run_id}", _show_run, ["GET"]),
        ("/runs/{run_id}/events", _stream_events, ["GET"]),
        ("/runs/{run_id}/times", _tell_times, ["GET"]),
        ("/runs/{run_id}/files/{blob}", _send_file, ["GET"]),
        ("/runs/{run_id}/nodes/{node:path}", _show_panel, ["GET"]),
        ("/runs/{run_id}/approve/{node:path}", _approve_run, ["POST"]),
        ("/runs/{run_id}/cancel", _cancel_run, ["POST"]),
        ("/runs/{run_id}/act/{action}", show_action, ["GET"]),
        ("/runs/{run_id}/act/{action}", perform_action, ["POST"]),
        ("/runs/{run_id}/notes", keep_note, ["POST"]),
        ("/selection", act_on_chosen, ["GET", "POST"]),
        ("/compare", _compare_runs, ["GET"]),
        ("/flows", _show_flows, ["GET"]),
        ("/flows/{name:path}/start", _start_run, ["POST"]),
        ("/flows/{name:path}", _show_flow, ["GET"]),
        ("/static/{name}", _serve_asset, ["GET"]),
    ]
    return [Route(path, answering_errors(each, _answer_error), methods=methods) for path, each, methods in table]


def _answer_error(request: Request, error: Exception) -> Response:
    """A page, with a link to the run, or to the list where there is no such run."""
    run_id: str | None = request.path_params.get("run_id")
    back = runs_url() if run_id is None or isinstance(error, RunNotFoundError) else run_url(run_id)
    return problem_response(error, as_page=True, back=back)


async def _show_runs(request: Request) -> Response:
    parts = get_parts(request)
    labels = parse_labels(request.query_params.getlist("label"))
    filters = filters_of(request.query_params, labels, parts.by)
    acting = None if parts.read_only else Acting(parts.keys.form)

    def make() -> str:
        runs = parts.shelf.page(query_of(filters), filters.page)
        return runs_page(runs, filters, parts.shelf.frame(parts.by, acting))

    return HTMLResponse(await parts.shelf.do(make))


async def _show_run(request: Request) -> Response:
    parts = get_parts(request)
    run_id: str = request.path_params["run_id"]
    acting = _make_acting(request, run_id)

    about = await parts.shelf.do(parts.shelf.about, run_id)

    def make(run: Reading) -> str:
        usual = parts.shelf.usual_times(run.progress.flow) if run.is_live else None
        return run_page(run, acting, usual, about)

    whose = " of a run of ours" if acting is not None and acting.is_driven else ""
    what = f"page below {request.base_url}{whose} with {hash(repr(about))}"
    return HTMLResponse(await parts.shelf.do(parts.shelf.render, run_id, what, make))


def _make_acting(request: Request, run_id: str) -> Acting | None:
    """Returns the actions available in the page; None if it is read-only."""
    parts = get_parts(request)
    if parts.read_only:
        return None
    does = frozenset([*get_actions(request), *request.app.state.links])
    address = str(request.base_url)
    is_driven = parts.acts.drives(run_id)
    return Acting(parts.keys.form, does=does, is_driven=is_driven, address=address, options=parts.options)


async def _stream_events(request: Request) -> Response:
    return await stream_events(request, "feed")


async def _tell_times(request: Request) -> Response:
    parts = get_parts(request)
    run_id: str = request.path_params["run_id"]

    def make() -> str:
        run = parts.shelf.read(run_id)
        goes_on = run.progress.status in ("running", "waiting") and run_id not in parts.shelf.store.abandoned()
        return compact((times_of(run.events, time()) if goes_on else run.where_time_went).to_plain())

    return Response(whole(await parts.shelf.do(make)), media_type="application/json")


async def _show_panel(request: Request) -> Response:
    parts = get_parts(request)
    run_id, node = request.path_params["run_id"], request.path_params["node"]
    acting = _make_acting(request, run_id)

    def make() -> str:
        return node_panel(parts.shelf.read(run_id), node, acting)

    return HTMLResponse(await parts.shelf.do(make))


async def _send_file(request: Request) -> Response:
    parts = get_parts(request)
    run_id, blob = request.path_params["run_id"], request.path_params["blob"]
    return await parts.shelf.do(make_file_response, parts.shelf, run_id, blob)


async def _start_run(request: Request) -> Response:
    parts = get_parts(request)
    name: str = request.path_params["name"]
    fields = await read_own_form(request, LARGE_FORM_BYTES)
    entry = await parts.shelf.do(parts.library.find, name)
    declared = entry.about().inputs
    is_by_one = any(each.startswith("input.") for each in fields)
    try:
        inputs = read_inputs(declared, fields) if is_by_one else said_in(make_input_schema(declared), fields)
    except ValueError as error:
        raise ProblemError(422, "The inputs do not fit", str(error)) from None
    if not isinstance(inputs, dict):
        raise ProblemError(422, "The inputs do not fit", "the inputs are a JSON object")

    async def work() -> str:
        return run_url(await parts.acts.start_entry(entry, cast("dict[str, Any]", inputs), **read_start(fields)))

    return RedirectResponse(await request.app.state.once.do(mark_of([name], fields), work), 303)


async def _cancel_run(request: Request) -> Response:
    run_id: str = request.path_params["run_id"]
    await read_own_form(request)
    await get_parts(request).acts.cancel(run_id)
    return RedirectResponse(run_url(run_id), 303)


async def _approve_run(request: Request) -> Response:
    parts = get_parts(request)
    run_id, node = request.path_params["run_id"], request.path_params["node"]
    fields = await read_own_form(request)
    question = open_questions(await parts.shelf.events(run_id)).get(node)
    if question is None:
        raise ProblemError(409, "The question is closed", f"node '{node}' of run '{run_id}' waits for no answer")
    try:
        reply = answer_of(question, fields)
    except ValueError as error:
        raise ProblemError(422, "The answer does not fit", str(error)) from None
    outcome = await parts.acts.answer(run_id, node, reply.choice, reply.form, parts.by, comment=reply.comment)
    if not outcome.goes_on:
        raise ProblemError(
            202, "Your answer is kept", f"This server does not have the run's flow: go on with `flowengine resume "
            f"{run_id}`."
        )  # fmt: skip
    return RedirectResponse(run_url(run_id, node), 303)


async def _compare_runs(request: Request) -> Response:
    parts = get_parts(request)
    query = request.query_params

    def make() -> str:
        run_ids = list(dict.fromkeys(each for each in query.getlist("run") if each))
        if len(run_ids) > MOST_RUNS:
            raise ProblemError(
                400, "Too many runs", f"up to {MOST_RUNS} runs are compared, and {len(run_ids)} are chosen"
            )
        if len(run_ids) > 2:
            return compare_page(*map(parts.shelf.read, run_ids))
        a, b = run_ids if len(run_ids) == 2 else (query.get("a", ""), query.get("b", ""))
        if not b:
            raise ProblemError(400, "Two runs are needed", "check two runs in the list")
        before = a or run_before(parts.shelf.store.list(), b)
        if before is None:
            raise ProblemError(404, "Nothing to compare with", f"there is no earlier run of the flow of run '{b}'")
        return compare_page(parts.shelf.read(before), parts.shelf.read(b))

    return HTMLResponse(await parts.shelf.do(make))


async def _show_flows(request: Request) -> Response:
    parts = get_parts(request)

    def make() -> str:
        last: dict[str, tuple[str, str]] = {}
        for info in parts.shelf.store.list():
            last.setdefault(info.flow, (info.run_id, info.status))
        flows = [(name, entry.about()) for name, entry in parts.library.entries().items()]
        return flows_page([_make_flow_line(name, about, last.get(about.name)) for name, about in flows])

    return HTMLResponse(await parts.shelf.do(make))


def _make_flow_line(name: str, about: About, last: tuple[str, str] | None) -> FlowLine:
    warnings = len(about.problems) - about.errors
    return FlowLine(name, about.path, about.description, about.errors, warnings, last)


async def _show_flow(request: Request) -> Response:
    parts = get_parts(request)
    name = request.path_params["name"]

    def make() -> str:
        entry = parts.library.find(name)
        about = entry.about()
        points = parts.shelf.points(about.name)
        picture = parts.library.picture(name, entry)
        is_open = not about.errors and not parts.read_only
        start = (
            None
            if not is_open
            else start_form(
                name,
                make_input_schema(about.inputs),
                Acting(parts.keys.form, options=parts.options),
                ["flowengine", "run", about.path],
                [*input_fields(about.inputs), *start_fields(parts)],
                secrets.token_hex(8),
            )
        )
        return flow_page(name, about.source, picture, about.problems, points, about.description, start)

    return HTMLResponse(await parts.shelf.do(make))


async def _serve_asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        raise ProblemError(404, "No such file", f"there is no file '{name}'")
    body, media_type = asset(name)
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    headers: Final = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
