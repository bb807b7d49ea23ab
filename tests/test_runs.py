"""Runs read from Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flowengine import ApprovalNode, Flow, FunctionNode, Runs
from flowengine.core.context import Context
from flowengine.core.records import Answered
from flowengine.engine.events import RunFinished, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import DefinitionError, InputError, RunNotFoundError
from flowengine.journal.approvals import keep_answer, times_asked
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import store_run
from flowengine.journal.stores import TeeStore, open_store
from tests.support.postgres import empty_database


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    made = {
        "memory": MemoryStore,
        "sqlite": lambda: open_store(str(tmp_path / "runs.db")),
        "postgresql": lambda: open_store(empty_database()),
    }[request.param]()
    yield made
    made.close()


def one(context: Context) -> int:
    return 1


def breaks(context: Context) -> None:
    raise ValueError("broken")


COUNT = Flow("count", {"one": FunctionNode(one), "never": FunctionNode(one, needs=["one"], when=lambda context: False)})
BREAK = Flow("break", {"one": FunctionNode(one), "bad": FunctionNode(breaks, needs=["one"])})
FORM = {"type": "object", "properties": {"channel": {"type": "string"}}}
ASK = Flow(
    "ask",
    {
        "ask": ApprovalNode(lambda context: "Publish?", {"yes": "publish", "no": None}, form=FORM),
        "publish": FunctionNode(one),
    },
)


async def test_runs_are_listed_by_what_is_asked_for(store: JournalStore) -> None:
    await COUNT.run(store=store, run_id="a1", labels={"team": "billing", "env": "prod"})
    await BREAK.run(store=store, run_id="b2", labels={"team": "billing"})
    await COUNT.run(store=store, run_id="c3")
    runs = Runs(store)

    def ids(**asked: Any) -> list[str]:
        return [info.run_id for info in runs.list(**asked)]

    assert ids() == ["c3", "b2", "a1"]
    assert ids(flow="count") == ["c3", "a1"]
    assert ids(status="failed") == ["b2"]
    assert ids(labels={"team": "billing"}) == ["b2", "a1"]
    assert ids(labels={"team": "billing", "env": "prod"}) == ["a1"]
    assert ids(labels={"team": "other"}) == []
    assert ids(limit=1) == ["c3"]
    between = (runs.get("a1").started + runs.get("b2").started) / 2
    assert ids(since=between) == ["c3", "b2"]
    assert ids(before=datetime.fromtimestamp(between, UTC)) == ["a1"]
    assert ids(ended_since=runs.get("b2").started) == ["c3", "b2"]


@pytest.mark.parametrize("run_id", ["../x", "", "a b", "a" * 65, "é", "a\n", "@last"])
async def test_an_id_that_no_command_takes_is_refused_before_anything_is_written(run_id: str):
    store = MemoryStore()
    with pytest.raises(InputError, match="is no run's id: 1 to 64 letters, digits, "):
        await COUNT.run(store=store, run_id=run_id)
    await COUNT.run(store=store, run_id="a1")
    with pytest.raises(InputError, match="no run's id"):
        await store_run(store, store.events("a1"), run_id)
    assert [info.run_id for info in store.list()] == ["a1"]


async def test_a_run_that_was_left_behind_is_found_as_interrupted(store: JournalStore) -> None:
    await COUNT.run(store=store, run_id="done")
    journal = store.create("left")
    journal.append(RunStarted("left", "count", 1.0, {}, {}, {}))
    await journal.close()
    assert [info.run_id for info in Runs(store).list(status="interrupted")] == ["left"]


async def test_an_unknown_status_is_told_with_the_nearest(store: JournalStore) -> None:
    with pytest.raises(DefinitionError, match="did you mean 'succeeded'"):
        Runs(store).list(status="suceeded")


async def test_a_run_is_read_with_its_nodes(store: JournalStore) -> None:
    await COUNT.run(store=store, run_id="a1", labels={"team": "billing"})
    await BREAK.run(store=store, run_id="b2")
    runs = Runs(store)
    good, bad = runs.get("a1"), runs.get("@last")
    assert (good.run_id, good.flow, good.status, good.labels) == ("a1", "count", "succeeded", {"team": "billing"})
    assert good.nodes["one"].output == 1
    assert (good.nodes["never"].status, good.nodes["never"].cause) == ("skipped", "condition_false")
    assert good.finished is not None
    assert good.finished >= good.started
    assert (good.error, good.failed_node, good.usage.calls, good.inputs) == (None, None, 0, {})
    assert (bad.run_id, bad.status, bad.failed_node) == ("b2", "failed", "bad")
    assert bad.error is not None
    assert "broken" in bad.error.message
    assert bad.nodes["bad"].error == "ValueError: broken"
    with pytest.raises(RunNotFoundError, match="a1"):
        runs.get("zz")


async def test_what_runs_wait_for_is_told_with_its_form_until_it_is_answered(store: JournalStore) -> None:
    await ASK.run(store=store, run_id="a1", labels={"team": "billing"})
    await ASK.run(store=store, run_id="b2")
    runs = Runs(store)
    first, second = runs.waiting()
    assert (first.run_id, first.flow, first.node, first.message) == ("a1", "ask", "ask", "Publish?")
    assert (list(first.choices), first.form, first.labels) == (["yes", "no"], FORM, {"team": "billing"})
    assert first.asked <= second.asked
    assert [each.run_id for each in runs.waiting(labels={"team": "billing"})] == ["a1"]
    assert runs.waiting(flow="other") == []
    assert list(runs.get("a1").questions) == [first]
    await ASK.approve("a1", None, "yes", store=store, form={"channel": "blog"})
    assert [each.run_id for each in runs.waiting()] == ["b2"]
    assert list(runs.get("a1").questions) == []


async def test_a_question_whose_answer_is_kept_for_the_runs_owner_is_not_open(store: JournalStore) -> None:
    await ASK.run(store=store, run_id="a1")
    asked = times_asked(store.events("a1"))["ask"]
    keep_answer(store, "a1", "ask", asked, Answered("yes", "", "ann", {"channel": "blog"}))
    assert Runs(store).waiting() == []
    keep_answer(
        store, "a1", "ask", asked - 1, Answered("yes", "", "ann", {"channel": "blog"})
    )  # To an earlier question.
    assert [each.node for each in Runs(store).waiting()] == ["ask"]


async def test_the_events_of_a_run_are_read_from_a_position_on(store: JournalStore) -> None:
    await COUNT.run(store=store, run_id="a1")
    events = Runs(store).events("a")
    assert list(events) == list(store.events("a1"))
    assert isinstance(events[-1], RunFinished)
    assert list(Runs(store).events("a1", 2)) == list(events[2:])


async def test_a_url_is_opened_and_closed_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    await COUNT.run(store=url, run_id="a1")
    with Runs(url) as runs:
        record = runs.get("a1")
    assert record.status == "succeeded"


async def test_a_store_that_was_given_stays_open() -> None:
    store = MemoryStore()
    with Runs(TeeStore(store, lambda event: None)):
        await COUNT.run(store=store, run_id="a1")
    assert len(Runs(store).list()) == 1
