"""A file that a user asked for is written whole or not at all, and where it lies stays as it is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from flowengine.core.output_file import open_output, write_output
from flowengine.errors import InputError


def breaking() -> Iterator[str]:
    yield "half"
    raise ValueError("unreadable")


@pytest.mark.parametrize("there", ["old", None])
def test_pieces_that_break_leave_what_was_there(tmp_path: Path, there: str | None) -> None:
    file = tmp_path / "page.html"
    if there is not None:
        file.write_text(there)
    with pytest.raises(ValueError, match="unreadable"):
        write_output(file, breaking())
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == ({file.name: "old"} if there else {})


def test_a_file_that_is_replaced_keeps_its_mode_and_a_link_leads_to_it_still(tmp_path: Path) -> None:
    file, link = tmp_path / "data" / "page.html", tmp_path / "link"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    assert write_output(link, ["ü", b"\xff"]) == 3
    assert (link.is_symlink(), file.read_bytes(), file.stat().st_mode & 0o777) == (True, b"\xc3\xbc\xff", 0o640)
    write_output(link, ["mine"], follows_link=False)
    assert (link.is_symlink(), link.read_text(), file.read_bytes()) == (False, "mine", b"\xc3\xbc\xff")
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "new", [])
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_file_that_replaces_a_private_one_is_read_by_nobody_meanwhile_and_has_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, *owner: owners.append(owner))  # type: ignore[misc]
    file = tmp_path / "page.html"
    file.write_text("old")
    file.chmod(0o600)
    before = os.umask(0)
    try:
        with open_output(file):
            assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    finally:
        os.umask(before)
    assert owners == [(os.getuid(), file.stat().st_gid)]


def test_a_link_that_leads_nowhere_makes_the_file_and_a_pipe_stays_one(tmp_path: Path) -> None:
    """So does a stream that a shell calls by its number."""
    (tmp_path / "link").symlink_to("there")
    write_output(tmp_path / "link", ["a"])
    assert (tmp_path / "there").read_text() == "a"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_output(tmp_path / "pipe", ["a"])
        assert os.read(reader, 9) == b"a"
    finally:
        os.close(reader)
    ours, theirs = os.pipe()
    try:
        if os.path.exists(f"/dev/fd/{theirs}"):
            write_output(f"/dev/fd/{theirs}", ["b"])
            assert os.read(ours, 9) == b"b"
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.fixture
def refuse_replacing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the operating system refuse to replace files, for a reason."""

    def refuse(number: int) -> None:
        def replace(*paths: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "replace", replace)

    return refuse


def test_a_file_that_cannot_be_replaced_is_written_in_its_place(
    tmp_path: Path, refuse_replacing: Callable[[int], None]
) -> None:
    file = tmp_path / "mounted"
    file.write_text("old")
    refuse_replacing(errno.EBUSY)
    write_output(file, ["new"])
    assert (file.read_text(), len(list(tmp_path.iterdir()))) == ("new", 1)


def test_a_file_that_is_not_replaced_for_another_reason_stays(
    tmp_path: Path, refuse_replacing: Callable[[int], None]
) -> None:
    file = tmp_path / "kept"
    file.write_text("old")
    refuse_replacing(errno.ENOSPC)
    with pytest.raises(InputError) as refused:
        write_output(file, ["new"])
    assert str(refused.value) == f"{file} cannot be written: {os.strerror(errno.ENOSPC)}"
    assert (file.read_text(), len(list(tmp_path.iterdir()))) == ("old", 1)


def test_what_cannot_be_written_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in (".", "none/file", "loop"):
        with pytest.raises(InputError, match="cannot be written: "):
            write_output(tmp_path / name, ["a"])
    if os.path.exists("/dev/full"):
        with pytest.raises(InputError, match=r"^/dev/full cannot be written: No space left on device$"):
            write_output("/dev/full", ["a"])


def test_what_a_killed_writer_left_goes_with_the_next_write_and_what_is_being_written_stays(tmp_path: Path) -> None:
    write = """
        import os, signal, sys
        from flowengine.core.output_file import open_output
        with open_output("killed.txt"):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", dedent(write)], cwd=tmp_path, check=False)
    (left,) = tmp_path.iterdir()
    others = [".killed.txt.part", ".other.txt.0123abcd.part"]
    for name in others:
        (tmp_path / name).touch()
    with open_output(tmp_path / "killed.txt") as file:
        file.write(b"slow")
        write_output(tmp_path / "killed.txt", ["new"])
    assert left.suffix == ".part"
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "killed.txt": "slow",
        **dict.fromkeys(others, ""),
    }


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder '.*/tests'"):
        write_output(tmp_path / "tests" / "x.txt", ["x"])
