"""Runs that come to a worker which has nothing of them, lacks something for them, or dies of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from flowengine.agents.tools.mcp import server_clients as mcp_client
from flowengine.engine.events import NodeFinished, RunFinished, RunResumed
from flowengine.errors import DefinitionError, JournalError
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.queue.run_positions import lacks_of
from flowengine.runtime.queue.run_queue import requeue, submit
from tests.support.queue_runs import NAPS, UNTIL_TOLD, await_node, drain, flow, of, status, stop, until, worker

pytestmark = pytest.mark.anyio

OUTER = """
flowengine: v1
name: outer
nodes:
  inner: {type: subflow, flow: parts/inner.yaml, with: {word: "one"}}
outputs: {said: "{{ nodes.inner.output.said }} {{ env.TONE }}"}
"""
INNER = """
flowengine: v1
name: inner
inputs: {word: {type: string}}
nodes:
  leaf: {type: subflow, flow: leaf.yaml, with: {word: "{{ inputs.word }} two"}}
outputs: {said: "{{ nodes.leaf.output.said }}"}
"""
LEAF = """
flowengine: v1
name: leaf
inputs: {word: {type: string}}
nodes:
  say: {type: condition, cases: [{if: "inputs.word == 'one two'", then: yes_, label: right}], else: no_}
  yes_: {prompt: "Say {{ inputs.word }}", model: offline}
  no_: {prompt: "Say no", model: offline}
outputs: {said: "{{ inputs.word }}"}
"""
ASKS_A_SERVER = """
flowengine: v1
name: ask
nodes:
  a: {prompt: Go., model: offline, mcp_servers: [{name: s, command: server}]}
"""
FATAL = """
import os, signal
async def sleep(delay, result):
    if delay:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where runs are submitted."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the worker of this process is started, with nothing in it."""
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    return away


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


async def drained(store: PostgresStore, **options: Any) -> list[str]:
    """What a worker told, each line once: it is offered again within a second what it put back."""
    return list(dict.fromkeys(await drain(store, **options)))


async def test_a_worker_in_an_empty_folder_runs_a_flow_with_flows_inside(
    store: PostgresStore, home: Path, away: Path
) -> None:
    (home / "flowengine.toml").write_text('allow_env = ["TONE"]\n')
    write(home, outer=OUTER, parts__inner=INNER, parts__leaf=LEAF)
    plan = Flow.from_yaml(home / "outer.yaml", environ={"TONE": "gently"}).plan
    run_id = await submit(store, plan, {})
    for path in (home / "outer.yaml", home / "parts" / "inner.yaml", home / "parts" / "leaf.yaml"):
        path.unlink()
    told = await drain(store, environ={})
    assert told == [f"run {run_id} begins: outer", f"run {run_id} succeeded"]
    finished = store.events(run_id)[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outputs == {"said": "one two gently"}


async def test_a_flow_of_python_objects_is_not_submitted(store: PostgresStore) -> None:
    with pytest.raises(DefinitionError, match="made of Python objects, which no worker has"):
        await submit(store, Flow("f", {"a": FunctionNode(print)}).plan, {})
    assert list(store.list()) == []


async def test_a_run_is_left_to_a_worker_that_has_its_function(store: PostgresStore, home: Path, away: Path) -> None:
    run_id = await submit(store, flow(home).plan, {})
    told = await drain(store)
    assert told[0].startswith(f"run {run_id} is left to others: this worker lacks")
    assert "there is no module 'naps'" in told[0]
    assert status(store, run_id) == "running"
    [lack] = lacks_of(store, run_id).values()
    assert "there is no module 'naps'" in lack
    assert of(RunResumed, store.events(run_id)) == []
    process = worker(store, home)
    await until(store, run_id, "succeeded")
    stop(process, signal.SIGTERM)
    assert lacks_of(store, run_id) == {}


async def test_a_run_that_was_put_back_is_not_taken_again_at_once(store: PostgresStore, home: Path, away: Path) -> None:
    await submit(store, flow(home).plan, {})
    assert len(await drained(store)) == 1
    with psycopg.connect(store.url) as connection:
        connection.execute("SET search_path = flowengine_queue")
        put_back = "SELECT max(at) FROM procrastinate_events WHERE type = 'deferred_for_retry'"
        query = f"SELECT extract(epoch FROM scheduled_at - ({put_back})), attempts FROM procrastinate_jobs"
        ((pause, attempts),) = connection.execute(query.encode()).fetchall()
    assert 0.4 < pause / 2 ** (attempts - 1) <= 1


async def test_a_run_that_asks_for_a_module_which_is_not_allowed_here_is_left(
    store: PostgresStore, home: Path, away: Path
) -> None:
    (home / "flowengine.toml").write_text('allow_calls = ["naps"]\n')
    (away / "flowengine.toml").write_text('allow_calls = ["others"]\n')
    (away / "naps.py").write_text(NAPS)
    await submit(store, flow(home).plan, {})
    [told] = await drained(store)
    assert "FE504" in told
    assert "the module 'naps' is not allowed" in told


async def test_a_run_whose_function_is_another_one_here_is_left(store: PostgresStore, home: Path, away: Path) -> None:
    run_id = await submit(store, flow(home).plan, {})
    (away / "naps.py").write_text(NAPS.replace("return result", "return result * 2"))
    [told] = await drained(store)
    assert "lacks the functions that 'first', 'sleep' called when the run was submitted: others are here" in told
    (away / "naps.py").write_text(f"# Only a comment is new.\n{NAPS}")
    said: list[str] = []
    with anyio.fail_after(60):
        while not said:  # It is offered again after a second at most, or later where that was done once already.
            await anyio.sleep(0.1)
            said = await drain(store)
    assert said[-1] == f"run {run_id} succeeded"


async def test_a_run_may_be_told_to_go_on_with_other_functions(store: PostgresStore, home: Path, away: Path) -> None:
    run_id = await submit(store, flow(home).plan, {})
    (away / "naps.py").write_text(NAPS.replace("return result", "return result * 2"))
    await drain(store)
    with pytest.raises(JournalError, match="is in a queue already"):
        await requeue(store, run_id)
    await requeue(store, run_id, allow_changed=True)
    await drain(store)
    finished = store.events(run_id)[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outputs == {"said": "oneone twotwo"}


async def test_a_run_of_a_newer_flowengine_is_left(store: PostgresStore, home: Path) -> None:
    os.chdir(home)
    run_id = await submit(store, flow(home).plan, {})
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("UPDATE flowengine.event SET body = replace(body, '[1,\"RunStarted\"', '[9,\"RunStarted\"')")
    [told] = await drained(store)
    assert told.startswith(f"run {run_id} is left to others: this worker lacks")
    assert "written by a newer FlowEngine" in told


async def test_a_flow_that_is_read_otherwise_here_is_left(store: PostgresStore, home: Path, away: Path) -> None:
    (away / "naps.py").write_text(NAPS)
    await submit(store, flow(home).plan, {})
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("UPDATE flowengine.event SET body = replace(body, 'flowengine: v1', 'flowengine: v1 #')")
        connection.execute("UPDATE flowengine.event SET body = replace(body, 'result: two', 'result: three')")
    [told] = await drained(store)
    assert "lacks FlowEngine" in told


async def test_a_run_that_needs_a_key_is_left_to_a_worker_that_has_it(
    store: PostgresStore, home: Path, away: Path
) -> None:
    write(home, ask="flowengine: v1\nname: ask\nnodes: {a: {prompt: Go., model: gpt-4o-mini}}\n")
    await submit(store, Flow.from_yaml(home / "ask.yaml", environ={}).plan, {})
    [told] = await drained(store, environ={})
    assert "needs a key: set OPENAI_API_KEY" in told


@pytest.mark.long
async def test_a_run_that_its_workers_die_of_is_given_up(store: PostgresStore, home: Path) -> None:
    run_id = await submit(store, flow(home, code=FATAL).plan, {"seconds": 1})
    for _ in range(2):
        process = worker(store, home, takeovers=1)
        with anyio.fail_after(40):
            assert await anyio.to_thread.run_sync(process.wait) == -signal.SIGKILL
        process.communicate()
    process = worker(store, home, takeovers=1)
    await until(store, run_id, "failed")
    said, _ = stop(process, signal.SIGTERM)
    finished = store.events(run_id)[-1]
    assert isinstance(finished, RunFinished)
    assert finished.error is not None
    assert finished.error.message.startswith("given up after 1 takeovers, last in node 'sleep'")
    assert f"run {run_id} failed: given up after 1 takeovers" in said
    assert [event.node for event in of(NodeFinished, store.events(run_id))] == ["first"]


@pytest.mark.long
async def test_a_run_whose_code_kills_whoever_loads_it_is_given_up(store: PostgresStore, home: Path) -> None:
    run_id = await submit(store, flow(home).plan, {})
    (home / "naps.py").write_text(f"import os\nos.kill(os.getpid(), 9)\n{NAPS}")
    process = worker(store, home, takeovers=0)
    with anyio.fail_after(40):
        assert await anyio.to_thread.run_sync(process.wait) == -signal.SIGKILL
    process.communicate()
    process = worker(store, home, takeovers=0)
    await until(store, run_id, "failed")
    said, _ = stop(process, signal.SIGTERM)
    assert "given up after 0 takeovers: each worker that loaded the flow's code died of it" in said


@pytest.mark.long
async def test_a_run_that_was_put_back_again_and_again_is_not_given_up(store: PostgresStore, home: Path) -> None:
    run_id = await submit(store, flow(home, code=UNTIL_TOLD).plan, {"seconds": 2})
    for _ in range(2):
        process = worker(store, home, takeovers=0)
        await anyio.to_thread.run_sync(await_node, store, run_id, "sleep")
        stop(process, signal.SIGTERM)
    os.chdir(home)
    (home / "go").touch()
    told = await drain(store, takeovers=0)
    assert told[-1] == f"run {run_id} succeeded"


def _no_module(name: str) -> None: ...


async def test_a_run_that_needs_an_extra_is_left_to_a_worker_that_has_it(
    store: PostgresStore, home: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (home, away):
        (folder / "flowengine.toml").write_text('allow_mcp = ["server"]\n')
    write(home, ask=ASKS_A_SERVER)
    await submit(store, Flow.from_yaml(home / "ask.yaml").plan, {})
    monkeypatch.setattr(mcp_client, "find_spec", _no_module)
    [told] = await drained(store)
    assert "pip install 'flowengine-dag[mcp]'" in told


async def test_a_job_that_says_more_than_this_worker_knows_is_left(
    store: PostgresStore, home: Path, away: Path
) -> None:
    run_id = await submit(store, flow(home).plan, {})
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("SET search_path = flowengine_queue")
        connection.execute("""UPDATE procrastinate_jobs SET args = args || '{"gently": true}'""")
    [told] = await drained(store)
    assert told.startswith(f"run {run_id} is left to others: this worker lacks the FlowEngine that knows what 'gently'")


async def test_a_run_of_python_objects_is_not_put_into_a_queue(store: PostgresStore) -> None:
    await Flow("f", {"a": FunctionNode(print)}).run(store=store, run_id="r1")
    with pytest.raises(DefinitionError, match="made of Python objects, which no worker has"):
        await requeue(store, "r1")
