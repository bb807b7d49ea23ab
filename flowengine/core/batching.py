"""Says how a model call is put aside until a batch of many has answered it, as a question to a person is.

A call that may wait raises `AwaitsAnswer`, its node parks, and its run is put aside; when the answer has come the run
goes on, comes to the same call again, and has it. Who gathers calls and sends them is not known here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NoReturn, Protocol

from flowengine.core.budget import Reservation


class AwaitsAnswer(BaseException):
    """A call waits for a batch. It goes through whatever catches errors, since it is none."""


class CallPlace:
    """One call of a node: the same in every process that comes to it again."""

    __slots__ = ("_counts", "batcher", "is_cheap", "name", "run_id")

    def __init__(self, batcher: Batcher, run_id: str, *where: object) -> None:
        """`where`: node, how often it was tried, the request's key, and how many equal ones were asked before."""
        self.batcher = batcher
        self.run_id = run_id
        self.is_cheap = False
        """Whether the latest answer came at the price of a batch."""
        self.name = hashlib.sha256("\0".join([run_id, *map(str, where)]).encode("utf-8", "replace")).hexdigest()[:24]
        self._counts = Counter[str]()

    def name_request(self, url: str, body: bytes) -> str:
        """Returns the name of a call's request; a further attempt gets another name.

        Vendors take 64 characters.
        """
        name = f"{self.name}-{hashlib.sha256(url.encode() + bytes(1) + body).hexdigest()[:16]}"
        self._counts[name] += 1
        return f"{name}-{self._counts[name]}"


class Batcher(Protocol):
    """Answers calls through batches, and knows whose runs are put aside for that."""

    async def answer(self, place: CallPlace, call: Any, /) -> tuple[Mapping[str, Any], bool]:
        """The vendor's answer, and whether it came at the price of a batch; or `AwaitsAnswer`."""
        ...

    def find_reservation(self, place: CallPlace, /) -> Reservation | None:
        """Returns the reservation of a call that was put aside."""
        ...

    def hold(self, place: CallPlace, reservation: Reservation, /) -> None: ...

    def may_reserve(self, place: CallPlace, /) -> bool:
        """Tells whether no other call of the run is still to be given what it holds."""
        ...

    def wait_for_room(self, place: CallPlace, /) -> NoReturn:
        """Put a call aside that a limit does not allow while others hold so much: an `AwaitsAnswer`."""
        ...

    def begin(self, run_id: str, /) -> None:
        """A run begins, or goes on."""
        ...

    def leave(self, run_id: str, wake: Callable[[], None] | None, /) -> bool:
        """A run has come to its end, or to where it waits: whether that is for a batch. `wake` is called once that is
        worth another look; None where it has ended for good."""
        ...


BATCHING: Final[ContextVar[Batcher | None]] = ContextVar("BATCHING", default=None)
"""Who answers calls through batches, in the tasks below the one that set it."""
CALL: Final[ContextVar[CallPlace | None]] = ContextVar("CALL", default=None)
"""The call that is being made and may be put aside."""
