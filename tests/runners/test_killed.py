"""kill -9 for real: a process that runs a ten-node flow is killed at twenty moments and resumed each time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from flowengine.engine.events import NodeFinished
from flowengine.flow import Flow
from flowengine.journal.stores import open_store

MOMENTS = 20

STEPS = '''
import os, time

def work(name, after, log):
    """Say that the node runs, take a moment, combine what came before."""
    with open(log, "a") as file:
        file.write(name + "\\n")
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.03)
    return name + "(" + ",".join(after) + ")"
'''

PARENTS = {"a": "", "b": "a", "c": "a", "d": "b", "e": "bc", "f": "c", "g": "de", "h": "ef", "i": "gh", "j": "i"}


def flow_text() -> str:
    lines = ["flowengine: v1", "name: ten", "inputs: {log: {type: string}}", "nodes:"]
    for name, parents in PARENTS.items():
        after = ", ".join(f'"{{{{ nodes.{parent}.output }}}}"' for parent in parents)
        given = f'{{name: {name}, after: [{after}], log: "{{{{ inputs.log }}}}"}}'
        lines += [f"  {name}:", "    type: function", "    call: steps:work", f"    with: {given}"]
    lines += ["outputs:", '  end: "{{ nodes.j.output }}"']
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    (folder / "ten.yaml").write_text(flow_text())
    (folder / "steps.py").write_text(STEPS)
    return folder


def executed(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def killed_at(project: Path, moment: int) -> tuple[str, Path]:
    """Start the flow, kill it once half a node has run more than the moment before; the store and the log."""
    store, log = f"sqlite:///{project}/{moment}.db", project / f"{moment}.log"
    command = [sys.executable, "-m", "flowengine", "run", "ten.yaml", "-i", f"log={log}", "--quiet"]
    process = subprocess.Popen(
        [*command, "--store", store, "--run-id", "k"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    deadline = time.monotonic() + 60
    while len(executed(log)) < moment // 2 + 1 and process.poll() is None:
        assert time.monotonic() < deadline, "the flow does not move"
        time.sleep(0.001)
    time.sleep(0.015 * (moment % 2))
    process.send_signal(signal.SIGKILL)
    assert process.stderr is not None
    told = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() in (-signal.SIGKILL, 0), told
    return store, log


def resumed_to_the_same_end(project: Path, moment: int, undisturbed: dict[str, str]) -> str:
    store, log = killed_at(project, moment)
    journal = open_store(store, "full")
    finished = [event.node for event in journal.events("k") if isinstance(event, NodeFinished)]
    journal.close()
    assert run_resumed(Flow.from_yaml(project / "ten.yaml"), store) == undisturbed, moment
    count = Counter(executed(log))
    twice = [node for node in finished if count[node] > 1]
    assert twice == [], f"moment {moment}: finished nodes ran again: {twice}"
    assert set(count) == set(PARENTS)
    assert sum(count.values()) <= len(PARENTS) + 3, "only nodes in flight, three at most, may run twice"
    return f"{len(finished)} finished"


def run_resumed(flow: Flow, store: str) -> dict[str, str]:
    async def resume() -> dict[str, str]:
        run = await flow.resume("k", store=store)
        assert run.status == "succeeded", run.error
        return dict(run.outputs)

    return anyio.run(resume)


def test_a_run_killed_at_twenty_moments_resumes_to_the_same_end_and_repeats_no_finished_node(project: Path):
    undisturbed = dict(Flow.from_yaml(project / "ten.yaml").run_sync({"log": str(project / "whole.log")}).outputs)
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda moment: resumed_to_the_same_end(project, moment, undisturbed), range(MOMENTS)))
    assert len(told) == MOMENTS
    assert len(set(told)) > 5, f"the moments must be spread over the run, were: {told}"
