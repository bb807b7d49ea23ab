"""Many runs through vendors' batches: half the price, wave by wave, nothing lost and nothing posted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest

from flowengine import Flow, RowResult, RunError
from flowengine.core.budget import Budget
from flowengine.errors import JournalError
from flowengine.evals.batch_collector import BatchCollector, BatchPace
from flowengine.evals.eval_file import load_eval
from flowengine.evals.eval_run import EvalRun
from flowengine.journal.memory import MemoryStore
from flowengine.runtime.local.row_runs import DataRow, RowRuns, open_row_set
from tests.support.batch_server import BatchServer, asked_of

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

ROWS = 12
PACE = BatchPace(linger=0.05, first_look=0.01, longest_pause=0.02)
MODELS = {"openai": "openai/gpt-4o-mini", "anthropic": "anthropic/claude-haiku-4-5"}
FLOW = """flowengine: v1
name: two
inputs: {n: {type: integer}}
nodes:
  one: {model: MODEL, max_retries: 0, prompt: "first {{ inputs.n }}"}
  two: {model: MODEL, max_retries: 0, prompt: "second {{ nodes.one.output }}"}
outputs: {said: "{{ nodes.two.output }}"}
"""


def answer(body: dict[str, Any]) -> str:
    return f"<{asked_of(body)}>"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    with BatchServer(answer) as made:
        monkeypatch.setenv("OPENAI_BASE_URL", made.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", made.anthropic)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
        yield made


async def run(
    folder: Path,
    store: MemoryStore,
    vendor: str = "openai",
    pace: BatchPace | None = PACE,
    *,
    concurrency: int = 100,
    text: str = FLOW,
    tell: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> Sequence[RowResult]:
    path = folder / "two.yaml"
    path.write_text(text.replace("MODEL", MODELS[vendor]))
    flow = Flow.from_yaml(path)
    rows = open_row_set(flow.plan, store, "rows", vendor)
    runs = RowRuns(plan=flow.plan, store=store, rows=rows, concurrency=concurrency, **options)
    data = [DataRow(n, {"n": n}) for n in range(1, ROWS + 1)]
    if pace is None:
        async with aclosing(runs.results(data)) as results:
            return [each async for each in results]
    async with BatchCollector(store, rows.id, pace, tell), aclosing(runs.results(data)) as results:
        return [each async for each in results]


def check(found: Sequence[RowResult]) -> None:
    assert [each.outputs.get("said") for each in found] == [f"<second <first {n}>>" for n in range(1, ROWS + 1)]


@pytest.mark.parametrize("vendor", MODELS)
async def test_two_nodes_are_two_waves_at_half_the_price(
    server: BatchServer, tmp_path: Path, anyio_backend: str, vendor: str
) -> None:
    found = await run(tmp_path, MemoryStore(), vendor)
    check(found)
    assert (server.live, len(server.batches)) == (0, 2)
    assert set(server.posted.values()) == {1}
    assert len(server.posted) == 2 * ROWS
    live = await run(tmp_path, MemoryStore(), vendor, None)
    check(live)
    assert server.live == 2 * ROWS
    cheap, dear = (sum(each.spent.cost_usd for each in rows) for rows in (found, live))
    assert 0 < cheap == pytest.approx(dear / 2)


async def test_a_model_that_has_no_chat_completions_is_asked_in_batches_too(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    text = FLOW.replace("MODEL", "openai/o3-pro")
    found = await run(tmp_path, MemoryStore(), text=text)
    check(found)
    assert (server.live, len(server.batches)) == (0, 2)
    check(await run(tmp_path, MemoryStore(), pace=None, text=text))
    assert server.live == 2 * ROWS


@pytest.mark.parametrize("vendor", MODELS)
async def test_what_expires_is_asked_in_one_more_batch(
    server: BatchServer, tmp_path: Path, anyio_backend: str, vendor: str
) -> None:
    server.left_out = lambda asked: asked.startswith("first") and asked.endswith(("3", "4"))
    check(await run(tmp_path, MemoryStore(), vendor))
    assert server.live == 0
    assert {asked for asked, count in server.posted.items() if count == 2} == {"first 3", "first 4"}


@pytest.mark.parametrize("vendor", MODELS)
async def test_a_request_that_fails_fails_its_row_alone(
    server: BatchServer, tmp_path: Path, anyio_backend: str, vendor: str
) -> None:
    server.failing = lambda asked: asked == "first 3"
    found = await run(tmp_path, MemoryStore(), vendor)
    assert [each.row.number for each in found if each.status == "failed"] == [3]
    assert sum(each.succeeded for each in found) == ROWS - 1


@pytest.mark.parametrize("vendor", MODELS)
async def test_a_connection_that_breaks_posts_nothing_twice(
    server: BatchServer, tmp_path: Path, anyio_backend: str, vendor: str
) -> None:
    server.lost_posts, server.lost_looks = 1, 2
    check(await run(tmp_path, MemoryStore(), vendor))
    assert set(server.posted.values()) == {1}
    assert server.live == 0


async def test_a_refused_batch_is_an_error_of_its_rows(server: BatchServer, tmp_path: Path, anyio_backend: str) -> None:
    server.refused = True
    found = await run(tmp_path, MemoryStore())
    assert {each.status for each in found} == {"failed"}
    assert "the file is too odd" in (found[0].error.message if found[0].error is not None else "")


async def test_a_batch_that_could_not_be_looked_at_is_taken_by_a_later_try(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    store, server.denied = MemoryStore(), True
    found = await run(tmp_path, store)
    assert {each.status for each in found} == {"failed"}
    server.denied = False
    check(await run(tmp_path, store, retry_failed=True))
    assert (set(server.posted.values()), server.live) == ({1}, 0)


async def test_a_batch_that_the_vendor_does_not_find_fails_its_rows_and_is_looked_for_again(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    store, server.removed = MemoryStore(), True
    found = await run(tmp_path, store, concurrency=5)
    assert {each.status for each in found} == {"failed"}
    error = str(found[0].error)
    assert "openai does not find batch batch_1 with 12 requests: it was removed, or it belongs to another" in error
    assert "no such batch" in error
    server.removed = False
    check(await run(tmp_path, store, retry_failed=True))
    assert (set(server.posted.values()), server.live) == ({1}, 0)


@pytest.mark.parametrize("vendor", MODELS)
async def test_a_batch_that_the_vendor_does_not_find_twice_is_sent_anew_when_its_rows_are_tried_again(
    server: BatchServer, tmp_path: Path, anyio_backend: str, vendor: str
) -> None:
    store, server.removed, told = MemoryStore(), True, list[str]()
    await run(tmp_path, store, vendor)
    again = await run(tmp_path, store, vendor)
    assert {(each.status, each.was_there) for each in again} == {("failed", True)}

    def tell(text: str) -> None:
        told.append(text)
        server.removed = False  # The batch that is made now can be found.

    check(await run(tmp_path, store, vendor, retry_failed=True, tell=tell))
    assert told[0].startswith(f"{vendor} still does not find batch batch_1 with {ROWS} requests")
    assert {asked: count for asked, count in server.posted.items() if count > 1} == {
        f"first {n}": 2 for n in range(1, ROWS + 1)
    }
    assert server.live == 0


async def test_an_eval_whose_batch_could_not_be_looked_at_goes_on_and_pays_nothing_twice(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    (tmp_path / "two.yaml").write_text(FLOW.replace("MODEL", MODELS["openai"]))
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    path = tmp_path / "two.floweval.yaml"
    path.write_text("flow: two.yaml\ndata: rows.jsonl\nscorers: {done: {status: succeeded}}\n")
    store, server.denied = MemoryStore(), True
    made = await EvalRun(file=load_eval(path), store=store, batch=PACE).run()
    assert ([each.status for each in made.rows], made.finished) == (["failed"], False)
    server.denied = False
    again = await EvalRun(file=load_eval(path), store=store, batch=PACE).run()
    assert ([each.status for each in again.rows], again.finished, again.id) == (["succeeded"], True, made.id)
    assert (set(server.posted.values()), server.live) == ({1}, 0)


async def test_a_batch_whose_cancellation_is_not_heard_is_cancelled_again(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    server.never_ends, server.lost_cancels = True, 1
    pace = BatchPace(linger=0.05, first_look=0.01, longest_pause=0.02, deadline=0.3)
    with anyio.fail_after(20):
        check(await run(tmp_path, MemoryStore(), pace=pace))


async def test_after_the_deadline_the_rest_is_asked_alone(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    server.never_ends = True
    pace = BatchPace(linger=0.05, first_look=0.01, longest_pause=0.02, deadline=0.3)
    check(await run(tmp_path, MemoryStore(), pace=pace))
    assert all(batch["cancelled"] for batch in server.batches.values())
    assert server.live == 2 * ROWS


@pytest.mark.long
@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize(("event", "count"), [("taken", 1), ("look", 1), ("answers", 1), ("taken", 2), ("look", 4)])
async def test_stopped_anywhere_nothing_is_lost_or_posted_twice(
    server: BatchServer, tmp_path: Path, anyio_backend: str, vendor: str, event: str, count: int
) -> None:
    """Stopped while the vendor is at work, once before its answer has come back, and started again."""
    store, seen, stop, loop = MemoryStore(), 0, anyio.Event(), anyio.lowlevel.current_token()

    def hear(told: str) -> None:
        nonlocal seen
        seen += told == event
        if seen == count and told == event:
            anyio.from_thread.run_sync(stop.set, token=loop)

    server.heard = hear
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, tmp_path, store, vendor)
        await stop.wait()
        tasks.cancel_scope.cancel()
    server.heard = lambda told: None
    check(await run(tmp_path, store, vendor))
    assert set(server.posted.values()) == {1}
    assert server.live == 0


async def test_a_run_that_waits_for_a_batch_is_not_resumed_without_it_and_so_not_paid_twice(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    store, stop, loop = MemoryStore(), anyio.Event(), anyio.lowlevel.current_token()
    server.never_ends = True
    server.heard = lambda told: told == "look" and anyio.from_thread.run_sync(stop.set, token=loop)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, tmp_path, store)
        await stop.wait()
        tasks.cancel_scope.cancel()
    server.heard, server.never_ends = lambda told: None, False
    waiting = [each.run_id for each in store.list() if each.status == "waiting"]
    assert len(waiting) == ROWS
    with pytest.raises(RunError, match="waits for a batch"):
        await Flow.from_yaml(tmp_path / "two.yaml").resume(waiting[0], store=store)
    alone = await run(tmp_path, store, pace=None)
    assert ["waits for a batch" in str(each.error) for each in alone] == [True] * ROWS
    assert server.live == 0
    check(await run(tmp_path, store))
    assert (set(server.posted.values()), server.live) == ({1}, 0)


async def test_a_batch_that_cannot_be_looked_at_fails_rows_that_come_later_too(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    """Started again with fewer rows in flight than the batch has requests, and with a key that was revoked."""
    store, stop, loop = MemoryStore(), anyio.Event(), anyio.lowlevel.current_token()
    server.heard = lambda told: anyio.from_thread.run_sync(stop.set, token=loop) if told == "look" else None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, tmp_path, store)
        await stop.wait()
        tasks.cancel_scope.cancel()
    server.heard, server.denied = lambda told: None, True
    with anyio.fail_after(20):
        found = await run(tmp_path, store, concurrency=5)
    assert {each.status for each in found} == {"failed"}
    assert set(server.posted.values()) == {1}


async def test_after_the_deadline_rows_that_come_later_do_not_wait_for_a_batch_that_nobody_follows(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    """Stopped before the batch's id was known; only its answers would tell whose it is, and there are none."""
    store, stop, loop = MemoryStore(), anyio.Event(), anyio.lowlevel.current_token()
    server.never_ends, server.lost_posts = True, 1
    server.heard = lambda told: anyio.from_thread.run_sync(stop.set, token=loop) if told == "taken" else None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, tmp_path, store, "anthropic")
        await stop.wait()
        tasks.cancel_scope.cancel()
    server.heard = lambda told: None
    late = BatchPace(linger=0.05, first_look=0.01, longest_pause=0.02, deadline=0.0)
    with anyio.fail_after(10):
        check(await run(tmp_path, store, "anthropic", late, concurrency=1))
    assert server.live == 2 * ROWS


async def test_a_store_that_cannot_keep_a_batch_ends_the_runs_with_its_own_error(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    class Full(MemoryStore):
        def revise(self, kind: str, key: str, change: Any) -> Any:
            if kind == "batches":
                raise JournalError("the disk is full")
            return super().revise(kind, key, change)

    with pytest.raises(JournalError, match="the disk is full"):
        await run(tmp_path, Full())
    assert not server.posted


async def test_a_limit_holds_for_batches_too(server: BatchServer, tmp_path: Path, anyio_backend: str) -> None:
    store = MemoryStore()
    found = await run(tmp_path, store, budget=Budget(model_calls=ROWS + 3))
    assert server.posted.total() == ROWS + 3
    assert {each.status for each in found} == {"succeeded", "paused"}
    check(await run(tmp_path, store))
    assert set(server.posted.values()) == {1}


KINDS = """flowengine: v1
name: kinds
inputs: {n: {type: integer}}
limits: {model_calls: 3, on_limit: fail}
nodes:
  one: {model: MODEL, prompt: "one {{ inputs.n }}"}
  again: {model: MODEL, prompt: "one {{ inputs.n }}"}
  judge:
    type: evaluation
    model: MODEL
    target: "judged {{ inputs.n }}"
    criteria: {good: It is good}
outputs: {both: "{{ nodes.one.output }} {{ nodes.again.output }}", score: "{{ nodes.judge.output.score }}"}
"""


async def test_a_row_that_waits_is_put_aside_and_keeps_what_it_has_reserved(
    server: BatchServer, tmp_path: Path, anyio_backend: str
) -> None:
    """Calls at once, a judge and equal requests are one wave, and the run's own limit holds for them together."""
    judged = '{"score": 1, "criteria_scores": {"good": 1}, "feedback": "", "suggestions": []}'
    server.answer = lambda body: judged if "judged" in asked_of(body) else answer(body)
    store, waiting = MemoryStore(), Counter[str]()

    def look(told: str) -> None:
        if told == "taken":
            waiting.update(each.status for each in store.list())

    server.heard = look
    found = await run(tmp_path, store, text=KINDS, concurrency=2)
    assert [each.error for each in found] == [None] * ROWS
    assert waiting == {"waiting": ROWS}  # Of two at work at once.
    assert [each.outputs["both"] for each in found] == [f"<one {n}> <one {n}>" for n in range(1, ROWS + 1)]
    assert {each.outputs["score"] for each in found} == {1.0}
    assert (len(server.batches), server.live, server.posted.total()) == (1, 0, 3 * ROWS)
    assert {each.spent.model_calls for each in found} == {3}
    tight = await run(tmp_path, MemoryStore(), text=KINDS.replace("model_calls: 3", "model_calls: 2"))
    assert {each.status for each in tight} == {"failed"}
    assert server.posted.total() == 3 * ROWS + 2 * ROWS


PAIR = """flowengine: v1
name: pair
inputs: {n: {type: integer}}
nodes:
  one: {model: anthropic/claude-haiku-4-5, max_retries: 0, prompt: "first {{ inputs.n }}"}
  two: {model: openai/gpt-4o-mini, max_retries: 0, prompt: "second {{ inputs.n }}"}
outputs: {said: "{{ nodes.one.output }} {{ nodes.two.output }}"}
"""


async def test_what_is_in_a_batch_when_its_runs_fail_is_not_posted_again_for_them(
    server: BatchServer, tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One vendor fails the runs, while the other one is at work on their other calls."""
    show, store = server.shown, MemoryStore()

    def show_slow(batch: dict[str, Any]) -> dict[str, Any]:
        server.never_ends = batch["kind"] == "anthropic"
        return show(batch)

    with monkeypatch.context() as patch:
        patch.setattr(server, "shown", show_slow)
        server.failing = lambda asked: asked.startswith("second")
        found = await run(tmp_path, store, text=PAIR)
        assert {each.status for each in found} == {"failed"}
    server.never_ends, server.failing = False, lambda asked: False
    found = await run(tmp_path, store, text=PAIR, retry_failed=True)
    assert {each.status for each in found} == {"succeeded"}
    assert {count for asked, count in server.posted.items() if asked.startswith("first")} == {1}
    assert server.live == 0


async def test_no_batch_is_sent_after_the_deadline(server: BatchServer, tmp_path: Path, anyio_backend: str) -> None:
    """It comes while one vendor takes its batch, and before the other one is given its own."""
    late = Event()
    server.heard = lambda told: late.wait(10) if told == "taken" else None
    pace = BatchPace(linger=0.05, first_look=0.01, longest_pause=0.02, deadline=0.3)
    found = await run(
        tmp_path, MemoryStore(), pace=pace, text=PAIR, tell=lambda text: "deadline" in text and late.set()
    )
    assert {each.status for each in found} == {"succeeded"}
    assert len(server.batches) <= 1
