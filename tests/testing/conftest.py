"""What the tests of the testing kit share: small flows, and the local model server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.flow import Flow

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from model_server import ModelServer  # found through the line above

TEA = """\
flowengine: v1
name: tea
inputs:
  who: {type: string, default: Ann}
nodes:
  ask:
    instructions: Ask what is drunk.
    prompt: "{{ inputs.who }}"
    model: openai/gpt-4o-mini
  pick:
    type: routing
    needs: [ask]
    model: openai/gpt-4o-mini
    instruction: Choose the pot.
    routes: {green: cool, black: hot, none: {}}
  cool: {instructions: Brew it at 80 degrees., model: anthropic/claude-haiku-4-5}
  hot: {instructions: Brew it at 100 degrees.}
outputs:
  cup: "{{ nodes.cool.output or nodes.hot.output }}"
"""

ANSWERS = {"ask": "Sencha.", "pick": {"next_route": "green", "confidence": 1}, "cool": "A cup of sencha."}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no default model, no mode from outside: the same on every machine."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "FLOWENGINE_DEFAULT_MODEL", "FLOWENGINE_CASSETTES", "CI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tea_text() -> str:
    return TEA


@pytest.fixture
def tea(tmp_path: Path) -> Flow:
    """A flow of four nodes whose models need keys that nobody has."""
    return Flow.from_text(TEA, tmp_path / "tea.yaml")


@pytest.fixture
def answers() -> dict[str, object]:
    return dict(ANSWERS)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running
