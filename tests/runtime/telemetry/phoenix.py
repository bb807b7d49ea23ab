"""Spans in a real Arize Phoenix: `python -m tests.runtime.telemetry.phoenix`.

It installs a pinned version into an environment of its own, which takes minutes, and is no part of the default tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowengine.agents.agent import Agent
from flowengine.core.context import Context
from flowengine.flow import Flow
from flowengine.journal.stores import open_store
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, TokenUsage
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.telemetry.otel import send
from flowengine.runtime.telemetry.span_sender import sending_spans
from flowengine.runtime.telemetry.spans import spans_of
from tests.support.quiet_ports import quiet_port

PINNED = "arize-phoenix==20.26.1"
ASKED = """{ projects { edges { node { traceCount spans(first: 100) { edges { node {
    name spanKind tokenCountTotal costSummary { total { cost } } attributes
} } } } } } }"""


@contextmanager
def phoenix(folder: Path) -> Generator[str]:
    """A server on loopback, and its address."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([folder / "venv/bin/pip", "install", "--quiet", PINNED], check=True)
    ports = [str(quiet_port()) for _ in range(2)]
    own = {"PHOENIX_PORT": ports[0], "PHOENIX_GRPC_PORT": ports[1], "PHOENIX_HOST": "127.0.0.1"}
    rest = {"PHOENIX_WORKING_DIR": str(folder), "PHOENIX_TELEMETRY_ENABLED": "false"}
    with open(folder / "log", "wb") as log:
        command = [folder / "venv/bin/phoenix", "serve"]
        process = subprocess.Popen(command, env={**os.environ, **own, **rest}, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{ports[0]}"
        _await(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5)
            return
        except urllib.error.URLError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.5)


async def look(what: str) -> str:
    """Look something up."""
    return f"no {what}"


def spans_of_a_run() -> Any:
    answers = [
        ToolRequest("call-7", "look", '{"what": "tea"}'),
        Reply("There is no tea.", usage=TokenUsage(120, 30), cost_usd=0.25),
    ]
    model = ScriptedModel(answers, name="openai/gpt-4o-mini", provider="openai")
    agent = Agent("ask", "Be kind.", model=model, tools=[look])
    run = Flow("tea", {"ask": AgentNode(agent, prompt=lambda _: "Is there tea?")}).run_sync()
    assert run.status == "succeeded", run.error
    return spans_of(run.events, content=True)


def taken_in(url: str) -> tuple[int, list[dict[str, Any]]]:
    """How many traces there are, and their spans."""
    request = urllib.request.Request(f"{url}/graphql", json.dumps({"query": ASKED}).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        project = json.load(answer)["data"]["projects"]["edges"][0]["node"]
    return project["traceCount"], [each["node"] for each in project["spans"]["edges"]]


def stored(url: str, spans: int) -> tuple[int, dict[str, Any]]:
    """How many traces there are, and the spans by name, once so many have been taken in."""
    end = time.monotonic() + 60
    while True:
        traces, found = taken_in(url)
        if len(found) >= spans and any(each["costSummary"] for each in found):  # Costs are reckoned a little later.
            return traces, {each["name"]: each for each in found}
        assert time.monotonic() < end, f"{len(found)} of {spans} spans were taken in, or none has a cost"
        time.sleep(0.5)


def check_live_spans(url: str) -> None:
    """The call of a model is in the collector before its run has ended, and the whole run is one trace."""

    def wait(context: Context) -> bool:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if any(each["name"] == "chat live-model" for each in taken_in(url)[1]):
                return True
            time.sleep(0.2)
        return False

    before, told = taken_in(url)[0], list[str]()
    agent = Agent("ask", "Be kind.", model=ScriptedModel(["Tea."], name="openai/live-model", provider="openai"))
    nodes = {"ask": AgentNode(agent, prompt=lambda _: "Tea?"), "wait": FunctionNode(wait, needs=["ask"])}
    with sending_spans(open_store("memory:"), url, told.append, content=True) as store:
        run = Flow("live", nodes).run_sync(store=store)
    assert (run.outputs, told) == ({"wait": True}, [])
    end = time.monotonic() + 60
    while not any(each["name"] == "invoke_workflow live" for each in taken_in(url)[1]):
        assert time.monotonic() < end, "the end of the run does not arrive"
        time.sleep(0.2)
    assert taken_in(url)[0] == before + 1


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, phoenix(Path(folder)) as url:
        spans = spans_of_a_run()
        for _ in range(2):
            delivery = send([spans], url)
            assert (delivery.arrived, delivery.problem) == (len(spans), ""), delivery
            assert "405" in delivery.metrics_problem  # Phoenix takes no metrics.
        traces, found = stored(url, len(spans))
        assert (traces, len(found)) == (1, len({span.name for span in spans})), found
        chat = found["chat gpt-4o-mini"]
        said = json.loads(chat["attributes"])["llm"]
        assert chat["spanKind"] == "llm"
        assert "Be kind." in json.dumps(said["input_messages"])
        tool = json.loads(found["execute_tool look"]["attributes"])["tool"]
        assert (tool["name"], tool["id"], tool["parameters"]) == ("look", "call-7", {"what": "tea"})
        priced = [each for each in found.values() if each["costSummary"]]
        assert [each["tokenCountTotal"] for each in priced] == [150], priced
        assert priced[0]["costSummary"]["total"]["cost"] > 0
        check_live_spans(url)
    print(f"{PINNED}: one trace of {len(spans)} spans with prompts, calls, tokens, cost, sent twice; one as it ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
