"""What Python shows of the library itself: signatures, help texts and representations hold no environment."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flowengine
import visualize
from flowengine import Flow
from flowengine.agents.settings import Surroundings
from flowengine.flowfile.compile.compiler import load_plan
from flowengine.models.worst_case import ModelFacts

CANARY = "sk-canary-0123456789"
_ENTRANCES = {"flowengine.__main__", "visualize.__main__"}


def modules() -> Iterator[ModuleType]:
    for package in (flowengine, visualize):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name not in _ENTRANCES and ".examples" not in found.name:
                yield importlib.import_module(found.name)


def callables() -> Iterator[tuple[str, Any]]:
    """Every function, class and method that is defined in the library."""
    for module in modules():
        for name, each in list(vars(module).items()):
            if getattr(each, "__module__", None) != module.__name__:
                continue
            yield f"{module.__name__}.{name}", each
            if inspect.isclass(each):
                for method, function in list(vars(each).items()):
                    yield f"{module.__name__}.{name}.{method}", getattr(function, "__func__", function)


def defaults_of(function: Any) -> Iterator[Any]:
    yield from getattr(function, "__defaults__", None) or ()
    yield from (getattr(function, "__kwdefaults__", None) or {}).values()


def test_no_default_argument_is_an_environment():
    looked_at = 0
    for name, each in callables():
        for default in defaults_of(each):
            looked_at += 1
            if default is os.environ:  # An assertion would show it.
                pytest.fail(f"{name} has the environment as a default")
            assert not isinstance(default, Mapping) or not default, f"{name} has a filled mapping as a default"
    assert looked_at > 500


def test_what_holds_an_environment_does_not_show_it():
    holding = 0
    for name, each in callables():
        if not inspect.isclass(each):
            continue
        names = getattr(each, "_fields", ())
        assert not (isinstance(names, tuple) and "environ" in names), (
            f"{name} is a tuple, which shows all that it holds"
        )
        if dataclasses.is_dataclass(each):
            for field in dataclasses.fields(each):
                if "environ" in field.name:
                    holding += 1
                    assert not field.repr, f"{name}.{field.name} is shown"
    assert holding >= 3


def test_help_tells_no_value_of_the_environment():
    code = (
        "import pydoc, flowengine, flowengine.web.app as app, flowengine.runtime.queue.worker as worker\n"
        "import flowengine.agents.model_environment as models, flowengine.agents.tools.mcp.server_clients as mcp\n"
        "import flowengine.models.open as detect\n"
        "for name in flowengine.__all__:\n"
        "    print(pydoc.render_doc(getattr(flowengine, name), renderer=pydoc.plaintext))\n"
        "for each in (app, worker, models, mcp, detect):\n"
        "    print(pydoc.render_doc(each, renderer=pydoc.plaintext))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENAI_API_KEY": CANARY},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "from_yaml" in told.stdout
    assert CANARY not in told.stdout + told.stderr


def test_a_flow_and_all_that_hangs_on_it_show_no_value_of_the_environment(tmp_path: Path):
    path = tmp_path / "t.yaml"
    inner = tmp_path / "inner.yaml"
    inner.write_text("flowengine: v1\nname: inner\nnodes:\n  b: {type: agent, instructions: x, model: offline}\n")
    path.write_text(
        "flowengine: v1\nname: t\ninputs: {n: {type: array}}\nnodes:\n"
        "  a: {type: agent, instructions: x, model: offline}\n"
        "  s: {type: subflow, flow: inner.yaml, needs: [a]}\n"
        "  m:\n    type: map\n    over: inputs.n\n    nodes:\n"
        "      c: {type: agent, instructions: x, model: offline}\n"
    )
    environ = {"OPENAI_API_KEY": CANARY}
    flow = Flow.from_yaml(path, environ=environ)
    shown = "".join(repr(each) for each in reachable(flow))
    assert "AgentNode" in shown
    assert CANARY not in shown
    for each in (load_plan(path, environ=environ), Surroundings(environ), ModelFacts(environ)):
        assert CANARY not in repr(each)


def reachable(start: object) -> Iterator[object]:
    """The object and what its attributes hold, as far as it is the library's own; mappings and lists are entered."""
    seen: set[int] = set()
    waiting: list[object] = [start]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, str | bytes | int | float | ModuleType | type | None):
            continue
        seen.add(id(each))
        if isinstance(each, Mapping):
            waiting.extend(value for name, value in each.items() if name != "OPENAI_API_KEY")
        elif isinstance(each, list | tuple | set | frozenset):
            waiting.extend(each)
        else:
            yield each
            waiting.extend(value for name, value in vars_of(each).items() if "environ" not in name)


def vars_of(each: object) -> dict[str, Any]:
    slots = {name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())}
    return {**getattr(each, "__dict__", {}), **{name: getattr(each, name, None) for name in slots}}


@pytest.mark.parametrize("name", ["from_yaml", "from_text"])
def test_a_flow_looks_at_the_environment_of_the_moment_it_is_loaded_in(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "flowengine: v1\nname: t\nnodes:\n  a: {instructions: x, model: offline}\n"
    (tmp_path / "t.yaml").write_text(text)
    monkeypatch.setattr(os, "environ", {"NEW": "environment"})
    arguments = (tmp_path / "t.yaml",) if name == "from_yaml" else (text, tmp_path / "t.yaml")
    assert getattr(Flow, name)(*arguments).plan.environ == {"NEW": "environment"}
