"""Store URLs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from flowengine import Flow, Runs, RunStarted
from flowengine.core.context import Context
from flowengine.engine.ports import Durability
from flowengine.errors import DefinitionError, StoreUnavailableError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import as_store, open_store
from flowengine.nodes.function import FunctionNode
from tests.support.packages import installed_package


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


def test_a_path_object_is_a_file_wherever_a_store_is_given(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    run = Flow("one", {"a": FunctionNode(lambda context: 1)}).run_sync(store=path, run_id="r1")
    assert isinstance(run.events[0], RunStarted)  # Read anew from the closed store.
    with Runs(path) as runs:
        assert [each.run_id for each in runs.list()] == ["r1"]
    with pytest.raises(DefinitionError, match="durability is one of"):
        as_store(path, cast(Durability, "ful"))


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:///", "sqlite://runs.db", "sqlite:///:memory:", "memory:x", ""])
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(StoreUnavailableError, match="use "):
        open_store(url)


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(StoreUnavailableError, match=r"use memory:, .* or a path; did you mean 'sqlite'\?"):
        open_store("sqllite:///runs.db")
    with pytest.raises(StoreUnavailableError, match="redis://"):
        open_store("redis://host")


def test_postgres_is_another_word_for_postgresql() -> None:
    assert isinstance(open_store("postgres://ann@host:5433/runs"), PostgresStore)


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


_SHELF = """
    from flowengine.errors import StoreUnavailableError
    from flowengine.journal.memory import MemoryStore

    class Shelf(MemoryStore):
        def __init__(self, url, durability):
            super().__init__()
            self.opened = (url, durability)
            if url.endswith("full"):
                raise StoreUnavailableError("the shelf is full")
            if url.endswith("broken"):
                raise OSError(f"no shelf at {url}")

    def hollow(url, durability):
        return object()
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[None]:
    points = {"shelf": "a_shelf:Shelf", "Hollow": "a_shelf:hollow", "gone": "a_shelf:gone", "sqlite": "a_shelf:Shelf"}
    with installed_package(tmp_path, "a_shelf", _SHELF, {"flowengine.stores": points}):
        yield


def _greet(context: Context) -> str:
    return "Hi"


@pytest.mark.usefixtures("shelf")
def test_a_package_brings_a_store_by_its_scheme() -> None:
    store = open_store("Shelf://host/runs", "full")
    assert getattr(store, "opened", None) == ("Shelf://host/runs", "full")
    flow = Flow.sequential({"hello": FunctionNode(_greet)})
    run = flow.run_sync(store=store)
    assert [each.run_id for each in store.list()] == [run.id]


@pytest.mark.usefixtures("shelf")
def test_a_package_takes_none_of_our_schemes_and_is_not_imported_for_them() -> None:
    assert isinstance(open_store("sqlite:///runs.db"), SQLiteStore)
    assert "a_shelf" not in sys.modules


@pytest.mark.usefixtures("shelf")
def test_an_unknown_scheme_is_compared_with_those_of_packages() -> None:
    with pytest.raises(StoreUnavailableError, match=r"sqlite:, .*shelf:.* or a path; did you mean 'shelf'\?"):
        open_store("shlef:x")


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gone:x", "the store 'gone:' of the package 'a_shelf' cannot be loaded: AttributeError"),
        ("hollow:x", "the package 'a_shelf' gives no store for 'hollow:x': object has no create, open, "),
        ("shelf:full", "the shelf is full"),
        ("shelf://ann:s3cret@broken", "'shelf://ann@broken' cannot be opened by the package 'a_shelf': OSError: no "),
    ],
)
def test_a_package_whose_store_cannot_be_had_is_named(url: str, said: str) -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        open_store(url)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)
