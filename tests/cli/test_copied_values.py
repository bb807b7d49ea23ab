"""Commands that copy runs write values of users' classes as they were, also where the flow's code is not loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine.journal.run_export import pack_run
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.web.pages.chosen_runs import pack_runs

Command = Callable[..., Any]

SHOP = """
import enum, os
from dataclasses import dataclass
from typing import NamedTuple
from pydantic import BaseModel

class Color(enum.Enum):
    RED = "r"
class Level(enum.IntEnum):
    HIGH = 3
class Right(enum.Flag):
    READ = 1
    WRITE = 2
class Point(NamedTuple):
    x: int
    y: int
class Model(BaseModel):
    n: int
    inner: Point
@dataclass
class Order:
    n: int
    model: Model
    mail: str = "ada@example.jp"

def make():
    return {
        "order": Order(4, Model(n=3, inner=Point(1, 2))), "color": Color.RED, "level": Level.HIGH,
        "rights": Right.READ | Right.WRITE, "colors": {Color.RED}, "named": {Color.RED: [Point(5, 6)]},
    }

def look(v):
    if not os.path.exists("mended"):
        raise ValueError("not yet")
    order = v["order"]
    return [
        type(order).__name__, type(order.model).__name__, order.model.inner.y, v["color"] is Color.RED,
        v["level"] is Level.HIGH, Right.WRITE in v["rights"], v["colors"] == {Color.RED}, v["named"][Color.RED][0].x,
    ]
"""
FLOW = """
flowengine: v1
name: shop
nodes:
  a: {type: function, call: "shop:make"}
  b: {type: function, call: "shop:look", with: {v: "{{ nodes.a.output }}"}}
outputs: {o: "{{ nodes.b.output }}"}
"""
RIGHT = ["Order", "Model", 2, True, True, True, True, 5]


@pytest.fixture
def store(folder: Path) -> Path:
    """A store with a run whose values are of classes that only the process that made it has loaded."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "shop.yaml").write_text(FLOW)
    environ = {**os.environ, "FLOWENGINE_STORE": "sqlite:///shop.db"}
    command = [sys.executable, "-m", "flowengine", "run", "shop.yaml", "--run-id", "r"]
    assert subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False).returncode == 1
    for name in [each for each in sys.modules if each.endswith(".shop")]:  # Of a test before.
        del sys.modules[name]
    return folder / "shop.db"


def test_an_export_that_is_imported_goes_on_like_the_run_itself(flowengine: Command, folder: Path, store: Path) -> None:
    assert flowengine("runs", "export", "r", "-o", "r.jsonl", "--store", "sqlite:///shop.db").code == 0
    assert flowengine("runs", "import", "r.jsonl", "--store", "sqlite:///other.db").code == 0
    assert flowengine("runs", "export", "r", "-o", "again.jsonl", "--store", "sqlite:///other.db").code == 0
    lines = [Path(folder, name).read_text().splitlines() for name in ("r.jsonl", "again.jsonl")]
    assert lines[0][2:] == lines[1][2:]
    assert '"$dataclass"' in lines[0][3]
    with closing(SQLiteStore(store)) as kept:
        assert [line.rstrip("\n") for line in pack_runs(kept, ["r"])] == lines[0]  # As the viewer writes it.
    shown = flowengine("runs", "show", "r", "--store", "sqlite:///other.db")
    assert (shown.code, "ada@example.jp" in shown.out) == (0, False)
    (folder / "mended").touch()
    for url in ("sqlite:///other.db", "sqlite:///shop.db"):
        done = flowengine("resume", "r", "--json", "--store", url)
        assert (done.code, json.loads(done.out)["outputs"]) == (0, {"o": RIGHT})
    with closing(SQLiteStore(store)) as kept:  # Now that the classes are loaded, it is written as before.
        assert list(pack_run(list(kept.events("r"))[:4]))[1:] == lines[0][1:5]


def test_a_masked_export_keeps_the_classes_of_what_it_masks(flowengine: Command, folder: Path, store: Path) -> None:
    url = "sqlite:///shop.db"
    assert flowengine("runs", "export", "r", "--masked", "-o", "masked.jsonl", "--store", url).code == 0
    text = (folder / "masked.jsonl").read_text()
    assert "ada@example.jp" not in text
    assert '"$dataclass"' in text
    (folder / "mended").touch()
    assert flowengine("runs", "import", "masked.jsonl", "--store", "sqlite:///other.db").code == 0
    done = flowengine("resume", "r", "--json", "--store", "sqlite:///other.db")
    assert json.loads(done.out)["outputs"] == {"o": RIGHT}


def test_a_repair_takes_no_value_of_a_class_for_damage(flowengine: Command, store: Path) -> None:
    said = flowengine("runs", "repair", "--store", "sqlite:///shop.db")
    assert said.code == 0
    assert "1 run" in said.err
    assert "whole" in said.err
    assert not list(store.parent.glob("*repaired*"))
