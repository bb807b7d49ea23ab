"""What a worker says of itself, beside the sign of life in the tables of the queue's library.

The row is written once for each id that the library gives a worker, and means something only as long as the library
has that id: what a dead worker has left is deleted by the next one that begins.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from procrastinate import App

from flowengine.version import __version__

__all__ = ["Presence"]

_ANNOUNCE: Final = """
    WITH gone AS (DELETE FROM flowengine_worker WHERE id NOT IN (SELECT id FROM procrastinate_workers))
    INSERT INTO flowengine_worker (id, host, process, version, queue, concurrency)
    VALUES (%(worker)s, %(host)s, %(process)s, %(version)s, %(queue)s, %(concurrency)s) ON CONFLICT (id) DO NOTHING
"""


class Presence:
    """`announce` writes down who a worker is."""

    def __init__(self, app: App, queue: str, concurrency: int) -> None:
        self._app, self._queue, self._concurrency = app, queue, concurrency
        self._announced: int | None = None

    async def announce(self, worker: int | None) -> None:
        """Write the row of a worker, unless that was done; None is a worker that has no id yet."""
        if worker is None or worker == self._announced:
            return
        await self._app.connector.execute_query_async(
            _ANNOUNCE,
            worker=worker,
            host=socket.gethostname(),
            process=os.getpid(),
            version=__version__,
            queue=self._queue,
            concurrency=self._concurrency,
        )
        self._announced = worker
