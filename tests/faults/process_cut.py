"""The store with a log that ends at any byte, or some of whose bytes are others, as a power cut may leave it.

What was committed before that place is there, exactly, and the run is resumed from there. The log's frames have
checksums, so nothing that is wrong is ever read from it. The rows of the database file have checksums of ours: damage
there is a clear error, or does no harm: what is read is what was written, or, of a run that has not ended, a beginning.
"""

from __future__ import annotations

import bisect
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

from flowengine.engine.events import Event, NodeFinished
from flowengine.errors import JournalError, RunNotFoundError
from flowengine.flow import Flow
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.nodes.function import FunctionNode
from tests.faults.process_killed import die
from tests.faults.process_nursery import Nursery

__all__ = [
    "HEADER",
    "Remains",
    "borders",
    "check_checkpoint",
    "check_cut",
    "check_database",
    "check_flipped",
    "copied",
    "end_of",
    "remains_of",
    "rows",
]

NODES: Final = 6
FRAME: Final = 24 + 4096
HEADER: Final = 32


def flow_of(executed: Counter[str]) -> Flow:
    """A chain whose nodes give a text each, from a line to some pages."""

    def make(number: int) -> Callable[[], str]:
        def work() -> str:
            executed[f"n{number}"] += 1
            return f"text {number} " * 4 ** (number % 6)

        return work

    nodes = {
        f"n{number}": FunctionNode(make(number), needs=[f"n{number - 1}"] if number else []) for number in range(NODES)
    }
    return Flow("chain", nodes, outputs={"last": lambda context: context.nodes[f"n{NODES - 1}"].output[:7]})


class Remains(NamedTuple):
    """What a process that was killed left on the disk."""

    database: bytes
    log: bytes
    events: Sequence[Event]
    before: Sequence[Event]
    """Those of the run that had ended."""
    listed: Sequence[object]


def killed(durability: Any, at: int) -> None:
    """Work of a child: runs of the chain, the last of which is killed."""
    store = SQLiteStore("runs.db", durability)
    flow = flow_of(Counter())

    async def run() -> None:
        await flow.run(store=store, run_id="before")
        die("committed", at)
        await flow.run(store=store, run_id="r1")

    anyio.run(run)


def remains_of(nursery: Nursery, folder: Path, durability: str = "process", at: int = 11) -> Remains:
    folder.mkdir()
    ended = nursery.run(killed, folder, durability=durability, at=at)
    assert ended.status == -9, ended.err
    database, log = ((folder / name).read_bytes() for name in ("runs.db", "runs.db-wal"))
    with closing(SQLiteStore(folder / "runs.db")) as store:
        events, before, listed = store.events("r1"), store.events("before"), listed_in(store)
    assert len(events) >= at
    return Remains(database, log, events, before, listed)


def listed_in(store: SQLiteStore) -> list[object]:
    """What the list says of the runs, apart from how many events there are."""
    return [info._replace(events=0) for info in store.list()]


def check_cut(folder: Path, remains: Remains, at: int, before: int = -1) -> int:
    """Read from a log that ends at that byte, and resume where there is more than before; how many events are left."""
    return check_left(folder, remains, remains._replace(log=remains.log[:at]), f"the log cut at {at}", before)


def check_checkpoint(folder: Path, remains: Remains, at: int) -> None:
    """The power goes while the log is copied into the database: that ends anywhere, the log is whole."""
    cut = remains._replace(database=copied(folder, remains)[:at])
    left = check_left(folder, remains, cut, f"the database cut at {at}", len(remains.events))
    assert left == len(remains.events), f"the database cut at {at}: the log was not read"


def copied(folder: Path, remains: Remains) -> bytes:
    """The database once it has what is in the log."""
    path = folder / "copied.db"
    if not path.exists():
        path.write_bytes(remains.database)
        Path(f"{path}-wal").write_bytes(remains.log)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(FULL)")
    return path.read_bytes()


def check_flipped(folder: Path, remains: Remains, at: int, bit: int) -> int:
    """The same with one bit of the log that is another."""
    log = bytearray(remains.log)
    log[at] ^= 1 << bit
    return check_left(folder, remains, remains._replace(log=bytes(log)), f"bit {bit} of byte {at} of the log")


def check_left(folder: Path, whole: Remains, left: Remains, place: str, before: int = -1) -> int:
    path = folder / "left.db"
    shutil.rmtree(f"{path}.locks", ignore_errors=True)
    Path(f"{path}-shm").unlink(missing_ok=True)
    path.write_bytes(left.database)
    Path(f"{path}-wal").write_bytes(left.log)
    with closing(SQLiteStore(path)) as store:
        try:
            found = store.events("r1")
        except RunNotFoundError:
            return 0
        assert list(found) == list(whole.events[: len(found)]), f"{place}: not what was written"
        if len(found) == before:
            return before
        executed: Counter[str] = Counter()
        flow = flow_of(executed)

        async def resume() -> Any:
            return await flow.resume("r1", store=store)

        run = anyio.run(resume)
        assert run.outputs == {"last": f"text {NODES - 1} "[:7]}, f"{place}: {run.error}"
        done = {event.node for event in found if isinstance(event, NodeFinished)}
        assert executed == Counter({f"n{number}" for number in range(NODES)} - done), place
    return len(found)


def check_database(folder: Path, whole: Remains, damaged: bytes, place: str) -> str:
    """A database file without a log that is damaged: an error of ours (`refused`), what was written (`whole`), or
    all but the last events of the run, which has not ended (`shorter`). Anything else is an error here."""
    path = folder / "damaged.db"
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(damaged)
    refusal, found = "", []
    with closing(SQLiteStore(path, patience=0)) as store:
        try:
            found = list(store.events("r1"))
            assert list(store.events("before")) == list(whole.before), f"{place}: the run that had ended is another"
            assert listed_in(store) == list(whole.listed), f"{place}: the list is another"
            assert store.find("@last") == "r1"
            anyio.run(store.open("r1").close)
        except JournalError as error:
            refusal = str(error)
    if refusal:
        assert str(path) in refusal or "r1" in refusal, f"{place}: {refusal}"
        return "refused"
    assert found == list(whole.events)[: len(found)], f"{place}: not what was written"
    return "whole" if len(found) == len(whole.events) else "shorter"


# --- the table ----------------------------------------------------------------------------------


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "torn log: it ends at every byte of its last two pages, and at every border", every_byte
    yield "torn database: while its log is copied into it, it ends at any byte", every_checkpoint
    yield "torn log: a bit of it is another", every_flip
    yield "damage: the database file ends at every 7th byte of its last pages, or a bit is another", every_damage


def every_byte(folder: Path) -> str:
    seen: Counter[int] = Counter()
    with Nursery() as nursery:
        for durability in ("process", "full"):
            remains = remains_of(nursery, folder / durability, durability)
            end = end_of(folder, remains)
            cuts = {*range(HEADER + 1), *borders(end), *range(end - 2 * FRAME, end + 1)}
            before = 0
            for at in sorted(cuts):
                left = check_cut(folder, remains, at, before if at % 25 else -1)
                assert left >= before, f"a longer log has fewer events, at {at}"
                before = left
                seen[left] += 1
            assert before == len(remains.events)
    return f"{seen.total()} cuts, resumed after {sorted(seen)} events"


def end_of(folder: Path, remains: Remains) -> int:
    """Where what is committed ends in the log; one that was grown, or used before, goes on behind that."""
    frames = bisect.bisect_left(
        range(len(remains.log) // FRAME + 1),
        len(remains.events),
        key=lambda frame: check_cut(folder, remains, HEADER + frame * FRAME, len(remains.events)),
    )
    return HEADER + frames * FRAME


def borders(end: int) -> list[int]:
    """Round the beginning of each frame of the log, and of its page."""
    return [at + near for at in range(HEADER, end, FRAME) for near in (-1, 0, 1, 24, 25)]


def every_checkpoint(folder: Path) -> str:
    with Nursery() as nursery:
        remains = remains_of(nursery, folder / "whole")
    size = len(copied(folder, remains))
    cuts = [*range(600), *range(600, size - 2 * 4096, 61), *range(size - 2 * 4096, size + 1)]
    for at in cuts:
        check_checkpoint(folder, remains, at)
    return f"{len(cuts)} cuts, all events each time"


def every_flip(folder: Path) -> str:
    seen: Counter[int] = Counter()
    draw = random.Random(5)
    with Nursery() as nursery:
        remains = remains_of(nursery, folder / "whole")
        for at in (*range(HEADER), *draw.sample(range(HEADER, end_of(folder, remains)), 3000)):
            seen[check_flipped(folder, remains, at, draw.randrange(8))] += 1
    return f"{seen.total()} flips, resumed after {sorted(seen)} events"


def every_damage(folder: Path) -> str:
    seen: Counter[str] = Counter()
    draw = random.Random(6)
    with Nursery() as nursery:
        remains = remains_of(nursery, folder / "whole")
    with closing(SQLiteStore(folder / "whole" / "runs.db")) as store:
        store.list()
    database = (folder / "whole" / "runs.db").read_bytes()
    for at in range(len(database) - 5 * 4096, len(database), 7):
        kind = check_database(folder, remains, database[:at], f"the database cut at {at}")
        assert kind == "refused", f"the database cut at {at}: {kind}"
        seen[f"cut: {kind}"] += 1
    for at in draw.sample(range(len(database)), 3000):
        damaged = bytearray(database)
        damaged[at] ^= 1 << draw.randrange(8)
        seen[f"bit: {check_database(folder, remains, bytes(damaged), f'byte {at}')}"] += 1
    return str(dict(seen))
