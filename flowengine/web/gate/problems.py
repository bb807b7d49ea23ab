"""Turns an error into an answer: a page for people, a problem object (RFC 9457) for programs. No traceback leaves.

An error that is none of ours is logged, with personal data and secrets masked, and answered as a 500 without it.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route

from flowengine.core import dumps
from flowengine.core.masking import Masker
from flowengine.errors import (
    ApprovalError,
    DefinitionError,
    EffectPendingError,
    FlowChangedError,
    FlowEngineError,
    FlowError,
    FlowNotFoundError,
    InputError,
    JournalError,
    NotJournalableError,
    RunNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreVersionError,
)
from flowengine.journal import reading_record
from flowengine.runtime import OverloadedError, StoppingError
from flowengine.web.service import AccessError, KeyReusedError, QuotaError
from visualize.viewer import Child, element, note, whole
from visualize.viewer.page import page

MEDIA_TYPE: Final = "application/problem+json"

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_LOG: Final = logging.getLogger("flowengine.server")


class ProblemError(FlowEngineError):
    """A request that cannot be answered as asked."""

    def __init__(self, status: int, title: str, detail: str = "", **more: Any) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail
        self.more: Mapping[str, Any] = more
        """Further members of the problem object."""


_STATUSES: Final[Mapping[type[FlowEngineError], tuple[int, str]]] = {
    AccessError: (403, "Not allowed"),
    KeyReusedError: (422, "The key was used with other inputs"),
    OverloadedError: (429, "Too many runs"),
    QuotaError: (429, "Too much for this key"),
    StoppingError: (503, "The server stops"),
    FlowNotFoundError: (404, "No such flow"),
    RunNotFoundError: (404, "No such run"),
    StoreVersionError: (422, "The run was written by a newer FlowEngine"),
    StoreCorruptError: (422, "The run's record is damaged"),
    StoreUnavailableError: (503, "The store cannot be used now"),
    FlowChangedError: (409, "The flow was edited since the run started"),
    EffectPendingError: (409, "A person has to decide about an external call"),
    ApprovalError: (409, "The answer cannot be taken"),
    NotJournalableError: (422, "A value cannot be written down"),
    JournalError: (409, "The run's record does not allow it"),
    InputError: (422, "The inputs do not fit"),
    DefinitionError: (422, "The definition is wrong"),
}
"""The first that fits counts."""


def problem_of(error: Exception) -> ProblemError:
    """The problem that an error is; an unforeseen one is logged."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, FlowError):
        diagnostics = [{"code": each.code, "message": str(each)} for each in error.diagnostics]
        return ProblemError(422, "The flow has errors", str(error), diagnostics=diagnostics)
    for kind, (status, title) in _STATUSES.items():
        if isinstance(error, kind):
            return ProblemError(status, title, str(error))
    _LOG.error("%s", Masker().mask("".join(traceback.format_exception(error))))
    return ProblemError(500, "Something went wrong", f"{type(error).__name__}; the server's log says more")


def problem_response(error: Exception, *, as_page: bool, back: str | None = None) -> Response:
    """The answer, with `Retry-After` where asking again may help; `back`: where a link on the page leads."""
    problem = problem_of(error)
    response = _write_page(problem, back) if as_page else _write_problem(problem)
    if (wait := getattr(error, "retry_after", None)) is not None:
        response.headers["Retry-After"] = str(wait)
    if problem.status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="flowengine"'
    return response


def _write_page(problem: ProblemError, back: str | None) -> Response:
    link: Child = element("p", element("a", "Back", href=back)) if back is not None else None
    detail = note(problem.detail, kind="bad") if problem.detail else None
    main = element("main", element("h1", problem.title), detail, link, class_="narrow")
    return HTMLResponse(page(problem.title, main), problem.status)


def _write_problem(problem: ProblemError) -> Response:
    body = {"type": "about:blank", "title": problem.title, "status": problem.status, "detail": problem.detail}
    return Response(whole(dumps({**problem.more, **body})), problem.status, media_type=MEDIA_TYPE)


def answering_errors(handler: Handler, answer: Callable[[Request, Exception], Response]) -> Handler:
    """The handler, whose errors are answered. One while a run is only read is told as damage of its record."""

    @wraps(handler)
    async def guarded(request: Request) -> Response:
        run_id: str | None = request.path_params.get("run_id") if request.method in ("GET", "HEAD") else None
        try:
            with nullcontext() if run_id is None else reading_record(run_id):
                return await handler(request)
        except Exception as error:
            return answer(request, error)

    return guarded


def tell_allowed(request: Request, response: Response) -> Response:
    """The response; one that refuses a method has `Allow`, which lists those of all routes of the address."""
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        routes = [each for each in request.app.routes if each.matches(request.scope)[0] is Match.PARTIAL]
        methods = {method for each in routes if isinstance(each, Route) for method in each.methods or ()}
        response.headers["Allow"] = ", ".join(sorted(methods))
    return response
