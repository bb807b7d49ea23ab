"""A folder with a few flows and the code that they call, and the command line run in this process."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from flowengine.cli.main import main

STEPS = """
import os, time
import anyio

def shout(text="hello"):
    print("a print of the flow's code")
    return text.upper()

def add(a, b):
    return {"sum": a + b}

def fail_unless_mended():
    if not os.path.exists("mended"):
        raise ValueError("broken \\x1b[31mred")
    return "mended"

def count():
    with open("counted", "a") as file:
        file.write("x")
    return "once"

async def sleep(seconds):
    open("asleep", "w").close()
    try:
        await anyio.sleep(seconds)
    finally:
        open("cleaned", "w").close()
    return "awake"

def block(seconds):
    open("asleep", "w").close()
    time.sleep(seconds)

async def hog(seconds):
    open("asleep", "w").close()
    time.sleep(seconds)

def hostile():
    return "ok\\x1b]0;owned\\x07[bold]\\u202e"

def leave():
    raise SystemExit(7)
"""

FLOWS = {
    "shout": """
        flowengine: v1
        name: shout
        inputs:
          text: {type: string, default: hello}
        nodes:
          shout: {type: function, call: "steps:shout", with: {text: "{{ inputs.text }}"}}
        outputs:
          loud: "{{ nodes.shout.output }}"
        """,
    "typed": """
        flowengine: v1
        name: typed
        inputs:
          n: {type: integer, description: how many}
          half: {type: number, default: 0.5}
          on: {type: boolean, default: false}
          items: {type: array, default: []}
          map: {type: object, default: {}}
          any: {schema: {type: [integer, "null"]}, default: null}
        nodes:
          add: {type: function, call: "steps:add", with: {a: "{{ inputs.n }}", b: "{{ inputs.n }}"}}
        outputs:
          total: "{{ nodes.add.output.sum }}"
          items: "{{ inputs.items }}"
          on: "{{ inputs.on }}"
          poem: "one\\ntwo"
        """,
    "fragile": """
        flowengine: v1
        name: fragile
        nodes:
          count: {type: function, call: "steps:count"}
          fragile: {type: function, call: "steps:fail_unless_mended", needs: [count]}
          after: {type: function, call: "steps:shout", with: {text: hi}, needs: [fragile]}
        outputs:
          state: "{{ nodes.fragile.output }}"
        """,
    "sleep": """
        flowengine: v1
        name: sleep
        inputs:
          seconds: {type: number, default: 60}
        nodes:
          count: {type: function, call: "steps:count"}
          sleep: {type: function, call: "steps:sleep", with: {seconds: "{{ inputs.seconds }}"}, needs: [count]}
        outputs:
          state: "{{ nodes.sleep.output }}"
        """,
    "hostile": """
        flowengine: v1
        name: hostile
        nodes:
          hostile: {type: function, call: "steps:hostile"}
        """,
    "leave": """
        flowengine: v1
        name: leave
        nodes:
          leave: {type: function, call: "steps:leave"}
        """,
    "agents": """
        flowengine: v1
        name: agents
        nodes:
          one: {instructions: Say one thing., prompt: First words.}
          two: {instructions: Say one thing., prompt: Second words.}
        """,
    "context": """
        flowengine: v1
        name: context
        nodes:
          one:
            prompt: First words.
            context: [fixed_file: {file_path: long.txt}, conversation]
            context_budget: 60
        """,
    "bad": """
        flowengine: v1
        name: bad
        nodes:
          a: {type: functio}
          b: {prompt: "{{ nodes.zz.output }}"}
        """,
}


class Said(NamedTuple):
    """What a command line gave."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the flows in it and nothing of the surroundings."""
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "long.txt").write_text("A line of a long file.\n" * 50)
    for name, text in FLOWS.items():
        (tmp_path / f"{name}.yaml").write_text(textwrap.dedent(text).lstrip())
    monkeypatch.chdir(tmp_path)
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEBUG", "FLOWENGINE_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "offline")
    return tmp_path


@pytest.fixture
def flowengine(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    def run(*argv: str) -> Said:
        code = main(argv)
        captured = capsysbinary.readouterr()
        return Said(code, captured.out.decode(), captured.err.decode())

    return run
