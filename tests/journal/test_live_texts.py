"""What agents are writing, on its way to other processes: bounded, whole for late comers, and gone at the end."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine.engine.events import RunStarted, TokenStreamed
from flowengine.journal import live_texts
from flowengine.journal.live_texts import (
    FollowerWatch,
    LiveFollower,
    LiveReader,
    LiveTexts,
    forget_live,
    read_live,
    write_live,
)
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import TeeStore


def piece(text: str, begins: bool = False, model: str = "", node: str = "a") -> TokenStreamed:
    return TokenStreamed(node, time.time() - 1, text, begins, model)


def words(pieces: list[TokenStreamed]) -> list[tuple[str, str, bool, str]]:
    return [(each.node, each.text, each.begins, each.model) for each in pieces]


def test_a_reader_hears_each_piece_once_and_all_of_it_when_it_comes_late():
    texts, reader = LiveTexts(), LiveReader()
    texts.hear(piece("", True, "gpt-4o"))
    assert words(reader.read(texts.as_plain())) == [("a", "", True, "gpt-4o")]
    texts.hear(piece("Hel", True))
    texts.hear(piece("lo"))
    assert words(reader.read(texts.as_plain()))[-1] == ("a", "Hello", True, "")
    texts.hear(piece(" Ada"))
    assert words(reader.read(texts.as_plain())) == [("a", " Ada", False, "")]
    assert reader.read(texts.as_plain()) == []
    late = LiveReader()
    assert words(late.read(texts.as_plain())) == [("a", "", True, "gpt-4o"), ("a", "Hello Ada", True, "")]
    texts.hear(piece("Anew", True))
    assert words(reader.read(texts.as_plain()))[-1] == ("a", "Anew", True, "")
    texts.settle("a")
    assert texts.pieces() == []


def test_what_is_kept_is_bounded_however_much_is_written():
    texts, reader = LiveTexts(), LiveReader()
    for number in range(40):
        texts.hear(piece("x" * 3_000, True, node=f"n{number}"))
        texts.hear(piece("y" * 3_000, node=f"n{number}"))
    plain = texts.as_plain()
    assert [row[0] for row in plain["nodes"]] == [f"n{number}" for number in range(24, 40)]
    assert {len(row[5]) for row in plain["nodes"]} == {4_000}
    first = reader.read(plain)[0]
    assert first.text.startswith("…x")
    assert first.begins
    texts.hear(piece("z" * 9_000, node="n39"))
    [gap] = reader.read(texts.as_plain())
    assert gap.begins
    assert gap.text == "…" + "z" * 4_000


@pytest.mark.parametrize(
    "kept",
    [None, 3, "x", [], {}, {"at": "now", "nodes": []}, {"at": 1.0, "nodes": [["a", "m", 1.0, 1, 1, "x", 1.0]]},
     {"at": 1e12, "nodes": [["a"], None, ["a", "m", "1", 1, 1, "x", 1.0], 7]}],
)  # fmt: skip
def test_what_makes_no_sense_or_was_left_behind_long_ago_is_not_told(kept: Any):
    assert LiveReader().read(kept) == []


def test_it_is_beside_the_journal_and_gone_with_the_run(tmp_path: Path):
    store = SQLiteStore(tmp_path / "runs.db")
    journal = store.create("r")
    journal.append(RunStarted("r", "f", 1.0, {}, {}, {}))
    journal.commit()
    texts = LiveTexts()
    texts.hear(piece("Half \ud800", True))
    write_live(store, "r", texts.as_plain())
    with closing(SQLiteStore(tmp_path / "runs.db")) as other:
        [told] = LiveReader().read(read_live(other, "r"))
    assert told.text == "Half ?"
    assert len(store.events("r")) == 1
    forget_live(store, "r")
    assert read_live(store, "r") is None
    assert [store.is_shared, TeeStore(store, print).is_shared] == [True, True]
    assert not getattr(TeeStore(MemoryStore(), print), "is_shared", False)
    store.close()


def test_a_follower_is_one_for_as_long_as_its_marks_change(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(live_texts, "monotonic", lambda: now)
    monkeypatch.setattr(live_texts, "time", lambda: now - 1e6)  # The clocks of two machines differ.
    store, follower = MemoryStore(), LiveFollower()
    watch = FollowerWatch(store, "r")
    assert not watch.look()
    follower.look(store, "r")
    assert watch.look()
    now = 114.0
    assert watch.look()
    now = 116.0
    assert not watch.look()
    follower.look(store, "r")
    assert watch.look()
    forget_live(store, "r")
    assert not watch.look()
