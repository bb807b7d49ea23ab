"""Collects what journals write to PostgreSQL, and makes the one statement that writes it for many runs at once.

The statement is a transaction: each run's row is changed where its epoch is still the writer's, and only the
events of those runs are put in. So a writer whose run was taken over writes nothing of it, and the runs beside
it do not notice. It may be done twice, as after a broken connection. Pure; nothing here has a connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from flowengine.engine import RunStarted
from flowengine.errors import JournalError
from flowengine.journal.postgres.digests import PUT_DIGESTS, digest_row
from flowengine.journal.run_digest import RunDigest, session_of
from flowengine.journal.run_lookup import encode_labels, labels_of, storable

_FULL: Final = 8_000_000
"""Characters after which a statement takes no further entry."""


@dataclass(slots=True, eq=False)
class Hold:
    """A run as its writer knows it."""

    run_id: str
    number: int
    epoch: int
    """Grows with each writer."""
    failure: JournalError | None = None
    """Why nothing more is written of this run."""
    length: int = 0
    """The length of its run in the store, as far as this writer knows."""
    confirmed: float = -inf
    """When it was last known to be ours, until all have relied on that who may."""
    relied: int = 0
    """How many have."""

    def confirm(self, now: float) -> None:
        """The server has said that it is ours."""
        self.confirmed, self.relied = now, 0


class Begin(NamedTuple):
    """The first row of a new run."""

    flow: str
    started: float
    path: str | None
    labels: str | None = None
    session: str | None = None

    @classmethod
    def of(cls, event: RunStarted) -> Begin:
        labels, session = encode_labels(labels_of(event)), session_of(event) or None
        return cls(storable(event.flow) or "", event.at, storable(event.path), labels, session)


class BatchEntry(NamedTuple):
    """One step of a run: an event, or that its writer lets go of it."""

    hold: Hold
    length: int
    """The length of the run, this event included."""
    body: str | None
    status: str | None = None
    """The run's from now on; None: as before."""
    finished: float | None = None
    owns: bool = True
    """Whether the run has a writer from now on."""
    begin: Begin | None = None
    is_paid: bool = False
    """Whether it is kept even where the run is another's by now."""
    digest: RunDigest | None = None
    """The digest that lists show of the run from now on."""


WRITE: Final = f"""
WITH begun AS (
    INSERT INTO flowengine.run AS run
        (number, run_id, flow, status, started, finished, path, owner, owner_name, epoch, length, labels,
        session)
    SELECT number, run_id, flow, coalesce(status, 'running'), started, finished, path,
        CASE WHEN owns THEN %s::bigint END, %s::text, epoch, length, labels::jsonb, session
    FROM unnest(
        %s::bigint[], %s::bigint[], %s::int[], %s::text[], %s::float8[], %s::bool[],
        %s::text[], %s::text[], %s::float8[], %s::text[], %s::text[], %s::text[]
    ) AS new (number, epoch, length, status, finished, owns, run_id, flow, started, path, labels, session)
    ON CONFLICT (run_id) DO UPDATE SET length = excluded.length WHERE run.number = excluded.number
    RETURNING number
), kept AS (
    UPDATE flowengine.run SET
        length = new.length,
        status = coalesce(new.status, run.status),
        finished = CASE WHEN new.status IS NULL THEN run.finished ELSE new.finished END,
        owner = CASE WHEN new.owns THEN %s::bigint END
    FROM unnest(%s::bigint[], %s::bigint[], %s::int[], %s::text[], %s::float8[], %s::bool[])
        AS new (number, epoch, length, status, finished, owns)
    WHERE run.number = new.number AND run.epoch = new.epoch
    RETURNING run.number
), ours AS (
    SELECT number FROM begun UNION ALL SELECT number FROM kept
), put AS (
    INSERT INTO flowengine.event
    SELECT new.* FROM unnest(%s::bigint[], %s::int[], %b::text[]) AS new (number, position, body)
    JOIN ours USING (number)
    ON CONFLICT DO NOTHING
), told AS ({PUT_DIGESTS.format(only="JOIN ours USING (number)")})
SELECT number FROM ours
""".encode()
"""Gives the numbers of the runs that were written."""


LATE: Final = b"""
INSERT INTO flowengine.late SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::int[], %s::text[])
ON CONFLICT DO NOTHING
"""
CHECK: Final = b"SELECT number, epoch FROM flowengine.run WHERE number = ANY(%s)"


@dataclass(slots=True)
class _Run:
    """All entries of one run, taken together."""

    hold: Hold
    length: int = 0
    status: str | None = None
    finished: float | None = None
    owns: bool = True
    begin: Begin | None = None

    @property
    def row(self) -> tuple[Any, ...]:
        return self.hold.number, self.hold.epoch, self.length, self.status, self.finished, self.owns


def columns_of(entries: Iterable[BatchEntry], key: int, owner: str) -> tuple[list[Any], list[tuple[Hold, bool]]]:
    """The values of `WRITE`, and the runs that it is to write: whether each begins there."""
    runs: dict[int, _Run] = {}
    events: list[tuple[Any, ...]] = []
    digests: dict[int, tuple[Any, ...]] = {}
    for entry in entries:
        run = runs.get(entry.hold.number)
        if run is None:
            run = runs[entry.hold.number] = _Run(entry.hold, begin=entry.begin)
        run.length, run.owns = entry.length, entry.owns
        if entry.status is not None:
            run.status, run.finished = entry.status, entry.finished
        if entry.body is not None:
            events.append((entry.hold.number, entry.length - 1, entry.body))
        if entry.digest is not None:
            digests[entry.hold.number] = digest_row(entry.hold.number, entry.digest)
    new_rows = [(*run.row, run.hold.run_id, *run.begin) for run in runs.values() if run.begin is not None]
    old_rows = [run.row for run in runs.values() if run.begin is None]
    values = [key, owner, *_transpose(new_rows, 12), key, *_transpose(old_rows, 6), *_transpose(events, 3)]
    values += _transpose(list(digests.values()), 7)
    return values, [(run.hold, run.begin is not None) for run in runs.values()]


def take_batch(entries: deque[BatchEntry]) -> list[BatchEntry]:
    """Take the first entries out, as many as one statement takes."""
    batch: list[BatchEntry] = []
    size = 0
    while entries and size < _FULL:
        entry = entries.popleft()
        batch.append(entry)
        size += len(entry.body or "")
    return batch


def late_columns_of(entries: Iterable[BatchEntry]) -> list[list[Any]]:
    """The values of `LATE`: of entries that cannot be written any more, those that are kept all the same."""
    rows = [(each.hold.number, each.hold.epoch, each.length - 1, each.body) for each in entries if each.is_paid]
    return _transpose(rows, 4)


def _transpose(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows as columns."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
