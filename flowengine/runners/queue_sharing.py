"""Runs that wait for their turn in one worker while others have nothing to do: they are left to those.

A run waits where another one of its worker is driven alone, or because it is to be driven alone itself. It is put back
into the queue, and all workers are told to look there.
"""

from __future__ import annotations

import json
from typing import Final

from procrastinate import App

from flowengine.runners.queue_company import Company
from flowengine.runners.suspicion import share_out

__all__ = ["Sharing"]

_IDLE: Final = """
    SELECT count(*) AS idle FROM procrastinate_workers AS worker JOIN flowengine_worker AS said USING (id)
    WHERE said.queue = %(queue)s AND worker.id <> %(worker)s
    AND worker.last_heartbeat > now() - make_interval(secs => %(stalled)s)
    AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE worker_id = worker.id AND status = 'doing')
"""
_TELL: Final = "SELECT pg_notify('procrastinate_queue_v1#' || %(queue)s, %(said)s)"
"""As the library does for a new job."""


class Sharing:
    """`look` is called again and again. `stalled`: seconds after which a worker that gives no sign is gone."""

    def __init__(self, app: App, queue: str, company: Company, *, stalled: float) -> None:
        self._app, self._queue, self._company, self._stalled = app, queue, company, stalled
        self._left = False

    async def look(self, worker: int | None, has_rescued: bool) -> None:
        """Leave runs to idle workers, and tell all of those that were left the last time, or rescued now."""
        if self._left or has_rescued:
            said = json.dumps({"type": "job_inserted", "job_id": 0})
            await self._app.connector.execute_query_async(_TELL, queue=self._queue, said=said)
        self._left = False
        if worker is None or not self._company.waiting:
            return
        found = await self._app.connector.execute_query_one_async(
            _IDLE, queue=self._queue, worker=worker, stalled=self._stalled
        )
        leaving = share_out(self._company.waiting, found["idle"])
        if leaving:
            self._company.leave(leaving)
            self._left = True
