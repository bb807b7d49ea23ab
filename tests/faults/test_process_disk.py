"""The disk is full or read-only, or another process has the store: clear errors, sound files, runs that go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_disk import (
    check_full,
    check_locked_out,
    check_read_only,
    check_waited,
    fill_up,
    locked_out,
    read_only_disk,
    read_only_files,
)
from tests.faults.process_killed import load_all
from tests.faults.process_mounts import can_mount
from tests.faults.process_nursery import Nursery, shared
from tests.support.require import missing


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return shared(load_all)


@pytest.fixture
def disks(nursery: Nursery, tmp_path: Path) -> None:
    """A process may have a disk of its own."""
    if not nursery.run(can_mount, tmp_path).value:
        missing("this user may not mount a disk of its own")


@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize(
    ("room", "durability", "came"),
    [
        (0, "process", ["nothing"]),
        (12_288, "full", ["nothing"]),
        (180_000, "process", ["0"]),
        (350_000, "process", ["2", "3"]),
        (300_000, "memory", ["0"]),
        (900_000, "full", ["whole"]),
    ],
)
def test_a_run_on_a_full_disk_says_so_and_goes_on_once_there_is_room(
    nursery: Nursery, tmp_path: Path, room: int, durability: str, came: list[str]
) -> None:
    """How many events share a commit, and so the bytes of them, is a matter of how busy the machine is."""
    assert check_full(nursery.run(fill_up, tmp_path, room=room, durability=durability)) in came


@pytest.mark.usefixtures("disks")
def test_a_run_on_a_disk_that_became_read_only_stays_as_it_was(nursery: Nursery, tmp_path: Path) -> None:
    check_read_only(nursery.run(read_only_disk, tmp_path))


@pytest.mark.parametrize(("of_file", "of_folder"), [(0o444, 0o777), (0o666, 0o555)])
def test_a_store_that_its_user_may_not_write_stays_as_it_was(
    nursery: Nursery, tmp_path: Path, of_file: int, of_folder: int
) -> None:
    check_read_only(nursery.run(read_only_files, tmp_path, of_file=of_file, of_folder=of_folder))


def test_a_run_waits_for_another_process_that_has_locked_the_store(nursery: Nursery, tmp_path: Path) -> None:
    check_waited(nursery.run(locked_out, tmp_path, lock="BEGIN IMMEDIATE", patient=True, seconds=0.3))


def test_a_run_that_waited_too_long_for_the_store_says_so_and_goes_on_later(nursery: Nursery, tmp_path: Path) -> None:
    check_locked_out(nursery.run(locked_out, tmp_path, lock="BEGIN EXCLUSIVE", patient=False, seconds=60))
