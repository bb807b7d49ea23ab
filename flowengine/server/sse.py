"""Where a follower begins: at the event after the last one that it has, as its browser says, or as its address does."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from flowengine.server.news import Form
from flowengine.server.parts import parts_of
from flowengine.server.problems import ProblemError
from flowengine.server.streaming import EventStream

__all__ = ["event_stream"]


async def event_stream(request: Request, form: Form) -> Response:
    """The events of a run as they come; 204 where no more will, so that browsers stop asking."""
    following = parts_of(request).following
    run_id = request.path_params["run_id"]
    after = _after(request)
    if not await following.has_more(run_id, after):
        return Response(status_code=204)
    return EventStream(following.messages(run_id, after, form))


def _after(request: Request) -> int:
    last = request.headers.get("last-event-id")
    text = request.query_params.get("after", "0") if last is None else last
    if not text.isdecimal() or len(text) > 9:
        raise ProblemError(400, "No such position", f"a position is a whole number from 0 on, found {text!r:.40}")
    return int(text) + (last is not None)
