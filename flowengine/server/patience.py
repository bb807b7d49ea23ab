"""How long a connection may take to send a request, and how many may be without one: HTTP connections with deadlines.

A request has a time for its head and as much again for its body, from its first byte on, however steadily the bytes
come; one that is late is answered with 408 where nothing was answered yet, and its connection is closed. Of the
connections that have sent no whole head, the oldest makes room for the newest. Answers, which may be streams without
an end, have no deadline here. It knows sockets and bytes, and no paths.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, Literal, NamedTuple, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["Limits", "connections_with"]


class Limits(NamedTuple):
    """What a client may take."""

    seconds: float = 20.0
    """For the head of a request, and again for its body."""
    waiting: int = 256
    """Connections without a whole head. A process often has 1,024 descriptors for everything."""


Phase = Literal["head", "body"]

_LATE: Final = b"the request did not arrive in time\n"


def connections_with(limits: Limits) -> type[asyncio.Protocol]:
    """The class of a server's connections."""

    class Limited(_Connection):
        allowed = limits
        waiting: ClassVar[dict[_Connection, None]] = {}

    return Limited


class _Connection(H11Protocol):
    allowed: ClassVar[Limits]
    waiting: ClassVar[dict[_Connection, None]]
    """Connections without a whole head, the oldest first."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._phase: Phase | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base has it
        super().connection_made(transport)
        self._enter("head")
        if len(self.waiting) > self.allowed.waiting:
            next(iter(self.waiting)).refuse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._enter(None if self.transport.is_closing() else self._phase_of_request())

    def refuse(self) -> None:
        """Close the connection, which has taken too long."""
        has_begun = self._phase == "body" or bool(self.conn.trailing_data[0])
        self._enter(None)
        if self.transport.is_closing():
            return
        asked = self._asked()
        if asked is not None:
            asked.disconnected = True
            asked.message_event.set()
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer_late()
        self.transport.close()

    def _phase_of_request(self) -> Phase | None:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        # Between two requests, where nothing of the next has come, uvicorn has a time limit of its own.
        is_next = self._asked() is None or bool(self.conn.trailing_data[0])
        return "head" if self.conn.their_state is h11.IDLE and is_next else None

    def _asked(self) -> RequestResponseCycle | None:
        """The latest request; its base declares it without the None that it begins with."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _enter(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if phase is None else self.loop.call_later(self.allowed.seconds, self.refuse)
        if phase == "head":
            self.waiting[self] = None

    def _answer_late(self) -> None:
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(_LATE)))]
        response = h11.Response(status_code=408, headers=[*headers, ("connection", "close")], reason=b"Request Timeout")
        for event in (response, h11.Data(data=_LATE), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
