"""Runs are found by rows, words and what people said of them; every store gives the same answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from flowengine import Context, Flow, FunctionNode
from flowengine.core.records import ApprovalRequested, ModelCall
from flowengine.core.values import FrozenDict
from flowengine.engine.events import ErrorInfo as Info
from flowengine.engine.events import Event, NodeFailed, NodeRecorded, NodeStarted, RunFinished, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import InputError, RunNotFoundError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_digest import MAX_TEXT, DigestBuilder, RunDigest, RunTexts, parse_search
from flowengine.journal.run_index import RunsAsked, ScannedRuns, digest_of, run_index_of
from flowengine.journal.run_lookup import RunQuery
from flowengine.journal.run_notes import (
    RunNotes,
    add_note,
    all_notes,
    notes_of,
    parse_score,
    remove_note,
    set_mark,
    set_score,
)
from flowengine.journal.sqlite.repair import repair_store
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import open_store
from flowengine.runtime import run_listing
from flowengine.runtime.run_listing import RunLister
from tests.support.postgres import empty_database, server

BEFORE = Path(__file__).with_name("stores_made_before")
pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def made_store(kind: str, folder: Path) -> JournalStore:
    if kind == "memory":
        return MemoryStore()
    return SQLiteStore(folder / "runs.db") if kind == "sqlite" else open_store(empty_database())


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    made = made_store(request.param, tmp_path)
    yield made
    made.close()


def one(context: Context) -> str:
    if context.inputs["text"] == "break":
        raise ValueError("the card of 山田 was refused")
    return f"granted: {context.inputs['text']}"


FLOW = Flow("refund_desk", {"one": FunctionNode(one)}, inputs={"text": "string"})


async def test_a_new_run_of_an_id_is_not_taken_for_the_removed_one(store: JournalStore) -> None:
    """Both go on while they are listed, so that what was read of the first is remembered."""
    lister = RunLister(store)
    for said in ("first", "second"):
        journal = store.create("r1")
        journal.append(RunStarted("r1", "f", 1.0 if said == "first" else 2.0, {"text": said}, {}, {}))
        journal.append(NodeStarted("a", 3.0))
        await journal.close()
        (line,) = lister.page(RunQuery()).lines
        assert line.digest is not None
        assert line.digest.first_input == said
        store.remove("r1")


async def fill(store: JournalStore) -> None:
    """Three runs of two flows."""
    await FLOW.run({"text": "Give me my money back"}, store=store, run_id="a1", labels={"team": "billing"})
    await FLOW.run({"text": "break"}, store=store, run_id="b2")
    other = Flow("greet", {"hi": FunctionNode(lambda context: {"says": "お茶をどうぞ", "n": 7})})
    await other.run(store=store, run_id="c3")


def found(store: JournalStore, text: str = "", **asked: Any) -> list[str]:
    wanted = RunsAsked(search=parse_search(text), **asked)
    mine = run_index_of(store).find(wanted)
    assert mine == ScannedRuns(store).find(wanted)  # The one rule, applied to all events.
    assert mine.total == len(mine.infos)
    return [info.run_id for info in mine.infos]


async def test_words_are_found_in_inputs_outputs_errors_and_names(store: JournalStore) -> None:
    await fill(store)
    assert found(store) == ["c3", "b2", "a1"]
    for text, wanted in {
        "MONEY": ["a1"], "mon back": ["a1"], '"money back"': ["a1"], '"back money"': [], "granted": ["a1"],
        "refused": ["b2"], "山田": ["b2"], "田山": [], "お茶": ["c3"], "says 7": ["c3"], "oney": [],
        "desk": ["b2", "a1"],
        "team=billing": ["a1"], "a1": ["a1"], "b2 nothing": [], "—": [], "\"": ["c3", "b2", "a1"], "x' OR '1'='1": [],
        "money* OR NEAR(": [],
    }.items():  # fmt: skip
        assert found(store, text) == wanted, text


async def test_words_are_the_same_in_every_way_to_write_their_letters(store: JournalStore) -> None:
    text = "Résumé Łódź"
    await FLOW.run({"text": normalize("NFD", text)}, store=store, run_id="a1")
    for sought in (text, normalize("NFD", text), "résu", "RÉSUMÉ", "łó"):
        assert found(store, sought) == ["a1"], sought


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_name_of_any_alphabet_is_found_in_either_case(kind: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "runs.db") if kind == "sqlite" else server().database(locale="C"))
    await FLOW.run({"text": "x"}, store=store, run_id="a1", labels={"team": "Öl"})
    assert (found(store, "öl"), found(store, "ÖL")) == (["a1"], ["a1"])
    store.close()


async def test_a_list_digests_a_little_more_each_time_however_long_a_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    long = Flow("long", {f"n{number}": FunctionNode(lambda context: 1) for number in range(9)})
    for run_id, flow, inputs in (("a", FLOW, {"text": "a"}), ("b", long, {}), ("c", FLOW, {"text": "c"})):
        await flow.run(inputs, store=store, run_id=run_id)
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("DELETE FROM digest WHERE number < 3")
        connection.commit()
    monkeypatch.setattr(run_listing, "_MOST_EVENTS", 12)

    def known() -> list[str]:
        return [line.info.run_id for line in RunLister(store).page(RunQuery()).lines if line.digest is not None]

    assert (known(), known()) == (["c", "b"], ["c", "b", "a"])
    with closing(sqlite3.connect(store.path)) as connection:  # A long run that cannot be read is no end of the list.
        connection.execute("DELETE FROM digest WHERE number < 3")
        connection.execute("UPDATE event SET body = '[]' WHERE position / 4294967296 = 2")
        connection.commit()
    assert known() == ["c", "a"]
    store.close()


async def test_rows_are_found_by_flow_status_labels_time_and_id(store: JournalStore) -> None:
    await fill(store)
    began = {info.run_id: info.started for info in store.list()}
    assert found(store, flow="refund_desk", status="failed") == ["b2"]
    assert found(store, labels={"team": "billing"}) == ["a1"]
    assert found(store, labels={"team": "sales"}) == []
    assert found(store, started_from=began["b2"], started_before=began["c3"]) == ["b2"]
    ended = {info.run_id: info.finished for info in store.list()}
    assert found(store, ended_from=ended["b2"]) == ["c3", "b2"]
    assert found(store, only=["a1", "c3", "nobody"], without=["c3"]) == ["a1"]
    assert found(store, session="s1") == []
    page = run_index_of(store).find(RunsAsked(), 1, 1)
    assert ([info.run_id for info in page.infos], page.total) == (["b2"], 3)
    assert run_index_of(store).find(RunsAsked(status="failed"), 0) == ([], 1)
    beyond = 10**30  # More than a database counts to.
    assert len(run_index_of(store).find(RunsAsked(), beyond).infos) == page.total
    assert run_index_of(store).find(RunsAsked(), 1, beyond) == ([], page.total)
    assert list(run_index_of(store).flows()) == ["greet", "refund_desk"]


async def test_a_run_counts_for_the_day_on_which_it_ended_and_one_that_goes_on_for_none(store: JournalStore) -> None:
    for run_id, began, end in (("old", 100.0, 190.0), ("over", 100.0, 210.0), ("on", 205.0, None)):
        journal = store.create(run_id)
        ends = () if end is None else (RunFinished(end, "failed"),)
        for event in (RunStarted(run_id, "f", began, {}, {}, {}), *ends):
            journal.append(event)
        waiting = journal.commit(True)
        if waiting is not None:
            await waiting
        await journal.close()
    assert found(store, status="failed", ended_from=200.0) == ["over"]
    assert found(store, ended_from=0.0, started_from=1.0) == ["over", "old"]


async def test_a_run_is_found_by_its_session_from_its_first_event_on_until_it_is_removed(store: JournalStore) -> None:
    for run_id, session in (("a1", "ann's"), ("b2", ""), ("c3", "two\n lines\0")):
        journal = store.create(run_id)
        journal.append(RunStarted(run_id, "desk", 1.0, {}, {}, {}, settings={"session": session}))
        journal.flush()
        if run_id == "a1":
            assert found(store, session="ann's") == ["a1"]  # It goes on.
            journal.append(RunFinished(2.0, "succeeded"))
            journal.flush()
        await journal.close()
    lister = RunLister(store)
    assert [line.info.run_id for line in lister.page(RunQuery(session="ann's")).lines] == ["a1"]
    assert lister.page(RunQuery(session="two\n lines\0")).lines[0].digest is not None
    assert (found(store, session="ann's", status="failed"), found(store, session="' OR '1'='1")) == ([], [])
    store.remove("a1")
    assert found(store, session="ann's") == []


async def test_a_digest_is_kept_at_the_runs_end_and_is_what_its_events_give(store: JournalStore) -> None:
    await fill(store)
    index = run_index_of(store)
    kept = index.digests(["a1", "b2", "c3", "nobody"], texts=True)
    assert kept == {run_id: digest_of(store.events(run_id)) for run_id in ("a1", "b2", "c3")}
    assert (kept["b2"].first_input, kept["b2"].error) == ("break", "ValueError: the card of 山田 was refused")
    assert index.digests(["a1"])["a1"].texts == RunTexts()
    assert index.missing(10)[1] == 0


async def test_a_run_that_is_resumed_or_forked_is_told_of_as_it_is_then(store: JournalStore) -> None:
    is_whole = False

    def fragile(context: Context) -> str:
        if not is_whole:
            raise ValueError("unplugged")
        return "mended"

    flow = Flow("fragile", {"one": FunctionNode(lambda context: "first"), "two": FunctionNode(fragile, needs=["one"])})
    await flow.run(store=store, run_id="a1")
    assert found(store, "unplugged") == ["a1"]
    is_whole = True
    await flow.resume("a1", store=store)
    assert found(store, "mended") == ["a1"]
    digest = run_index_of(store).digests(["a1"])["a1"]
    assert (digest.error, digest.events) == ("", len(store.events("a1")))
    forked = await flow.fork("a1", "two", store=store)
    assert list(run_index_of(store).runs_from("a1")) == [forked.id]
    found_fork = run_index_of(store).digests([forked.id])[forked.id]
    assert (found_fork.forked, found_fork.forked_at) == ("a1", "two")


async def test_a_removed_run_leaves_no_word_and_no_note(store: JournalStore) -> None:
    await fill(store)
    add_note(store, "a1", "look at this", "ann")
    store.remove("a1")
    index = run_index_of(store)
    assert (found(store, "money"), dict(index.digests(["a1"])), all_notes(store)) == ([], {}, {})
    assert notes_of(store, "a1") == RunNotes()
    if isinstance(store, SQLiteStore):
        store.close()
        with closing(sqlite3.connect(store.path)) as connection:
            for table in ("digest", "digest_text"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (2,)


async def test_no_word_of_a_removed_run_can_be_read_in_the_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    for number, word in enumerate(("Xaverius", "Quillfeather", "Amaryllis")):
        await FLOW.run({"text": f"{word} {word.lower()}x " * 300}, store=store, run_id=f"r{number}")
        assert found(store, word) == [f"r{number}"]
    add_note(store, "r0", "Note of Xaverius", "ann")

    def readable(word: str) -> bool:
        return any(word.encode() in path.read_bytes().lower() for path in tmp_path.glob("runs.db*") if path.is_file())

    assert readable("xaverius")
    store.remove("r0")
    assert [readable(word) for word in ("xaverius", "quillfeather", "amaryllis")] == [False, True, True]
    store.remove("r1")
    assert found(store, "amaryllis") == ["r2"]
    store.close()
    assert [readable(word) for word in ("xaverius", "quillfeather", "amaryllis")] == [False, False, True]


# --- What people say


async def test_notes_marks_and_scores_are_kept_with_who_and_when(store: JournalStore) -> None:
    await fill(store)
    note = add_note(store, "a1", "line one\r\nline two", "ann", at=5.0)
    set_mark(store, "a1", " Golden ", "ann")
    set_mark(store, "a1", "golden", "bob")  # It is marked already.
    set_score(store, "a1", "quality", 1, "ann")
    set_score(store, "a1", "quality", 0.5, "bob")
    set_score(store, "a1", "quality", 0.75, "ann")
    said = notes_of(store, "a1")
    assert [(each.text, each.by, each.at) for each in said.notes] == [("line one\nline two", "ann", 5.0)]
    assert [(each.name, each.by) for each in said.marks] == [("golden", "ann")]
    assert [(each.value, each.by) for each in said.scores] == [(0.5, "bob"), (0.75, "ann")]
    assert (said.mean("quality"), said.mean("other")) == (0.625, None)
    assert all_notes(store) == {"a1": said}
    remove_note(store, "a1", note.id)
    set_mark(store, "a1", "golden", on=False)
    set_score(store, "a1", "quality", None, "ann")
    set_score(store, "a1", "quality", None, "bob")
    assert all_notes(store) == {}


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda store: add_note(store, "a1", " \n"), "a note is empty"),
        (lambda store: add_note(store, "a1", "x" * 10_001), "at most 10,000 characters"),
        (lambda store: set_mark(store, "a1", "<b>"), "a name is 1 to 40"),
        (lambda store: set_score(store, "a1", "quality", float("nan")), "a finite number, found nan"),
        (lambda store: remove_note(store, "a1", "zz"), "has no note 'zz'"),
        (lambda store: parse_score("quality"), "NAME=NUMBER"),
        (lambda store: parse_score("quality=inf"), "NAME=NUMBER"),
    ],
)
async def test_what_is_no_note_is_refused(act: Any, said: str) -> None:
    store = MemoryStore()
    await fill(store)
    with pytest.raises(InputError, match=said):
        act(store)
    with pytest.raises(RunNotFoundError):
        add_note(store, "nobody", "x")
    assert all_notes(store) == {}


async def test_notes_that_somebody_else_kept_are_read_as_far_as_they_are_notes(store: JournalStore) -> None:
    await fill(store)
    store.revise("notes", "a1", lambda known: {"notes": [["x", "text", "ann", 1.0], ["x"], 3], "marks": 7})
    assert [each.text for each in notes_of(store, "a1").notes] == ["text"]
    store.revise("notes", "a1", lambda known: "nonsense")
    assert notes_of(store, "a1") == RunNotes()


# --- Stores of other times


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_store_made_before_gets_its_digests_from_readers(kind: str, tmp_path: Path) -> None:
    if kind == "sqlite":
        url = str(tmp_path / "runs.db")
        with closing(sqlite3.connect(url)) as connection:
            connection.executescript((BEFORE / "sqlite_3.sql").read_text())
    else:
        import psycopg

        url = empty_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((BEFORE / "postgres_2.sql").read_text().encode())
    with closing(open_store(url)) as store:
        index = run_index_of(store)
        missing, total = index.missing(10)
        assert ("good2" in missing, total) == (True, len(missing))
        assert index.find(RunsAsked(search=parse_search("before"))).total == total  # By their flow's name.
        made = {run_id: digest_of(store.events(run_id)) for run_id in missing}
        index.keep(made | {"good2": made["good2"]._replace(session="s1")})
        assert [info.run_id for info in index.find(RunsAsked(session="s1")).infos] == ["good2"]
        assert index.missing(10)[1] == 0
        assert index.digests(["good2"])["good2"].first_input == "b"


async def test_a_store_of_the_version_before_knows_the_sessions_of_its_runs(tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "runs.db")) as store:
        await FLOW.run({"text": "x"}, store=store, run_id="a1", session="s1")
        await FLOW.run({"text": "y"}, store=store, run_id="b2", session="s1")
        await FLOW.run({"text": "z"}, store=store, run_id="c3")
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE digest SET body = '[' WHERE number = 2")
        connection.execute("DROP TABLE session")
        connection.execute("PRAGMA user_version = 5")
    with closing(SQLiteStore(store.path)) as store:
        assert [info.run_id for info in store.run_index().find(RunsAsked(session="s1")).infos] == ["a1"]


async def test_the_index_of_words_is_no_event_to_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    for number in range(70):  # The pages of the first segments have keys like events of the runs 32 and 64.
        await FLOW.run({"text": f"word{number} " * 200}, store=store, run_id=f"r{number}")
        if not number % 7:
            assert found(store, f"word{number}") == [f"r{number}"]
    store.revise("session", "s", lambda known: 1)
    store.close()
    data = path.read_bytes()
    at = data.index(b'"granted: word5 ')
    path.write_bytes(data[:at] + b"X" + data[at + 1 :])
    repaired = repair_store(path)
    assert {run.run_id: run.state for run in repaired.runs if run.state != "whole"} == {"r5": "cut"}
    assert len(repaired.runs) == 70


async def test_a_damaged_digest_counts_as_none(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await fill(store)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE digest SET body = replace(body, 'Give', 'Take') WHERE number = 1")
        connection.execute("UPDATE digest SET errors = 'x' WHERE number = 2")
    assert set(store.run_index().digests(["a1", "b2", "c3"])) == {"c3"}
    store.close()


# --- Digests


def events_of(*more: Event, inputs: Any = None, **settings: Any) -> list[Event]:
    return [RunStarted("r1", "flow", 1.0, FrozenDict(inputs or {}), {}, {}, settings=settings), *more]


def test_a_digest_sums_calls_and_names_what_the_run_comes_from(anyio_backend: str) -> None:
    call = ModelCall("gpt-4o", "openai", "generation", [], "", (), 10, 5, None, 0.25)
    digest = digest_of(
        events_of(
            NodeRecorded("a", 1.0, call),
            NodeRecorded("a", 1.0, call._replace(model="haiku", cost_usd=None)),
            NodeRecorded("b", 1.0, ApprovalRequested("ok?", ["yes"], approvers=["ann"])),
            NodeRecorded("c", 1.0, ApprovalRequested("ok?", ["yes"])),
            NodeFailed("d", 2.0, Info("ValueError", "broken pipe")),
            RunFinished(3.0, "waiting"),
            inputs={"question": {"why": "so"}},
            session="s1",
            reuse=["r0", 7],
        )
    )
    assert digest[:-1] == (7, 2, 30, 0.25, False, "gpt-4o +1", "why: so", "", "s1", [["ann"], []], "", "", ["r0"])
    assert digest.texts == RunTexts("question: why: so", "", "broken pipe")
    assert RunDigest.decode(digest.encode(), digest.texts) == digest
    assert RunDigest.decode("[") is None


def test_a_digest_is_bounded_and_can_be_written_whatever_the_values(anyio_backend: str) -> None:
    deep: Any = "bottom"
    for _ in range(50):
        deep = [deep]
    odd = {
        "a": "x" * 10**6,
        "b": float("nan"),
        "c": 10**5000,
        "d": b"bytes",
        "e": "\ud800\0\u2028",
        "f": deep,
        "g": None,
    }
    call = ModelCall("m\0", "p", "generation", [], "", cost_usd=float("inf"))
    digest = digest_of(
        events_of(NodeRecorded("a", 1.0, call), RunFinished(2.0, "succeeded", odd), inputs={**odd, "a": "short"})
    )
    assert all(len(text) <= MAX_TEXT for text in digest.texts)
    assert digest.cost_usd is None
    RunDigest.encode(digest).encode()
    assert digest.texts.inputs == "a: short b: nan c: … d: e: ?? f: g:"
    assert DigestBuilder().digest(0).texts == RunTexts()
    assert digest_of(events_of(NodeStarted("a", 1.0))).events == 2


def test_the_place_of_what_was_found_is_told(anyio_backend: str) -> None:
    texts = RunTexts("text: " + "a " * 100 + "needle" + " b" * 100, "the 東京 office", "boom")
    assert parse_search("needle").excerpt(texts).startswith("input: …a a")
    assert parse_search("nothing 東京").excerpt(texts) == "output: the 東京 office"
    assert parse_search("zzz").excerpt(texts) == ""


@pytest.mark.parametrize("text", ["\udcff \0", '"\ud800"', "NEAR(", '"' * 400, "-x^y*", "\u2028", "w " * 9_000])
async def test_whatever_is_searched_for_is_an_answer(store: JournalStore, text: str) -> None:
    index = run_index_of(store)
    assert index.find(RunsAsked(search=parse_search(text), flow="none")).total == 0
    assert index.find(RunsAsked(search=parse_search(text))).total == 0
