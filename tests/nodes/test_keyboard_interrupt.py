"""`KeyboardInterrupt` raised by async code of a node: the run is interrupted, as by Ctrl-C, and can be resumed."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from flowengine.core.context import Context
from flowengine.engine.events import NodeCancelled, NodeFailed, NodeStarted, RunFinished
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("timeout", [None, 3600.0], ids=["", "with a timeout"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside others"])
def test_a_run_whose_node_raises_it_is_interrupted(backend: str, timeout: float | None, later: bool, beside: bool):
    interrupts = True

    async def interrupt(context: Context) -> str:
        if later:
            await anyio.lowlevel.checkpoint()
        if interrupts:
            raise KeyboardInterrupt
        return "well"

    async def other(context: Context) -> None:
        if interrupts:
            await anyio.sleep_forever()

    nodes = {"first": FunctionNode(one), "bad": FunctionNode(interrupt, needs=["first"], timeout=timeout)}
    if beside:
        nodes |= {f"n{number}": FunctionNode(other) for number in range(3)}
    flow, store = Flow("f", nodes), MemoryStore()
    with pytest.raises(BaseException) as caught:
        anyio.run(lambda: flow.run(store=store), backend=backend)
    assert type(caught.value) is KeyboardInterrupt  # The others have ended before it is raised.
    [info] = store.list()
    assert info.status == "cancelled"
    events = store.events(info.run_id)
    assert "bad" in [each.node for each in events if type(each) is NodeCancelled]
    assert not [each for each in events if type(each) is NodeFailed]
    interrupts = False
    run = anyio.run(lambda: flow.resume(info.run_id, store=store), backend=backend)
    assert run.nodes["bad"].output == "well"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_file", [False, True], ids=["in memory", "in a file"])
@pytest.mark.parametrize("is_inside", [False, True], ids=["at the top", "in a map"])
def test_it_comes_out_alone_when_all_beside_have_ended(tmp_path: Path, backend: str, is_file: bool, is_inside: bool):
    ended: list[str | None] = []

    async def act(context: Context) -> None:
        if context.current_node in ("bad", "map[1].one"):
            await anyio.wait_all_tasks_blocked()
            raise KeyboardInterrupt
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(context.current_node)

    nodes: dict[str, FlowNode] = {"other": FunctionNode(act)}
    if is_inside:
        nodes["map"] = MapNode({"one": FunctionNode(act)}, over=lambda context: [1, 2, 3])
    else:
        nodes["bad"] = FunctionNode(act)
    flow, store = Flow("f", nodes), SQLiteStore(tmp_path / "s.db") if is_file else MemoryStore()
    with pytest.raises(BaseException) as caught:
        anyio.run(lambda: flow.run(store=store), backend=backend)
    assert type(caught.value) is KeyboardInterrupt
    assert sorted(map(str, ended)) == (["map[0].one", "map[2].one", "other"] if is_inside else ["other"])
    with closing(store):
        [info] = store.list()
        events = store.events(info.run_id)
    cancelled = {each.node for each in events if type(each) is NodeCancelled}
    assert cancelled == {each.node for each in events if type(each) is NodeStarted}
    assert type(events[-1]) is RunFinished
    assert events[-1].status == "cancelled"


async def one(context: Context) -> int:
    return 1


FLOW = """
flowengine: v1
name: t
nodes:
  first: {type: function, call: "code:first"}
  bad: {type: function, call: "code:bad", needs: [first]}
  other: {type: function, call: "code:other", needs: [first]}
"""
CODE = """
import anyio

def first():
    return 1

async def other():
    await anyio.sleep(3600)

async def bad():
    await anyio.lowlevel.checkpoint()
    raise KeyboardInterrupt
"""


def test_the_command_says_that_the_run_was_interrupted_and_how_to_go_on(tmp_path: Path):
    (tmp_path / "f.yaml").write_text(FLOW)
    (tmp_path / "code.py").write_text(CODE)
    command = [sys.executable, "-m", "flowengine", "run", "f.yaml", "--run-id", "r1", "--store", "s.db"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-2:] == ["interrupted", "  to go on: flowengine resume r1 --store s.db"]
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
