"""Writes what became of a run as an answer over HTTP: JSON, a problem object, or server-sent events."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flowengine.core import to_json_value
from flowengine.core.masking import Masker
from flowengine.engine import Event, NodeFailed, TokenStreamed
from flowengine.errors import StoreCorruptError, StoreUnavailableError, StoreVersionError
from flowengine.web.gate import Handler, ProblemError, answering_errors, problem_of, problem_response
from flowengine.web.service import NODE_STATES, RunOutcome, dates_of
from visualize.viewer import whole

_LOG: Final = logging.getLogger("flowengine.serving")


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(to_json_value(value), ensure_ascii=False, separators=(",", ":"))
    return Response(whole(text), status, dict(headers or {}), "application/json")


def error_response(error: Exception) -> Response:
    """A problem object (RFC 9457) for a caller."""
    return problem_response(hide_store(error), as_page=False)


def make_routes(
    table: Iterable[tuple[str, str, Handler]], answer: Callable[[Exception], Response] = error_response
) -> list[Route]:
    """Routes of a method, a path and a handler each, whose errors are answered."""

    def answer_error(request: Request, error: Exception) -> Response:
        return answer(error)

    return [Route(path, answering_errors(each, answer_error), methods=[method]) for method, path, each in table]


def hide_store(error: Exception) -> Exception:
    """The error for a caller: one of the store, which names its file or server, goes to the log."""
    if not isinstance(error, StoreUnavailableError | StoreCorruptError | StoreVersionError):
        return error
    _LOG.error("%s", Masker().mask(f"{type(error).__name__}: {error}"))
    problem = problem_of(error)
    return ProblemError(problem.status, problem.title, f"{problem.title}; the server's log says more")


def to_run_state(outcome: RunOutcome, root: str = "") -> dict[str, Any]:
    """Returns a run's state with its addresses; `root`: the app's mount path."""
    at = f"{root}/runs/{outcome.run_id}"
    state: dict[str, Any] = {
        "run_id": outcome.run_id,
        "flow": outcome.flow,
        "status": outcome.status,
        "started": outcome.started,
        "finished": outcome.finished,
        **dates_of(outcome.status, outcome.started, outcome.finished),
        "outputs": outcome.outputs if outcome.has_ended else None,
        "error": None,
        "questions": [{**to_json_value(each), "answer": f"{at}/answer"} for each in outcome.questions],
        "links": {"self": at, "events": f"{at}/events", "answer": f"{at}/answer", "cancel": f"{at}/cancel"},
    }
    if outcome.error is not None:
        state["error"] = {"type": outcome.error.type, "message": outcome.error.message, "node": outcome.failed_node}
    return state


def accepted_response(outcome: RunOutcome, root: str, headers: Mapping[str, str]) -> Response:
    """202: the run goes on, or waits for somebody; `Location` says where it is."""
    at = {"Location": f"{root}/runs/{outcome.run_id}"}
    return json_response(to_run_state(outcome, root), 202, {**headers, **at})


def outcome_response(outcome: RunOutcome, root: str, headers: Mapping[str, str]) -> Response:
    """The outputs of a run that gave any; its question, or why it failed."""
    if outcome.status in ("succeeded", "partial"):
        return json_response(outcome.outputs, 200, {**headers, "Flowengine-Status": outcome.status})
    if not outcome.has_ended:
        return accepted_response(outcome, root, headers)
    title = "The run was cancelled" if outcome.status == "cancelled" else "The run failed"
    status = 409 if outcome.status == "cancelled" else 500
    message = "" if outcome.error is None else outcome.error.message
    kind = None if outcome.error is None else outcome.error.type
    problem = ProblemError(status, title, message, run_id=outcome.run_id, node=outcome.failed_node, error=kind)
    response = problem_response(problem, as_page=False)
    response.headers.update(headers)
    return response


def encode_message(event: str, data: Any, position: int | None = None) -> bytes:
    """One server-sent event."""
    text = whole(json.dumps(to_json_value(data), ensure_ascii=False, separators=(",", ":")))
    place = "" if position is None else f"id: {position}\n"
    return f"{place}event: {event}\ndata: {text}\n\n".encode()


def encode_progress(position: int | None, event: Event | TokenStreamed) -> bytes | None:
    """The state of a node, or the text of an agent, without prompts and results; None for any other event."""
    if isinstance(event, TokenStreamed):
        return encode_message("token", {"node": event.node, "text": event.text, "begins": event.begins})
    state = NODE_STATES.get(type(event))
    if state is None:
        return None
    fields = {"node": getattr(event, "node", ""), "state": state, "at": event.at}
    if isinstance(event, NodeFailed):
        fields["error"] = event.error.message
    return encode_message("progress", fields, position)
