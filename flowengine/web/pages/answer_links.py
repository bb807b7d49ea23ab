"""Answers the addresses of signed links: a GET shows the question, only a POST of its page decides.

The routes need no token of the server: a link says which question of which run it answers, how, and who answers by it.
They are one list, for each server that has runs (`make_answer_routes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from flowengine.core import ApprovalRequested
from flowengine.engine import RunStarted
from flowengine.errors import ApprovalError, DefinitionError, RunNotFoundError
from flowengine.journal import may_answer, only_looking, open_questions, times_asked
from flowengine.nodes.notify import AnswerLink, find_signer
from flowengine.web.gate import ANSWERS, ProblemError, answering_errors, problem_of, read_form
from flowengine.web.service import RunService
from visualize.viewer import CSP, AskedFor, answer_of, answer_page, style_sheet, told_page

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CSP,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
}
_STYLE: Final = f"{ANSWERS}page/style.css"


@dataclass(frozen=True, slots=True)
class AnswerDesk:
    """The services that a server offers to the pages of links."""

    environ: Mapping[str, str] = field(repr=False)
    """Variables, one of which holds the secret of links."""
    service: RunService


def make_answer_routes(desk: AnswerDesk) -> Sequence[BaseRoute]:

    async def show(request: Request) -> Response:
        """The page that asks the question. It changes nothing: scanners of mails follow every link."""
        return _page_of(request, await _find_question(request, desk))

    async def take(request: Request) -> Response:
        """Take the answer of the form."""
        return await _take(request, desk)

    address = f"{ANSWERS}{{token}}"
    return [
        Route(_STYLE, _serve_style),
        Route(address, answering_errors(show, _answer_error)),
        Route(address, answering_errors(take, _answer_error), methods=["POST"]),
    ]


def _answer_error(request: Request, error: Exception) -> Response:
    """A page that says nothing of any run but the link's."""
    problem = problem_of(error)
    return _respond(request, problem.title, problem.detail, problem.status)


async def _serve_style(request: Request) -> Response:
    return Response(style_sheet(), media_type="text/css; charset=utf-8", headers=_HEADERS)


def _place(request: Request, path: str) -> str:
    return f"{request.scope.get('root_path', '')}{path}"


def _respond(request: Request, title: str, text: str, status: int = 200) -> Response:
    return HTMLResponse(told_page(title, text, _place(request, _STYLE)), status, headers=_HEADERS)


class _OpenQuestion(NamedTuple):
    link: AnswerLink
    approval: ApprovalRequested
    flow: str


async def _find_question(request: Request, desk: AnswerDesk) -> _OpenQuestion:
    """The question of the link, where it is still open; a `ProblemError` says why it is not."""
    try:
        link = find_signer(desk.environ).read(request.path_params["token"])
    except DefinitionError as error:
        raise ProblemError(503, "Links are not answered here", str(error)) from None
    if link is None:
        raise ProblemError(404, "Not a link of ours", "It is not whole, or it was made with another secret.")
    try:
        with only_looking():
            events = await desk.service.events(link.run_id)
    except RunNotFoundError:
        raise ProblemError(410, "The run is gone", "There is nothing to answer any more.") from None
    started, question = events[0], open_questions(events).get(link.question)
    if link.expires is not None and link.expires <= time():
        raise ProblemError(410, "The time is up", "The question has expired; what was to count then counts.")
    if question is None or not isinstance(started, RunStarted) or times_asked(events)[link.question] != link.asked:
        raise ProblemError(410, "Answered already", "This question is open no more; each link is good for one answer.")
    if not may_answer(link.by, question.approvers) or link.choice not in question.choices:
        raise ProblemError(403, "Not yours to answer", f"{link.by} is not among those who may answer it.")
    return _OpenQuestion(link, question, started.flow)


def _page_of(request: Request, question: _OpenQuestion, problem: str = "", status: int = 200) -> Response:
    link = question.link
    about = AskedFor(question.flow, link.run_id, link.question, link.asked, link.choice, link.by)
    action = _place(request, f"{ANSWERS}{request.path_params['token']}")
    page = answer_page(question.approval, about, action, _place(request, _STYLE), problem)
    return HTMLResponse(page, status, headers=_HEADERS)


async def _take(request: Request, desk: AnswerDesk) -> Response:
    question = await _find_question(request, desk)
    fields, link = await read_form(request), question.link
    try:
        reply = answer_of(question.approval, {**fields, "choice": link.choice})
    except ValueError as error:
        return _page_of(request, question, str(error), 422)
    try:
        choice, comment, form = reply
        outcome = await desk.service.answer(
            link.run_id, link.question, choice, form, link.by, comment=comment, asked=link.asked
        )
    except ApprovalError as error:
        is_open = link.question in open_questions(await desk.service.events(link.run_id))
        if is_open:  # It does not fit.
            return _page_of(request, question, str(error), 422)
        raise ProblemError(410, "Answered already", "Somebody else has answered before.") from None
    sequel = "The run goes on." if outcome.goes_on else "It counts when the run goes on."
    return _respond(request, f"Your answer is kept: {link.choice}", sequel)
