"""Re-use and the cache where runs are kept in PostgreSQL: found by other connections, gone once code changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flowengine.core.records import ModelCall
from flowengine.engine.events import RunStarted
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.stores import open_store
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models
from tests.support.postgres import empty_database

pytestmark = pytest.mark.anyio

CODE = 'def shout(text): return {"text": text.upper()}\n'
FLOW = """
flowengine: v1
name: kept
inputs: {topic: {type: string}}
nodes:
  draft: {CACHEinstructions: Write about it., prompt: "{{ inputs.topic }}"}
  each:
    type: map
    over: "[nodes.draft.output, 'tea']"
    nodes:
      loud: {CACHEtype: function, call: "lib:shout", with: {text: "{{ item }}"}}
outputs: {said: "{{ nodes.each.output | map(attribute='text') | join(' ') }}"}
"""


@pytest.fixture
def url() -> str:
    return empty_database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    made = PostgresStore(url, "full")
    yield made
    made.close()


Made = Callable[[str], Flow]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "lib.py").write_text(CODE)

    def flow(cache: str) -> Flow:
        text = FLOW.replace("CACHE", cache)
        loaded = Flow.from_text(text, tmp_path / "kept.yaml")
        return with_models(loaded, lambda seat, settings: ScriptedModel(lambda request: "a draft"))

    return flow


def paid(run: Run) -> int:
    return sum(type(getattr(event, "record", None)) is ModelCall for event in run.events)


async def test_an_earlier_run_is_reused_by_another_connection(store: PostgresStore, url: str, made: Made):
    first = await made("").run({"topic": "tea"}, store=store, run_id="one")
    assert (paid(first), first.outputs["said"]) == (1, "A DRAFT TEA")
    other = open_store(url, "full")
    try:
        again = await made("").run({"topic": "tea"}, store=other, reuse="one")
        assert (paid(again), again.outputs) == (0, first.outputs)
        assert {each.run_id for each in again.reused.values()} == {"one"}
        changed = await made("").run({"topic": "rice"}, store=other, reuse="one")
        assert "draft" not in changed.reused
        assert paid(changed) == 1
    finally:
        other.close()


async def test_cached_nodes_are_found_by_another_connection_until_their_code_changes(
    store: PostgresStore, url: str, made: Made, tmp_path: Path
):
    first = await made("cache: true, ").run({"topic": "tea"}, store=store, run_id="one")
    assert (paid(first), first.reused) == (1, {})
    other = open_store(url, "full")
    try:
        again = await made("cache: true, ").run({"topic": "tea"}, store=other)
        assert (paid(again), again.outputs) == (0, first.outputs)
        assert sorted(again.reused) == ["draft", "each[0].loud", "each[1].loud"]
        (tmp_path / "lib.py").write_text(CODE.replace("upper()", "title()"))
        edited = await made("cache: true, ").run({"topic": "tea"}, store=other)
        assert sorted(edited.reused) == ["draft"]
        assert edited.outputs["said"] == "A Draft Tea"
    finally:
        other.close()


async def test_a_run_that_reuses_another_goes_on_after_it_was_cut_off(store: PostgresStore, made: Made):
    await made("").run({"topic": "tea"}, store=store, run_id="one")
    whole = await made("").run({"topic": "tea"}, store=store, reuse="one", run_id="two")
    journal = store.create("three")
    for event in whole.events[:4]:
        journal.append(event._replace(run_id="three") if isinstance(event, RunStarted) else event)
    await journal.close()
    done = await made("").resume("three", store=store)
    assert (done.status, paid(done), done.outputs) == ("succeeded", 0, whole.outputs)
