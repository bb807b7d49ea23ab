"""A run ends as failed, and is not left as running, where its nodes or outputs give what no journal can keep, or where
a function fails with the record of another run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.context import Context
from flowengine.core.records import Notice
from flowengine.engine.events import NodeFailed, NodeFinished, NodeRecorded
from flowengine.engine.ports import JournalStore
from flowengine.errors import LimitError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.stores import open_store
from flowengine.nodes.function import FunctionNode
from tests.support.postgres import empty_database

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    made = open_store(str(tmp_path / "runs.db") if request.param == "sqlite" else empty_database())
    yield made
    made.close()


async def pay(context: Context) -> str:
    await context.runtime.note(Notice("paid"))
    return "a text"


def flow_of(node: Any, **parts: Any) -> Flow:
    return Flow("f", {"paying": FunctionNode(pay), "node": FunctionNode(node, needs="paying", **parts)})


class Unwritable:
    """No journal knows it."""


@pytest.mark.parametrize("session", [None, "chat"])
async def test_an_output_that_cannot_be_written_fails_the_run(store: JournalStore, session: str | None):
    flow = Flow("f", {"paying": FunctionNode(pay)}, outputs={"made": lambda context: [Unwritable()]})
    run = await flow.run(store=store, run_id="r", session=session)
    assert (run.status, dict(run.outputs)) == ("failed", {})
    assert run.error is not None
    assert run.error.type == "NotJournalableError"
    assert run.error.message.startswith(
        "outputs.made[0] is of type tests.runtime.test_unwritable.Unwritable; it cannot"
    )
    assert [each.status for each in store.list()] == ["failed"]
    assert not store.abandoned()
    events = store.events("r")
    assert [each.record for each in events if isinstance(each, NodeRecorded)] == [Notice("paid")]
    assert [each.node for each in events if isinstance(each, NodeFinished)] == ["paying"]
    assert store.recall("session", "chat") is None, "what failed leaves nothing to its session"
    mended = Flow("f", flow.plan.definitions, outputs={"made": lambda context: ["a text"]})
    again = await mended.resume("r", store=store)
    assert dict(again.outputs) == {"made": ["a text"]}


async def test_in_memory_any_output_is_kept():
    flow = Flow("f", {"paying": FunctionNode(pay)}, outputs={"made": lambda context: Unwritable()})
    run = await flow.run(store=MemoryStore(), session="chat")
    assert (run.status, type(run.outputs["made"])) == ("succeeded", Unwritable)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (LimitError("enough", needed=float("inf")), "'needed' of ErrorInfo cannot be inf"),
        (LimitError("enough", part=5), "'part' of ErrorInfo cannot be 5"),  # pyright: ignore[reportArgumentType]
    ],
)
@pytest.mark.parametrize("on_error", ["fail", "skip"])
async def test_an_error_that_cannot_be_written_is_the_nodes_failure(
    store: JournalStore, error: Exception, problem: str, on_error: str
):
    def fail(context: Context) -> None:
        raise error

    run = await flow_of(fail, on_error=on_error).run(store=store, run_id="r")
    assert run.status == ("failed" if on_error == "fail" else "succeeded")
    [failed] = [each for each in store.events("r") if isinstance(each, NodeFailed)]
    assert failed.node == "node"
    assert failed.skipped is (on_error == "skip")
    assert problem in failed.error.message
    assert [each.status for each in store.list()] == [run.status]


async def test_a_limit_that_pauses_and_cannot_be_written_fails_the_run(store: JournalStore):
    def fail(context: Context) -> None:
        raise LimitError("enough", part="node", on_limit="pause", needed=float("nan"))

    run = await flow_of(fail).run(store=store, run_id="r")
    assert (run.status, run.failed_node) == ("failed", "node")
    assert run.error is not None
    assert "'needed' of ErrorInfo cannot be nan" in run.error.message
    assert [each.status for each in store.list()] == ["failed"]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_an_error_of_another_runs_record_is_the_nodes_failure(store: JournalStore, is_plain: bool):
    other = Flow("other", {"node": FunctionNode(pay)})

    async def resume(context: Context) -> None:
        await other.resume("nope", store=store)

    def open_other(context: Context) -> None:
        open_store("nothing:here")

    run = await flow_of(open_other if is_plain else resume).run(store=store, run_id="r")
    assert (run.status, run.failed_node) == ("failed", "node")
    assert run.error is not None
    said = "StoreUnavailableError: 'nothing:here' names no kind" if is_plain else "RunNotFoundError: no run 'nope' in "
    assert run.error.message.startswith(said)
    assert [each.status for each in store.list()] == ["failed"]
