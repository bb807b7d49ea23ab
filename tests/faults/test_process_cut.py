"""The log of a store ends anywhere, or is damaged: what was committed before is there, and the run goes on."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.journal.sqlite.store import SQLiteStore
from tests.faults.process_cut import (
    HEADER,
    Remains,
    borders,
    check_checkpoint,
    check_cut,
    check_database,
    check_flipped,
    copied,
    end_of,
    remains_of,
)
from tests.faults.process_killed import load_all
from tests.faults.process_nursery import shared


@pytest.fixture(scope="module")
def remains(tmp_path_factory: pytest.TempPathFactory) -> Remains:
    return remains_of(shared(load_all), tmp_path_factory.mktemp("remains") / "process")


def test_a_log_that_ends_anywhere_gives_what_was_committed_and_the_run_goes_on(
    remains: Remains, tmp_path: Path
) -> None:
    end = end_of(tmp_path, remains)
    inside = random.Random(1).sample(range(end - 3 * 4096, end), 30)
    left = [check_cut(tmp_path, remains, at) for at in sorted([*borders(end)[::2], *inside, end])]
    assert left == sorted(left)
    assert left[0] == 0
    assert left[-1] == len(remains.events)


def test_a_database_that_was_being_written_to_ends_anywhere_and_its_log_has_everything(
    remains: Remains, tmp_path: Path
) -> None:
    size = len(copied(tmp_path, remains))
    for at in (0, 1, 2, 99, 100, 511, 4095, *random.Random(4).sample(range(4096, size), 15)):
        check_checkpoint(tmp_path, remains, at)


def test_a_log_with_another_bit_gives_a_beginning_of_what_was_committed(remains: Remains, tmp_path: Path) -> None:
    draw = random.Random(2)
    end = end_of(tmp_path, remains)
    for at in (*draw.sample(range(HEADER), 8), *draw.sample(range(HEADER, end), 25)):
        check_flipped(tmp_path, remains, at, draw.randrange(8))


def test_a_damaged_database_is_refused_or_read_as_it_was_written(remains: Remains, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(remains.database)
    Path(f"{path}-wal").write_bytes(remains.log)
    with closing(SQLiteStore(path)) as store:
        assert store.events("r1")
    database, draw = path.read_bytes(), random.Random(3)
    cuts = [check_database(tmp_path, remains, database[:at], f"cut at {at}") for at in range(1, len(database), 997)]
    assert set(cuts) == {"refused"}
    seen = set[str]()
    for at in draw.sample(range(len(database)), 60):
        damaged = bytearray(database)
        damaged[at] ^= 1 << draw.randrange(8)
        seen.add(check_database(tmp_path, remains, bytes(damaged), f"byte {at}"))
    assert {"refused", "whole"} <= seen <= {"refused", "whole", "shorter"}
