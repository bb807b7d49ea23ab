"""Store URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.errors import StoreUnavailableError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import open_store


@pytest.mark.parametrize("url", [None, "memory:", "memory://", "MEMORY:"])
def test_memory_is_a_store_of_its_own(url: str | None) -> None:
    assert isinstance(open_store(url), MemoryStore)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///runs.db", "runs.db"),
        ("sqlite:///.flowengine/runs.db", ".flowengine/runs.db"),
        ("sqlite:////var/lib/runs.db", "/var/lib/runs.db"),
        ("runs.db", "runs.db"),
        ("/var/runs.db", "/var/runs.db"),
        ("folder with spaces/r?n#s%20.db", "folder with spaces/r?n#s%20.db"),
        ("C:\\runs.db", "C:\\runs.db"),
        ("~/runs.db", str(Path.home() / "runs.db")),
    ],
)
def test_a_path_or_a_sqlite_url_is_a_file(url: str, path: str) -> None:
    store = open_store(url, "full")
    assert isinstance(store, SQLiteStore)
    assert (store.path, store.durability) == (Path(path), "full")


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:///", "sqlite://runs.db", "sqlite:///:memory:", "memory:x", ""])
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(StoreUnavailableError, match="use "):
        open_store(url)


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(StoreUnavailableError, match=r"use memory:, .* or a path; did you mean 'sqlite'\?"):
        open_store("sqllite:///runs.db")
    with pytest.raises(StoreUnavailableError, match="redis://"):
        open_store("redis://host")


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(StoreUnavailableError, match=r"postgres-ql://ann@host") as caught:
        open_store("postgres-ql://ann:s3cret@host/runs")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("word", ["memory", "sqlite", "postgresql"])
def test_the_name_of_a_kind_alone_makes_no_file(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailableError, match=f"use {word}: for the kind, ./{word} for a file"):
        open_store(word)
    assert list(tmp_path.iterdir()) == []
