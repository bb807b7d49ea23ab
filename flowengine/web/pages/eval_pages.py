"""Answers the addresses of the pages of evals: which there are, and the report of each set. They change nothing."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError, RunNotFoundError
from flowengine.evals import STYLE, evals_page, list_evals, list_sets, load_set, make_report
from flowengine.evals.report_page import report_page
from flowengine.web.gate import get_parts, problem_response
from visualize.viewer import ROOT, bare_page, element, run_url


def make_eval_routes() -> list[Route]:
    """`/evals`, and `/evals/{set}` with `?against={set}`."""
    return [
        Route("/evals", _list, methods=["GET"]),
        Route("/evals/style.css", _style, methods=["GET"]),
        Route("/evals/{id}", _show, methods=["GET"]),
    ]


async def _style(request: Request) -> Response:
    return Response(STYLE, media_type="text/css")


async def _list(request: Request) -> Response:
    return await _answer(
        request,
        lambda store: evals_page(
            list_evals(store), lambda name: list_sets(store, name), _eval_url, _eval_url("style.css")
        ),
    )


async def _show(request: Request) -> Response:
    against = request.query_params.get("against")

    def make(store: JournalStore) -> str:
        row_set = load_set(store, request.path_params["id"])
        before = None if against is None else load_set(store, against)
        heading = f'<p><a href="{escape(_eval_url())}">Evals</a></p>'
        report = make_report(row_set, before)
        return report_page(report, run_link=run_url, heading=heading, stylesheet=_eval_url("style.css"))

    return await _answer(request, make)


def _eval_url(name: str = "") -> str:
    return f"{ROOT.get()}/evals{name and '/'}{quote(name, safe='')}"


async def _answer(request: Request, make: Callable[[JournalStore], str]) -> Response:
    """The page, made where the store is read."""
    shelf = get_parts(request).shelf
    try:
        page = await shelf.do(make, shelf.store)
    except RunNotFoundError:
        missing = element("p", "There is no such eval.")
        return HTMLResponse(bare_page("Evals", _eval_url("style.css"), missing), 404)
    except FlowEngineError as error:
        return problem_response(error, as_page=True, back=_eval_url())
    return HTMLResponse(page)
