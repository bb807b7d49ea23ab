"""A folder with flows and a store, a server over them, and flows that count how often they run."""

from __future__ import annotations

import textwrap
from collections.abc import Generator
from pathlib import Path

import pytest

from flowengine.web.app import make_app
from tests.support.browser import browser
from tests.support.counted_flows import Counted
from tests.support.ui_server import Served, served

__all__ = ["browser"]

STEPS = """
import anyio
from flowengine import tool

@tool(effect="external", approve=True)
def refund(order: str, euros: int) -> str:
    return f"paid {euros} for {order}"

def shout(text="hello"):
    return text.upper()

def fail():
    raise ValueError("broken <script>window.owned=1</script>")

async def sleep(seconds=60):
    await anyio.sleep(seconds)
    return "awake"
"""

FLOWS = {
    "shout": """
        flowengine: v1
        name: shout
        description: Says it louder.
        inputs:
          text: {type: string, default: hello}
        nodes:
          shout: {type: function, call: "steps:shout", with: {text: "{{ inputs.text }}"}}
        outputs:
          loud: "{{ nodes.shout.output }}"
        """,
    "sleep": """
        flowengine: v1
        name: sleep
        nodes:
          first: {type: function, call: "steps:shout", with: {text: first}}
          sleep: {type: function, call: "steps:sleep", with: {seconds: "{{ 60 }}"}, needs: [first]}
        """,
    "fail": """
        flowengine: v1
        name: fail
        nodes:
          fail: {type: function, call: "steps:fail"}
        """,
    "ask": """
        flowengine: v1
        name: ask
        nodes:
          ask:
            type: approval
            message: "May it be published?"
            routes: {"yes": {to: publish, description: "It is **read** by all"}, "no": {}}
            form_for: ["yes"]
            form:
              type: object
              properties: {channel: {type: string, enum: [blog, mail]}}
              required: [channel]
          publish: {type: function, call: "steps:shout", with: {text: "{{ nodes.ask.output.choice }}"}}
        """,
    "pay": """
        flowengine: v1
        name: pay
        nodes:
          pay: {type: tool, tool: "steps:refund", with: {order: A-1, euros: 5}}
        """,
    "write": """
        flowengine: v1
        name: write
        nodes:
          write: {prompt: "Write a poem about bees, with many lines and many words.", model: offline}
        """,
    "bad": """
        flowengine: v1
        name: bad
        nodes:
          a: {type: functio}
        """,
}


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn serves on asyncio."""
    return "asyncio"


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the flows in it."""
    (tmp_path / "steps.py").write_text(STEPS)
    for name, text in FLOWS.items():
        (tmp_path / f"{name}.yaml").write_text(textwrap.dedent(text).lstrip())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "offline")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Generator[Served]:
    """A server over the store `runs.db` and the flows of the folder."""
    with served(make_app("sqlite:///runs.db", ["."], durability="process", by="ada")) as found:
        yield found
