"""The queue's connection to PostgreSQL, which waits for a server that went away, ever longer, and not in step.

The library's own gives up at once, and the worker with it. Here its heartbeats, its looks for jobs and what it
says of their ends are late after a restart of the server, and nothing else. It knows no jobs and no runs.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final, TypeVar

import anyio
import psycopg
from procrastinate import PsycopgConnector
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException
from psycopg_pool import AsyncConnectionPool

__all__ = ["PatientConnector"]

T = TypeVar("T")

_FIRST: Final = 0.2
_LONGEST: Final = 2.0
_POOL: Final[dict[str, Any]] = {"timeout": 5.0, "reconnect_timeout": 5.0, "max_idle": 10.0}
"""Seconds after which the pool stops trying, so that whoever waits for it decides when the next try is; and after
which it closes a connection that is not needed."""


def _unchecked_pool(**options: Any) -> AsyncConnectionPool:
    """A pool that does not ask the server before each use whether it is there: who finds it gone tries again."""
    options["check"] = None
    return AsyncConnectionPool(**options)


class PatientConnector(PsycopgConnector):
    """What is asked of the server is asked again when the connection broke, until `stop_waiting`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(pool_factory=_unchecked_pool, **(_POOL | options))  # pyright: ignore[reportUnknownMemberType] # the library's own
        self._end = inf

    def stop_waiting(self, after: float) -> None:
        """From now on, a server that went away is waited for so many seconds in all."""
        self._end = min(self._end, monotonic() + after)

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        """Where a job is no longer what it was, somebody else has seen to it: there is nothing to say of it."""
        try:
            await self._patiently(partial(super().execute_query_async, query, **arguments))
        except ConnectorException as error:
            if not isinstance(error.__cause__, psycopg.errors.RaiseException):
                raise

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        return await self._patiently(partial(super().execute_query_one_async, query, **arguments))

    async def execute_query_all_async(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        return await self._patiently(partial(super().execute_query_all_async, query, **arguments))

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        channels = list(channels)
        await self._patiently(partial(super().listen_notify, on_notification, channels))

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        pause = _FIRST
        while True:
            try:
                return await work()
            except ConnectorException as error:
                if not isinstance(error.__cause__, psycopg.OperationalError) or monotonic() > self._end:
                    raise
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST)
