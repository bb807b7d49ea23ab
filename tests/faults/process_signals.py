"""Ctrl-C and SIGTERM at any moment, once and twice; two resumes at once.

A signal ends a run in order: what it started is gone, the record says where it was, and the next command goes on
from there. Twice ends it at once, and nothing that it started outlives it. The subprocesses are real ones: a
server that speaks the Model Context Protocol, and a script of a skill.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from flowengine.agents.agent import Agent
from flowengine.agents.skills.sandbox.sandbox import Sandbox
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.cli.ending import INTERRUPTED, run_until_interrupted
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunResumed
from flowengine.flow import Flow
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from tests.faults.process_killed import load_all
from tests.faults.process_nursery import INTERRUPTED_EARLY, ROOT, Ended, Nursery, command

__all__ = [
    "check_interrupted",
    "check_orphans",
    "check_resumed_twice",
    "rows",
    "write_chain",
]

NODES: Final = 6
STORE: Final = ("--store", "runs.db")

STEPS: Final = """
import os, time

def work(number, seconds):
    with open("executed", "a") as file:
        file.write(f"n{number}\\n")
    time.sleep(seconds)
    return number

def wait(number):
    with open("executed", "a") as file:
        file.write(f"n{number}\\n")
    while not os.path.exists("go"):
        time.sleep(0.005)
    return number
"""


def write_chain(folder: Path, calls: Sequence[str] = ("work",) * NODES, seconds: float = 0.02) -> None:
    """A chain of nodes that say that they run."""
    lines = ["flowengine: v1", "name: chain", "nodes:"]
    for number, call in enumerate(calls):
        given = f"{{number: {number}, seconds: {seconds}}}" if call == "work" else f"{{number: {number}}}"
        needs = f", needs: [n{number - 1}]" if number else ""
        lines.append(f"  n{number}: {{type: function, call: 'steps:{call}', with: {given}{needs}}}")
    lines += ["outputs:", f'  last: "{{{{ nodes.n{len(calls) - 1}.output }}}}"']
    folder.joinpath("chain.yaml").write_text("\n".join(lines) + "\n")
    folder.joinpath("steps.py").write_text(STEPS)


def executed(folder: Path) -> Counter[str]:
    file = folder / "executed"
    return Counter(file.read_text().split() if file.exists() else ())


def until(what: Callable[[], object], why: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.002)


def events_of(folder: Path) -> list[Event]:
    if not (folder / "runs.db").exists():
        return []
    with closing(SQLiteStore(folder / "runs.db")) as store:
        return list(store.events("r1")) if any(run.run_id == "r1" for run in store.list()) else []


# --- a signal, or two ---------------------------------------------------------------------------


def check_interrupted(nursery: Nursery, folder: Path, numbers: Sequence[int], delay: float) -> str:
    """Send the signals so long after the command began, then resume; what became of the command."""
    write_chain(folder)
    child = nursery.start(command, folder, argv=["run", "chain.yaml", "--run-id", "r1", *STORE])
    time.sleep(delay)
    for number in numbers:
        if child.is_running():
            os.kill(child.pid, number)
    ended = child.ended()
    assert "Traceback" not in ended.err, ended.err
    events = events_of(folder)
    done = [event.node for event in events if isinstance(event, NodeFinished)]
    kind = check_told(ended, events)
    go_on = ["resume", "r1"] if events else ["run", "chain.yaml", "--run-id", "r1"]
    again = nursery.run(command, folder, argv=[*go_on, *STORE])
    assert (again.status, again.out) == (0, f"last: {NODES - 1}\n"), again
    ran = executed(folder)
    assert [node for node in done if ran[node] > 1] == [], f"{kind}: what had finished ran again"
    assert set(ran) == {f"n{number}" for number in range(NODES)}
    return kind


def check_told(ended: Ended, events: Sequence[Event]) -> str:
    """How the command ended, which its exit code, its words and the record agree about."""
    last = events[-1] if events else None
    if ended.status == 0:
        assert isinstance(last, RunFinished)
        assert last.status == "succeeded"
        return "had ended"
    if ended.status in (INTERRUPTED_EARLY, -signal.SIGTERM):
        return "when it had ended" if isinstance(last, RunFinished) else "before it could listen"
    assert ended.status == 130, ended
    if events and "to go on: flowengine resume r1 --store runs.db" in ended.err:
        assert isinstance(last, RunFinished), last
        assert last.status == "cancelled"
        return "in order"
    return "at once" if events else "before it began"


# --- what it started ----------------------------------------------------------------------------

SERVER: Final = ROOT / "tests" / "support" / "mcp_server.py"


def at_work(kind: str, mark: str) -> None:
    """Work of a child, as `flowengine run` does it: a node waits for a server's tool, or for a script, for an hour."""
    node = _asking(mark) if kind == "server" else FunctionNode(partial(_scripted, mark))
    flow = Flow("busy", {"node": node})
    with closing(SQLiteStore("runs.db")) as store:
        run = run_until_interrupted(lambda: flow.run(store=store, run_id="r1"))
    os._exit(INTERRUPTED if run is None else 0)


def _asking(mark: str) -> AgentNode:
    server = McpServer(name="test", command=sys.executable, args=[str(SERVER), "plain", mark])
    model = ScriptedModel([ToolRequest("1", "test_hang", "{}"), "done"])
    return AgentNode(Agent("clerk", "Ask.", model=model, mcp_servers=[server]), prompt=lambda _: "go")


async def _scripted(mark: str) -> str:
    outcome = await Sandbox(allow_unconfined=True).run(Path.cwd() / "skill", "wait.sh", [mark])
    return outcome.stdout


def marked(mark: str) -> list[int]:
    """Processes whose command line has the mark."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def check_orphans(nursery: Nursery, folder: Path, kind: str, numbers: Sequence[int]) -> None:
    """End a run that waits for a subprocess; nothing of it is left."""
    mark = f"{folder}/mark"
    # In a folder of its own: beside it the store's files come and go while the sandbox looks at the folder.
    folder.joinpath("skill").mkdir()
    folder.joinpath("skill", "wait.sh").write_text("#!/bin/sh\necho $1\nsleep 3600\n")
    child = nursery.start(at_work, folder, kind=kind, mark=mark)
    until(lambda: marked(mark) and _has_begun(folder), f"the {kind} does not start")
    for number in numbers:
        if child.is_running():
            os.kill(child.pid, number)
    ended = child.ended()
    assert ended.status == INTERRUPTED, ended
    assert "Traceback" not in ended.err, ended.err
    until(lambda: not marked(mark), f"left behind: {marked(mark)}", 10)


def _has_begun(folder: Path) -> bool:
    return any(isinstance(event, NodeStarted | NodeRecorded) for event in events_of(folder))


# --- two at once --------------------------------------------------------------------------------


def check_resumed_twice(nursery: Nursery, folder: Path, rivals: int = 2) -> None:
    """Of several `resume`s of one run, one goes on with it, and the others say who does."""
    write_chain(folder, ("work", "wait", "work"))
    child = nursery.start(command, folder, argv=["run", "chain.yaml", "--run-id", "r1", *STORE])
    until(lambda: executed(folder)["n1"], "the run does not come to its second node")
    os.kill(child.pid, signal.SIGKILL)
    child.ended()
    children = [nursery.start(command, folder, argv=["resume", "r1", *STORE]) for _ in range(rivals)]
    until(lambda: sum(each.is_running() for each in children) == 1, "they do not agree")
    (folder / "go").touch()
    ended = [each.ended() for each in children]
    assert sorted(each.status for each in ended) == [0, *[2] * (rivals - 1)], ended
    owner = next(each.pid for each, end in zip(children, ended, strict=True) if end.status == 0)
    for each in ended:
        assert "Traceback" not in each.err
        if each.status == 2:
            told = rf"error: run 'r1' is being written by (process {owner}; wait|another process, which has just begun)"
            assert re.match(told, each.err), each.err
    assert executed(folder) == {"n0": 1, "n1": 2, "n2": 1}
    events = events_of(folder)
    assert sum(isinstance(event, RunResumed) for event in events) == 1
    assert isinstance(events[-1], RunFinished)


# --- the table ----------------------------------------------------------------------------------


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "Ctrl-C and SIGTERM at random moments, once and twice", random_moments
    yield "Ctrl-C and SIGTERM while a server or a script is at work, once and twice: no orphans", orphans
    yield "several resumes of one run at once, twenty times", rivals


def random_moments(folder: Path) -> str:
    kinds: Counter[str] = Counter()
    draw = random.Random(3)
    with Nursery(load_all) as nursery:
        for each in range(200):
            place = folder / str(each)
            place.mkdir()
            numbers = draw.choices([signal.SIGINT, signal.SIGTERM], k=draw.choice([1, 1, 2]))
            kinds[check_interrupted(nursery, place, numbers, draw.uniform(0, 0.3))] += 1
    return str(dict(kinds))


def orphans(folder: Path) -> str:
    ways = [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT,) * 2, (signal.SIGTERM,) * 2]
    with Nursery(load_all) as nursery:
        for kind in ("server", "script"):
            for number, numbers in enumerate(ways * 3):
                place = folder / f"{kind}{number}"
                place.mkdir()
                check_orphans(nursery, place, kind, numbers)
    return f"{2 * 3 * len(ways)} runs"


def rivals(folder: Path) -> str:
    with Nursery(load_all) as nursery:
        for each in range(20):
            place = folder / str(each)
            place.mkdir()
            check_resumed_twice(nursery, place, 2 + each % 3)
    return "one owner each time"
