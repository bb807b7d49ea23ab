"""A disk that is full or read-only, a store that others lock: a clear error, a sound file, and a run that goes on.

The disk is a real one, a small file system in memory that only the processes of one child see. How much room is
left is varied from nothing to enough, so that it ends in the middle of everything that the store writes: the
file, its tables, its log, the first event, the last.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from flowengine.journal.sqlite.store import SQLiteStore
from tests.faults.process_killed import die
from tests.faults.process_mounts import (
    NODES,
    READ_ONLY,
    REMOUNT,
    executed,
    finished,
    give_up_rights,
    mount,
    prepare,
    problems_of,
    small_disk,
    told,
    write_flow,
)
from tests.faults.process_nursery import Ended, Nursery

__all__ = [
    "check_full",
    "check_locked_out",
    "check_read_only",
    "check_waited",
    "fill_up",
    "locked_out",
    "read_only_disk",
    "read_only_files",
    "rows",
]

# --- full ---------------------------------------------------------------------------------------

STORE: Final = "runs/runs.db"


def fill_up(room: int, durability: str) -> Any:
    """Work of a child: run on a disk that has so many bytes left, then make room and go on."""
    with small_disk():
        filler = Path("filler")
        filler.write_bytes(bytes(max(0, os.statvfs(".").f_bavail * 4096 - room)))
        options = ["--store", STORE, "--durability", durability]
        first = told("run", "fill.yaml", "--run-id", "r1", *options)
        listed = told("runs", "list", "--store", STORE)
        filler.unlink()
        before = finished(STORE)
        sound = problems_of(STORE)
        words = ["run", "fill.yaml", "--run-id"] if before is None else ["resume"]
        again = told(*words, "r1", *options)
        return {
            "first": first,
            "listed": listed,
            "again": again,
            "sound": sound,
            "finished": before,
            "executed": executed(),
        }


def check_full(ended: Ended) -> str:
    """How far the run came, or `whole`."""
    assert ended.status == 0, ended.err
    (code, out, err), (_, again_out, again_err) = ended.value["first"], ended.value["again"]
    assert ended.value["sound"] == "ok"
    assert ended.value["again"][0] == 0, again_err
    assert again_out == "length: 60000\n"
    assert ended.value["listed"][0] in (0, 2)
    assert "Traceback" not in err + again_err + ended.value["listed"][2]
    before, ran = ended.value["finished"], ended.value["executed"]
    assert set(ran) == {f"n{number}" for number in range(NODES)}
    if code == 0:
        return "whole"
    assert out == ""
    assert "the disk is full" in err or "No space left" in err, err
    assert f"{STORE}" in err, err
    if before is None:
        assert code == 2, err
        return "nothing"
    assert code == 1, err
    assert "free some space, then resume the run" in err, err
    assert f"to go on: flowengine resume r1 --store {STORE}" in err, err
    assert [node for node in before if ran[node] > 1] == []
    return str(len(before))


# --- read-only ----------------------------------------------------------------------------------


def begun_and_killed() -> None:
    """A run that died when three of its nodes had finished."""

    def dying() -> None:
        die("committed", 7)

    status, _, told_err = told("run", "fill.yaml", "--run-id", "r1", "--store", STORE, first=dying)
    assert status == -signal.SIGKILL, told_err


def attempts() -> list[tuple[int, str, str]]:
    """What the commands say that would write."""
    assert told("runs", "rm", "r1", "--force", "--dry-run", "--store", STORE)[0] in (0, 2)
    store = ["--store", STORE]
    return [told("resume", "r1", *store), told("run", "fill.yaml", *store), told("runs", "rm", "r1", "--force", *store)]


def read_only_disk() -> Any:
    """Work of a child: a disk that is mounted read-only once a run has begun, and then writable again."""
    with small_disk():
        begun_and_killed()
        mount("none", ".", None, REMOUNT | READ_ONLY)
        refused = attempts()
        mount("none", ".", None, REMOUNT)
        return {"refused": refused, "again": told("resume", "r1", "--store", STORE), "executed": executed()}


def read_only_files(of_file: int, of_folder: int) -> Any:
    """Work of a child: the same with the file's and the folder's modes."""
    give_up_rights()
    write_flow(Path.cwd())
    os.environ["EXECUTED"] = os.path.abspath("executed")
    begun_and_killed()
    told("runs", "list", "--store", STORE)  # Whoever closes the file last takes its log away.
    os.chmod(STORE, of_file)
    os.chmod(os.path.dirname(STORE), of_folder)
    refused = attempts()
    os.chmod(os.path.dirname(STORE), 0o777)
    for path in Path(os.path.dirname(STORE)).glob("runs.db*"):
        path.chmod(0o777)
    return {"refused": refused, "again": told("resume", "r1", "--store", STORE), "executed": executed()}


def check_read_only(ended: Ended) -> None:
    assert ended.status == 0, ended.err
    for code, out, err in ended.value["refused"]:
        assert (code, out) in ((2, ""), (1, "")), (code, out, err)
        assert err.startswith(("error: ", "left: ")), err
        assert STORE in err, err
        assert "writable" in err or "check its folders" in err, err
        assert "Traceback" not in err
    check_went_on(ended, 3)


def check_went_on(ended: Ended, before: int) -> None:
    """The run was resumed to its end, and what had finished did not run again."""
    code, out, err = ended.value["again"]
    assert (code, out) == (0, "length: 60000\n"), err
    ran = ended.value["executed"]
    assert set(ran) == {f"n{number}" for number in range(NODES)}
    assert [ran[f"n{number}"] for number in range(before)] == [1] * before, ran


# --- locked -------------------------------------------------------------------------------------


def impatient() -> None:
    """As long as a test wants to wait for another process."""
    SQLiteStore.__init__.__kwdefaults__["patience"] = 0.3


def locked_out(lock: str, patient: bool, seconds: float) -> Any:
    """Work of a child: while a run is at its third node, another process locks the store, for so many seconds."""
    write_flow(Path.cwd())
    os.environ["EXECUTED"] = os.path.abspath("executed")
    Path("hold").touch()
    holder = os.fork()
    if holder == 0:
        hold(lock, seconds)
    first = told("run", "fill.yaml", "--run-id", "r1", "--store", STORE, first=(lambda: None) if patient else impatient)
    refused = [told("resume", "r1", "--store", STORE, first=impatient)] if first[0] else []
    Path("let go").touch()
    os.waitpid(holder, 0)
    sound = problems_of(STORE)
    again = told("resume", "r1", "--store", STORE)
    return {"first": first, "refused": refused, "again": again, "executed": executed(), "sound": sound}


def hold(lock: str, seconds: float) -> None:
    """Another program that has the file, until it is told to let go."""
    while not Path("at two").exists():
        time.sleep(0.005)
    connection = sqlite3.connect(STORE, isolation_level=None, timeout=30)
    for statement in lock.split(";"):
        connection.execute(statement)
    Path("held").touch()
    end = time.monotonic() + seconds
    while not Path("let go").exists() and time.monotonic() < end:
        time.sleep(0.005)
    os._exit(0)


def check_waited(ended: Ended) -> None:
    """The lock was short: the run waited for it."""
    assert ended.status == 0, ended.err
    assert ended.value["first"] == [0, "length: 60000\n", ""]
    check_went_on(ended, NODES)


def check_locked_out(ended: Ended) -> None:
    assert ended.status == 0, ended.err
    assert ended.value["sound"] == "ok"
    for code, out, err in (ended.value["first"], *ended.value["refused"]):
        assert out == ""
        assert f"{STORE} is locked by another process; wait until it ends" in err, err
        assert "Traceback" not in err
        assert code in (1, 2)
    assert ended.value["first"][0] == 1
    assert f"to go on: flowengine resume r1 --store {STORE}" in ended.value["first"][2]
    check_went_on(ended, 2)


# --- the table ----------------------------------------------------------------------------------


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "disk full: at every page of a run, three durabilities", every_page
    yield "read-only: a disk, a file, a folder", every_read_only
    yield "locked by another process: for 2 s, for longer than the 10 s that a run waits", locks


def every_page(folder: Path) -> str:
    came: Counter[str] = Counter()
    with Nursery(prepare) as nursery:
        for durability in ("process", "full", "memory"):
            for room in (*range(0, 80_000, 4_096), *range(80_000, 900_000, 20_000)):
                place = folder / f"{durability}{room}"
                place.mkdir()
                came[check_full(nursery.run(fill_up, place, room=room, durability=durability))] += 1
    assert set(came) >= {"nothing", "0", "1", "3", "5", "7", "whole"}
    return f"{came.total()} sizes; nodes that had finished: {dict(came)}"


def every_read_only(folder: Path) -> str:
    modes = [(0o444, 0o777), (0o666, 0o555), (0o444, 0o555), (0, 0o777), (0o666, 0)]
    with Nursery(prepare) as nursery:
        (folder / "disk").mkdir()
        check_read_only(nursery.run(read_only_disk, folder / "disk"))
        for number, (of_file, of_folder) in enumerate(modes):
            place = folder / str(number)
            place.mkdir()
            check_read_only(nursery.run(read_only_files, place, of_file=of_file, of_folder=of_folder))
    return f"{1 + len(modes)} ways"


def locks(folder: Path) -> str:
    with Nursery(prepare) as nursery:
        for number, lock in enumerate(("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE")):
            for seconds, check in ((2, check_waited), (60, check_locked_out)):
                place = folder / f"{number}-{seconds}"
                place.mkdir()
                check(nursery.run(locked_out, place, lock=lock, patient=True, seconds=seconds))
    return "2 locks, short and long"
