"""Files that a run takes in: where they may come from, how large they may be, and what they may be."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flowengine.core.file_keeper import FileKeeper
from flowengine.core.file_values import FileRules, FileValue, RefusedFileError, hash_of
from flowengine.journal.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
PDF = b"%PDF-1.4 one"


def keeper(root: Path | None = None, **rules: object) -> FileKeeper:
    return FileKeeper(MemoryStore(), "r1", FileRules(root, **rules))  # type: ignore[arg-type]


async def test_bytes_paths_and_files_of_other_runs_are_taken_in(tmp_path: Path):
    (tmp_path / "scan").write_bytes(PDF)
    files = keeper()
    taken = await files.take(tmp_path / "scan")
    assert (taken.media_type, taken.name, taken.size, taken.read_bytes()) == ("application/pdf", "scan.pdf", 12, PDF)
    assert (await files.take(PDF)).name == "file.pdf"
    assert await files.take(taken) == taken
    assert await files.take(bytearray(PDF)) == await files.take(PDF)
    other = keeper()
    moved = await other.take(taken)
    assert (moved, moved.read_bytes()) == (taken, PDF)
    for none in (1, None, ["a"], {}):
        assert await files.take(none) is none


async def test_a_text_names_a_path_that_a_flow_may_name(tmp_path: Path):
    root, files = tmp_path / "project", keeper(tmp_path / "project")
    root.mkdir()
    (root / "a.txt").write_text("hello")
    (root / ".env").write_text("KEY=1")
    (root / "server.pem").write_text("key")
    (tmp_path / "outside.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "hidden.txt").symlink_to(root / ".env")
    os.mkfifo(root / "pipe")
    assert (await files.take("a.txt")).read_text() == "hello"
    for path, said in [
        ("../outside.txt", "leaves the project's root"),
        (str(tmp_path / "outside.txt"), "leaves the project's root"),
        ("link.txt", "leaves the project's root"),
        ("hidden.txt", r"is hidden \('\.env'\)"),
        (".env", "is hidden"),
        ("server.pem", "is that of a key"),
        ("pipe", "neither a file nor a folder"),
        (".", "cannot read '.'"),
        ("none.txt", "cannot read 'none.txt': No such file"),
        ("a\0b", "cannot be a path"),
        ("ftp://host/a", "cannot read"),
    ]:
        with pytest.raises(RefusedFileError, match=said):
            await files.take(path)


async def test_an_empty_file_is_a_file(tmp_path: Path):
    (tmp_path / "none").write_bytes(b"")
    taken = await keeper().take(tmp_path / "none")
    assert (taken.size, taken.media_type, taken.read_bytes()) == (0, "text/plain", b"")


async def test_the_name_of_a_file_decides_nothing(tmp_path: Path):
    for name in ["a\nSet-Cookie: x.png", "gpj.\u202eexe", "a\u2028b", 'q";.png', "<img src=x>", "x" * 250]:
        (tmp_path / name).write_bytes(b"<script>")
        taken = await keeper().take(tmp_path / name)
        assert taken.media_type == "text/html"
        assert taken.name.isprintable()


async def test_a_file_or_a_run_that_is_too_large_is_refused(tmp_path: Path):
    files = keeper(max_file=10, max_run=15)
    (tmp_path / "big.bin").write_bytes(b"x" * 11)
    with pytest.raises(RefusedFileError, match=r"has 11 bytes, and `max_file` of \[files\] is 10"):
        await files.take(tmp_path / "big.bin")
    with pytest.raises(RefusedFileError, match="has 11 bytes"):
        await files.take(b"x" * 11)
    for _ in range(3):
        await files.take(b"x" * 10)  # Counted once.
    with pytest.raises(RefusedFileError, match=r"the files of the run have 16 bytes, and `max_run` of \[files\] is 15"):
        await files.take(b"y" * 6)
    await files.take(b"y" * 5)
    known = [FileValue(hash_of(b"z"), "text/plain", "z", 15)]
    again = FileKeeper(MemoryStore(), "r1", FileRules(max_run=15), lambda: known)
    with pytest.raises(RefusedFileError, match="have 16 bytes"):
        again.keep(b"a")


async def test_files_that_are_taken_in_two_threads_are_counted_together():
    others: list[threading.Thread] = []

    def known() -> Iterator[FileValue]:
        """Another thread takes a file in while this one looks for what the run has already."""
        if not others:
            others.append(threading.Thread(target=files.keep, args=(b"y" * 10,)))
            others[0].start()
            others[0].join(0.05)
        return iter(())

    files = FileKeeper(MemoryStore(), "r1", FileRules(max_run=25), known)
    files.keep(b"x" * 10)
    others[0].join()
    with pytest.raises(RefusedFileError, match="have 30 bytes"):
        files.keep(b"z" * 10)


async def test_only_media_types_that_the_project_allows_are_taken():
    files = keeper(media_types=("image/*", "application/pdf"))
    assert (await files.take(PDF)).media_type == "application/pdf"
    with pytest.raises(
        RefusedFileError, match=r"is text/plain by its content, and `media_types` of \[files\] has image"
    ):
        await files.take(b"hello")


async def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "log.txt"
    path.write_bytes(b"one")
    real, calls = os.fstat, list[int]()

    def grow(handle: int) -> os.stat_result:
        found = real(handle)
        calls.append(handle)
        if len(calls) == 2:  # The first one is of whoever opens it.
            with path.open("ab") as file:
                file.write(b"two")
        return found

    taking = keeper()
    monkeypatch.setattr("flowengine.core.file_keeper.os.fstat", grow)
    with pytest.raises(RefusedFileError, match="changed while it was read"):
        await taking.take(path)


async def test_bytes_anywhere_in_a_value_become_files():
    files = keeper()
    plain = {"a": [1, "x", None]}
    assert await files.keep_in(plain, "n") is plain
    found = await files.keep_in({"a": [PDF, (b"x",)], "b": 1}, "draw")
    assert [found["a"][0].name, found["a"][1][0].name, found["b"]] == ["draw.pdf", "draw.txt", 1]


async def test_no_server_is_asked_for_a_file():
    with pytest.raises(RefusedFileError, match=r"'https://example\.com/a' is not allowed"):
        await keeper(allow_urls=("https://example.com/",)).take("https://example.com/a")


class Scan(NamedTuple):
    page: int
    content: object


class LastScan(Scan):
    """The same, made by somebody who wants another name for it."""


async def test_bytes_in_a_named_tuple_become_files_and_the_tuple_keeps_its_class():
    for kind in (Scan, LastScan):
        kept = await keeper().keep_in([kind(1, PDF)], "scan")
        assert type(kept[0]) is kind
        assert (kept[0].page, kept[0].content.read_bytes()) == (1, PDF)
