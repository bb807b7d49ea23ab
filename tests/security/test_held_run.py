"""Attempts to hold the event loop by what a run is answered: by services, models, and servers of tools.

What is measured is the work of the loop's own thread, so a busy machine makes no alarm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from flowengine.core.file_values import FileValue
from flowengine.core.json_values import MAX_VALUES
from flowengine.flow import Flow
from flowengine.runtime.loop_watch import LIMIT, LoopHold, watch_this_loop
from flowengine.runtime.run import Run
from tests.support.model_server import ModelServer
from tests.support.odd_server import OddServer, say
from tests.support.pace import slowness

MOST: Final = 1.5 * LIMIT
"""Tests share the machine with others, which takes each more work than alone."""
LETTERS: Final = "a" * 40 + "!"
CODES: Final = "{type: object, properties: {codes: {type: array, items: {type: string, pattern: '^([a-z]+)+$'}}}}"
MANY: Final = 333_000


def run_watched(flow: Flow, store: Path) -> Run:
    """A run; nobody else may have to wait for it, in one of three tries: what others do beside only adds."""

    async def run() -> tuple[Run, list[LoopHold]]:
        holds: list[LoopHold] = []
        with watch_this_loop(holds.append):
            made = await flow.run(store=f"sqlite:///{store}")
        return made, holds

    worst: list[LoopHold] = []
    for _ in range(3):
        made, holds = anyio.run(run)
        worst = [hold for hold in holds if (hold.cpu_seconds or 0) > MOST * slowness()]
        if not worst:
            return made
    raise AssertionError(str(worst[0]))


ANSWERS: Final[Mapping[str, tuple[bytes, bool]]] = {
    "empty lists": (b"[" + b"[]," * MANY + b"[]]", True),
    "objects": (b"[" + b'{"a":1},' * 110_000 + b"1]", True),
    "one value more than is read": (b"[" + b"1," * MAX_VALUES + b"1]", True),
    "as many values as are read": (b"[" + b"1," * (MAX_VALUES - 1) + b"1]", False),
    "a text": (b'["' + b"a" * 999_000 + b'"]', False),
}
"""What a service answers, and whether it becomes a file."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    return tmp_path


def test_answers_of_a_service_hold_nobody_up(folder: Path) -> None:
    with OddServer() as server:
        (folder / "flowengine.toml").write_text(f'allow_http = ["{server.url}/"]\n')
        (folder / "get.yaml").write_text(
            f"flowengine: v1\nname: get\nnodes: {{get: {{type: http, url: '{server.url}/x'}}}}\n"
            "outputs: {body: '{{ nodes.get.output.body }}'}\n"
        )
        flow = Flow.from_yaml(folder / "get.yaml")
        for body, becomes_file in ANSWERS.values():
            server.routes["/x"] = partial(_say_json, body)
            found = run_watched(flow, folder / "runs.db").raise_for_status().outputs["body"]
            assert isinstance(found, FileValue) == becomes_file


def _say_json(body: bytes, handler: Any) -> None:
    say(handler, body, content_type="application/json")


SAID: Final[Mapping[str, tuple[str, str, str]]] = {
    "words": ("a b " * 500_000, "", "succeeded"),
    "one word": ("a" * 2_000_000, "", "succeeded"),
    "many values that fit": (json.dumps({"codes": ["a"] * 100_000}), CODES, "succeeded"),
    "few values that take long": (json.dumps({"codes": [LETTERS]}), CODES, "failed"),
    "many values that take long": (json.dumps({"codes": [LETTERS] * 2_000}), CODES, "failed"),
    "levels": ('{"codes":' + "[" * 100_000, CODES, "failed"),
}
"""What a model answers, the schema of its node, and how the run ends."""


@pytest.mark.parametrize("said", SAID)
def test_answers_of_a_model_hold_nobody_up(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    text, schema, status = SAID[said]
    output = schema and f", output: {schema}"
    (folder / "ask.yaml").write_text(
        f"flowengine: v1\nname: ask\nnodes: {{ask: {{model: openai/gpt-4o-mini, prompt: hi{output}}}}}\n"
        "outputs: {out: '{{ nodes.ask.output }}'}\n"
    )
    with ModelServer(lambda _: text) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        assert run_watched(Flow.from_yaml(folder / "ask.yaml"), folder / "runs.db").status == status
