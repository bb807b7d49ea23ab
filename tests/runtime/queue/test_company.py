"""A run that its workers die of is found out among others, which are not blamed for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Set
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from flowengine.engine.events import RunFinished
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue import crash_count as queue_loading
from flowengine.runtime.queue.crash_count import Company, LeftError
from flowengine.runtime.queue.run_positions import standing_of
from flowengine.runtime.queue.run_queue import cancel, submit
from flowengine.runtime.queue.suspicion import companies_of, forget_companies, note_companies
from flowengine.runtime.queue.worker import work
from tests.support.queue_runs import QUICK, SLEEP, drain, flow, status, until, worker

pytestmark = pytest.mark.anyio

FATAL = """
import os, signal
import anyio
async def sleep(delay, result):
    if delay == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    await anyio.sleep(delay)
    return result
"""


class Visits:
    """Runs that enter a company and stay until they are let go."""

    def __init__(self) -> None:
        self.company = Company()
        self.inside: set[str] = set()
        self.clear: dict[str, Callable[[], None]] = {}
        self.left: list[str] = []
        self._go: dict[str, anyio.Event] = {}

    async def stay(self, name: str) -> None:
        self._go[name] = anyio.Event()
        enter = self.company.alone if name.startswith("suspect") else self.company.among_others
        try:
            async with enter(may_leave="stays" not in name) as clear:
                if clear is not None:
                    self.clear[name] = clear
                self.inside.add(name)
                await self._go[name].wait()
                self.inside.discard(name)
        except LeftError:
            self.left.append(name)

    async def leave(self, name: str) -> set[str]:
        self._go[name].set()
        await anyio.wait_all_tasks_blocked()
        return self.inside


async def test_a_suspect_begins_when_all_others_have_ended_and_is_alone_until_its_end() -> None:
    visits = Visits()
    async with anyio.create_task_group() as tasks:
        for name in ("a", "b", "suspect", "c", "suspect too", "d"):
            tasks.start_soon(visits.stay, name)
            await anyio.wait_all_tasks_blocked()
        assert visits.inside == {"a", "b"}
        assert await visits.leave("a") == {"b"}
        assert await visits.leave("b") == {"suspect"}
        assert await visits.leave("suspect") == {"suspect too"}
        assert await visits.leave("suspect too") == {"c", "d"}
        await visits.leave("c")
        await visits.leave("d")


async def test_others_begin_beside_a_suspect_once_something_of_it_has_finished() -> None:
    visits = Visits()
    async with anyio.create_task_group() as tasks:
        for name in ("suspect", "a"):
            tasks.start_soon(visits.stay, name)
            await anyio.wait_all_tasks_blocked()
        assert visits.inside == {"suspect"}
        visits.clear["suspect"]()
        await anyio.wait_all_tasks_blocked()
        assert visits.inside == {"suspect", "a"}
        assert await visits.leave("suspect") == {"a"}
        tasks.cancel_scope.cancel()


async def test_a_suspect_that_is_stopped_while_it_waits_holds_up_nobody() -> None:
    visits = Visits()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(visits.stay, "a")
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0):
            await visits.stay("suspect")
        tasks.start_soon(visits.stay, "b")
        await anyio.wait_all_tasks_blocked()
        assert visits.inside == {"a", "b"}
        tasks.cancel_scope.cancel()


def test_the_first_word_about_a_death_counts_and_is_forgotten_with_the_run() -> None:
    store = MemoryStore()
    note_companies(store, {"r": (3, 60), "other": (1, 60)})
    note_companies(store, {"r": (3, 20)})  # Somebody who came later, when others had taken the rest.
    note_companies(store, {"r": (5, 1)})
    assert companies_of(store, "r") == (60, 1)
    forget_companies(store, "r", 5)
    assert companies_of(store, "r") == (60,)
    forget_companies(store, "r")
    assert (companies_of(store, "r"), companies_of(store, "other")) == ((), (60,))


async def test_of_those_that_wait_suspects_leave_first_and_only_who_may() -> None:
    visits = Visits()
    async with anyio.create_task_group() as tasks:
        for name in ("a", "suspect", "b", "c", "suspect stays", "suspect too"):
            tasks.start_soon(visits.stay, name)
            await anyio.wait_all_tasks_blocked()
        assert (visits.inside, visits.company.waiting) == ({"a"}, 4)
        for count, left in ((1, ["suspect too"]), (2, ["suspect too", "suspect", "c"])):
            visits.company.leave(count)
            await anyio.wait_all_tasks_blocked()
            assert sorted(visits.left) == sorted(left)
        assert (visits.inside, visits.company.waiting) == ({"a"}, 1)
        assert await visits.leave("a") == {"suspect stays"}
        assert await visits.leave("suspect stays") == {"b"}
        await visits.leave("b")


async def test_a_suspect_holds_up_another_only_until_it_is_above_suspicion() -> None:
    visits = Visits()
    async with anyio.create_task_group() as tasks:
        for name in ("suspect 1", "suspect 2", "suspect 3", "a"):
            tasks.start_soon(visits.stay, name)
            await anyio.wait_all_tasks_blocked()
        assert visits.inside == {"suspect 1"}
        for cleared, then in (("suspect 1", {"suspect 2"}), ("suspect 2", {"suspect 3"}), ("suspect 3", {"a"})):
            before = set(visits.inside)
            visits.clear[cleared]()
            visits.clear["suspect 1"]()  # What is cleared already clears nobody else.
            await anyio.wait_all_tasks_blocked()
            assert visits.inside == before | then
        for name in list(visits.inside):
            await visits.leave(name)


@pytest.mark.long
async def test_of_runs_whose_worker_dies_only_the_one_at_fault_is_given_up(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path, code=FATAL).plan
    innocent = [await submit(store, plan, {"seconds": 1}, run_id=f"innocent-{number}") for number in range(3)]
    guilty = await submit(store, plan, {"seconds": 13}, run_id="guilty")
    runs, deaths = {*innocent, guilty}, 0
    with anyio.fail_after(600):  # Each step below waits for an event; this is for one that never comes.
        while runs:
            process = worker(store, tmp_path, takeovers=3, concurrency=4)
            if await anyio.to_thread.run_sync(tells_ends, process, runs, abandon_on_cancel=True):
                break
            assert process.wait() == -signal.SIGKILL, process.communicate()
            runs = {each for each in runs if status(store, each) == "running"}
            deaths += 1
            assert deaths <= 5
    assert {status(store, each) for each in innocent} == {"succeeded"}
    assert status(store, guilty) == "failed"
    assert deaths >= 4


STALLING = """
import os, signal
def sleep(delay, result):
    if delay:
        with open("stalled", "a") as file:
            file.write(f"{os.getpid()} ")
        os.kill(os.getpid(), signal.SIGSTOP)  # It gives no sign, and its connections stay.
    return result
"""


@pytest.mark.long
async def test_a_run_that_stalls_its_workers_is_given_up(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, code=STALLING).plan, {"seconds": 1}, run_id="stalls")
    stalled = tmp_path / "stalled"
    stalled.touch()
    for _ in range(2):
        worker(store, tmp_path, hanging=2.0)
    woken = 0
    with anyio.fail_after(300):
        while status(store, run_id) == "running":
            *earlier, _ = [0, *map(int, stalled.read_text().split())]
            for process in earlier[1 + woken :]:  # Another has the run by now.
                os.kill(process, signal.SIGCONT)
                woken += 1
            assert woken < 9
            await anyio.sleep(0.05)
    last = store.events(run_id)[-1]
    assert isinstance(last, RunFinished)
    assert last.error is not None
    assert "given up after 5 takeovers, last in node 'sleep'" in last.error.message


async def test_a_run_that_was_only_loading_when_its_workers_died_is_not_given_up(
    store: PostgresStore, tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {})
    for _ in range(7):
        queue_loading.begin(store, run_id)  # And the worker dies, of another run.
    assert await drain(store) == [f"run {run_id} begins: sleep", f"run {run_id} succeeded"]
    assert store.query("SELECT count(*) FROM flowengine.beside") == [(0,)]


async def await_event(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110 - another's doing
            await anyio.sleep(0.05)


async def test_a_suspect_in_a_worker_that_is_busy_is_left_to_one_that_is_idle(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path).plan
    busy = await submit(store, plan, {"seconds": 3_600}, run_id="busy")
    told: list[str] = []
    other = PostgresStore(store.url, "full")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(work, store, pace=QUICK, tell=told.append, concurrency=4))
        await await_event(lambda: len(store.events(busy)) > 1)
        for _ in range(2):
            queue_loading.begin(store, "suspect")
        plan = flow(tmp_path, SLEEP.replace("name: sleep", "name: another")).plan
        suspect = await submit(store, plan, {}, run_id="suspect")
        await await_event(lambda: bool((standing := standing_of(store, suspect)) and standing.is_taken))
        tasks.start_soon(partial(work, other, pace=QUICK, tell=told.append))
        await until(store, suspect, "succeeded")
        assert status(store, busy) == "running"
        assert "run suspect is left to a worker that is idle" in told
        await cancel(store, busy)
        await until(store, busy, "cancelled")
        tasks.cancel_scope.cancel()
    other.close()


def tells_ends(process: subprocess.Popen[str], runs: Set[str]) -> bool:
    """Whether a worker tells of each run that it has ended, before it tells no more."""
    left = set(runs)
    assert process.stdout is not None
    for line in process.stdout:
        run_id, _, what = line.removeprefix("run ").partition(" ")
        if what.startswith(("succeeded", "failed")):
            left.discard(run_id)
        if not left:
            return True
    return False


def test_a_library_that_nobody_loads_is_not_waited_for() -> None:
    code = (
        "import sys, anyio\nfrom flowengine.models.litellm.loading import wait_for_started_import\n"
        "anyio.run(wait_for_started_import)\n"
        "assert 'litellm' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
