"""Defines what a vendor's protocol is: how a request becomes a body, and an answer a `Reply`.

A protocol waits for nothing and sends nothing: `native_model` does. It knows no price, and takes no key out of texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.model import Reply, Request

__all__ = [
    "AnswerCollector",
    "ChatProtocol",
    "IncompleteAnswerError",
    "StreamFailureError",
    "StreamedEvent",
    "VendorAnswer",
]


class VendorAnswer(NamedTuple):
    """An answer as the vendor gave it."""

    reply: Reply
    """Without price, seconds and provider."""
    refusal: str = ""
    """What the model said instead of an answer."""


class StreamedEvent(NamedTuple):
    """One event of a stream."""

    data: str
    kind: str = "message"


class IncompleteAnswerError(Exception):
    """An answer that has no end, or nothing in it: the same request may work later."""


class StreamFailureError(Exception):
    """A failure that the server told inside of an answer that it had begun."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__("the server broke its answer off")
        self.body = body
        """As the body of an HTTP error would be."""


class AnswerCollector(Protocol):
    """Puts the events of a streamed answer together."""

    is_complete: bool
    """Whether the event has come after which no other one matters."""

    def add(self, event: StreamedEvent) -> str:
        """Take an event; its piece of the text, which may be empty. `StreamFailureError` where it tells of one."""
        ...

    def answer(self) -> VendorAnswer:
        """The whole answer, once the stream has ended; `IncompleteAnswerError` where its end is missing."""
        ...


class ChatProtocol(Protocol):
    """One way to talk to a model over HTTP."""

    def path(self, model: str, settings: Mapping[str, Any]) -> str:
        """What comes after the vendor's address, with the query."""
        ...

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """The headers of each call, the key among them (`settings["api_key"]`)."""
        ...

    def body(self, request: Request, traits: VendorTraits, *, stream: bool) -> dict[str, Any]:
        """The request as the vendor wants it; what the caller left open is left out."""
        ...

    def read(self, body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
        """A whole answer; `IncompleteAnswerError` where there is none in it."""
        ...

    def collector(self, traits: VendorTraits) -> AnswerCollector:
        """For the events of one answer."""
        ...
