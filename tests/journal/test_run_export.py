"""A run as one file and back."""

from __future__ import annotations

import pytest

from flowengine.core.context import Context
from flowengine.core.masking.masker import Masker
from flowengine.errors import JournalError, StoreCorruptError, StoreVersionError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import masked_notes, pack_run, store_run, unpack_run, unpack_runs
from flowengine.journal.run_notes import RunMark, RunNote, RunNotes, RunScore, notes_of
from flowengine.nodes.function import FunctionNode

pytestmark = pytest.mark.anyio


async def lines() -> list[str]:
    async def work(context: Context) -> str:
        return "日本語 <&> \x00"

    return list(pack_run((await Flow("f", {"a": FunctionNode(work)}).run(run_id="r")).events))


async def test_a_run_comes_back_as_it_was_under_its_id_or_another():
    packed = await lines()
    events = unpack_run(packed, "run.jsonl")
    store = MemoryStore()
    assert await store_run(store, events) == "r"
    assert await store_run(store, events, "copy") == "copy"
    assert list(store.events("r")) == events
    assert list(store.events("copy"))[1:] == events[1:]
    with pytest.raises(JournalError, match="exists already"):
        await store_run(store, events)


async def test_what_is_no_exported_run_is_refused_with_its_place():
    packed = await lines()
    for broken, error, said in [
        ([], StoreCorruptError, "is no exported run"),
        (["hello"], StoreCorruptError, "is no exported run"),
        (["[]"], StoreCorruptError, "is no exported run"),
        (["[" * 100_000], StoreCorruptError, "is no exported run"),
        ([packed[0].replace('"events": 4', f'"events": {10**30}'), *packed[1:]], StoreCorruptError, "no exported run"),
        (packed[:-1], StoreCorruptError, "is not whole: it has 3 of 4 events"),
        ([packed[0], packed[1], '[1,"Nothing"]', *packed[3:]], StoreCorruptError, "run.jsonl:3: not an event"),
        ([packed[0].replace(": 1", ": 99"), *packed[1:]], StoreVersionError, "newer FlowEngine"),
        ([packed[0], *packed[2:], packed[2]], StoreCorruptError, "does not begin with a run's start"),
    ]:
        with pytest.raises(error, match=said):
            unpack_run(broken, "run.jsonl")
    assert unpack_run([f"\ufeff{packed[0]}\r", *packed[1:]], "run.jsonl") == unpack_run(packed, "run.jsonl")


SAID = RunNotes(
    [RunNote("a", "mail ada@example.jp", "ann", 5.0)],
    [RunMark("golden", "ann", 6.0)],
    [RunScore("quality", 0.5, "bob", 7.0)],
)


async def test_runs_stand_one_after_the_other_in_a_file_with_what_people_say_of_them():
    packed, store = await lines(), MemoryStore()
    events = unpack_run(packed, "x")
    both = [*pack_run(events, notes=SAID), "", *packed]
    found = list(unpack_runs(both, "runs.jsonl"))
    assert [(each.events, each.notes) for each in found] == [(events, SAID), (events, RunNotes())]
    await store_run(store, events, "copy", notes=found[0].notes)
    kept = notes_of(store, "copy")
    assert kept._replace(notes=[kept.notes[0]._replace(id="a")]) == SAID
    with pytest.raises(StoreCorruptError, match="holds 2 runs, and one is expected"):
        unpack_run(both, "runs.jsonl")
    with pytest.raises(StoreCorruptError, match=f"runs.jsonl:{len(packed) + 1}: there is more than its events"):
        list(unpack_runs([*packed, packed[1]], "runs.jsonl"))


async def test_of_what_a_stranger_says_of_a_run_only_what_could_be_said_here_is_kept():
    events, store = unpack_run(await lines(), "x"), MemoryStore()
    hostile = RunNotes(
        [RunNote("a\n\x1b[2J", "fine", "a\x1b[2Jn", 5.0), RunNote("b", "x" * 20_000, "", 1.0),
         RunNote("c", "t", "", 1e300)],
        [RunMark("<b>", "", 1.0), RunMark("ok", "", 1.0)],
        [RunScore("q", float("nan"), "", 1.0)],
    )  # fmt: skip
    await store_run(store, events, notes=hostile)
    kept = notes_of(store, "r")
    assert [(each.text, each.by) for each in kept.notes] == [("fine", "a[2Jn")]
    assert "\n" not in kept.notes[0].id
    assert ([each.name for each in kept.marks], kept.scores) == (["ok"], [])
    head = (await lines())[0].replace("}", ', "notes": {"scores": [["q", 1' + "0" * 400 + ', "", 1]]}}')
    [found] = unpack_runs([head, *(await lines())[1:]], "x")
    assert not any(found.notes)


def test_what_people_say_is_masked_and_who_they_are_is_not_told():
    hidden = masked_notes(SAID, Masker(key=b"k"))
    assert "ada" not in hidden.notes[0].text
    assert {each.by for rows in hidden for each in rows} == {""}


async def test_a_note_that_nobody_could_have_written_is_left_out():
    events, store = unpack_run(await lines(), "run.jsonl"), MemoryStore()
    notes = RunNotes([RunNote("a", "\0 \0", "ann", 5.0), RunNote("b", "seen", "ann", 6.0)])
    await store_run(store, events, notes=notes)
    assert [each.text for each in notes_of(store, "r").notes] == ["seen"]
