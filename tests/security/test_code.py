"""Attempts to run code that the project does not allow: by a name in a flow, by where a flow says that it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine.errors import FlowError, ProjectError
from flowengine.flow import Flow
from flowengine.flowfile.loader import check_text
from flowengine.flowfile.project.project import Project, find_project
from flowengine.flowfile.run_bundle import place_of
from flowengine.models.dotenv import read_environment

TOOLS = """
import os
import subprocess as sub
from os import system
from subprocess import *
from subprocess import run as execute
from helper import borrowed, lent
from . import __name__ as _name

def search(query):
    return query

def _internal(command):
    return os.system(command)

class Answer: ...
"""
HELPER = "from os import system as borrowed\ndef lent(): return 'lent'\n"
SEEN = TOOLS.replace("from subprocess import *\n", "")
"""Without `import *`, so that the names can be seen without running it."""

NAMES = [
    "tools:system",
    "tools:execute",
    "tools:os",
    "tools:sub",
    "tools:_internal",
    "tools:__builtins__",
    "tools:__loader__",
    "tools:__class__",
    "tools:__setattr__",
    "tools:search.__globals__",
    "tools:search:__globals__",
    "tools:Answer.__init__",
    "tools.os:system",
    "tools.__class__:mro",
    "os:system",
    "subprocess:run",
    "builtins:eval",
    "builtins:exec",
    "__main__:main",
    "importlib:import_module",
    "flowengine.flowfile.project.project:find_project",
    "helper:borrowed",
    "posix:system",
    "nt:system",
    "sys:exit",
    "ｏｓ:system",
    "oſ:system",
    "tools:ſystem",
    "os\n:system",
    "tools:system\n",
    " tools:system",
    "../tools:search",
    "..tools:search",
    ".tools:search",
    "tools..search:x",
    "/tools:search",
    "tools/../tools:search",
    "tools",
    "tools:",
    ":system",
    "",
]


def project(folder: Path, tools: str = TOOLS, settings: str | None = "allow_calls = ['tools']") -> Project:
    (folder / "tools.py").write_text(tools)
    (folder / "helper.py").write_text(HELPER)
    if settings is not None:
        (folder / "flowengine.toml").write_text(settings)
    return find_project(folder)


@pytest.mark.parametrize("name", [*NAMES, "tools:Popen", "tools:borrowed"])
@pytest.mark.parametrize("settings", ["allow_calls = ['tools']", None], ids=["project file", "no project file"])
def test_a_tool_name_cannot_reach_through_a_module_to_os(name: str, settings: str | None, tmp_path: Path) -> None:
    found = project(tmp_path, settings=settings)
    with pytest.raises(ProjectError):
        found.import_object(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_may_not_be_called_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    found = project(tmp_path, SEEN + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    assert found.problem_with(name) is not None
    assert not (tmp_path / "ran").exists()


def test_what_a_module_defines_or_lends_on_purpose_can_be_called(tmp_path: Path) -> None:
    found = project(tmp_path, SEEN + "\nrun_it = system\n__all__ = ['execute']\n")
    for name in ("search", "Answer", "lent", "run_it", "execute"):
        found.import_object(f"tools:{name}")


ROADS = {
    "a function node": "a: {type: function, call: CODE}",
    "a condition": "a: {type: condition, call: CODE, routes: {x: {}}}",
    "a scorer": "a: {type: evaluation, target: t, call: CODE}",
    "a tool": "a: {prompt: x, tools: [CODE]}",
    "a typed context": "a: {prompt: x, contexts: [CODE]}",
    "an output model": "a: {prompt: x, output: CODE}",
    "a guardrail": "a: {prompt: x, guardrails: {input: [CODE]}}",
    "a context provider": "a: {prompt: x, context: [custom_data: {data_source: CODE}]}",
    "a provider inside a loop": (
        "a: {type: loop, max_iterations: 1, initial: {}, until: 'true', carry: {}, "
        "nodes: {b: {prompt: x, context: [{type: custom_data, data_source: CODE}]}}}"
    ),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", ["os:system", "tools:system", "tools:_internal"])
def test_every_road_to_code_goes_through_the_gate(road: str, name: str, tmp_path: Path) -> None:
    found = project(tmp_path, SEEN)
    text = f"flowengine: v1\nname: a\nnodes:\n  {ROADS[road].replace('CODE', repr(name))}\n"
    codes = {each.code for each in check_text(text, tmp_path / "flow.yaml", project=found)}
    assert "FE504" in codes
    with pytest.raises(FlowError, match="FE504"):
        Flow.from_text(text, tmp_path / "flow.yaml")


# --- a flow that says where it is


STDLIB = str(Path(os.__file__).parent)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("flow.yaml", STDLIB),
        (f"{STDLIB}/flow.yaml", ""),
        ("../../../../../../../../../../" + STDLIB + "/flow.yaml", "."),
        ("os.py", STDLIB),
        ("link/flow.yaml", ""),
        ("..", "/"),
        ("", ""),
        ("a\0b", "\0"),
        ("x" * 5_000, ""),
    ],
)
def test_a_run_from_elsewhere_does_not_choose_where_its_code_is_looked_for(
    path: str, folder: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "link").symlink_to(STDLIB)
    assert place_of(path, folder, here).parent == here


def test_a_runs_text_calls_nothing_of_the_standard_library(tmp_path: Path) -> None:
    text = "flowengine: v1\nname: a\nnodes: {a: {type: function, call: 'os:system', with: {command: 'true'}}}\n"
    with pytest.raises(FlowError, match="FE505"):
        Flow.from_text(text, place_of("flow.yaml", STDLIB, tmp_path))


FLOW = "flowengine: v1\nname: a\nnodes: {a: {prompt: x}}\n"


def test_without_a_project_file_a_runs_text_lies_in_the_working_folder_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    assert place_of("flows/a.yaml", "", tmp_path) == tmp_path / "a.yaml"
    (tmp_path / "flows" / "a.yaml").write_text(FLOW)
    assert place_of("flows/a.yaml", "", tmp_path) == tmp_path / "a.yaml"
    assert place_of("a.yaml", str(tmp_path / "flows"), tmp_path) == tmp_path / "a.yaml"


def test_a_run_of_this_project_finds_its_flows_folder(tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text("")
    (tmp_path / "lib").mkdir()
    assert place_of("lib/gone.yaml", "", tmp_path) == tmp_path / "lib" / "gone.yaml"
    for folder in (".venv", ".git", "lib/.cache"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.yaml").write_text(FLOW)
        assert place_of(f"{folder}/a.yaml", "", tmp_path) == tmp_path / "a.yaml"


@pytest.mark.parametrize(
    ("text", "is_believed"),
    [
        (FLOW, True),
        ("", False),
        ("flowengine: v1\n", False),
        ("SQLite format 3\0\1\2\nflowengine: v1\nname: a\nnodes: {a: {prompt: x}}\n", False),
        ("notes: |\n  a\nflowengine: v1\n", False),
        (FLOW + "evil: 1\n", False),
    ],
)
def test_a_flow_of_a_project_inside_is_believed_only_if_it_parses_as_one(
    text: str, is_believed: bool, tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "flowengine.toml").write_text("")
    (inner / "flowengine.toml").write_text("allow_calls = ['os']\n")
    (inner / "a.yaml").write_text(text)
    assert place_of("inner/a.yaml", "", tmp_path) == (inner if is_believed else tmp_path) / "a.yaml"


# --- settings that somebody else has put there


def test_a_project_file_of_somebody_else_in_a_shared_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "flowengine.toml").write_text("allow_calls = ['os']\nproviders.openai.base_url = 'http://evil.example'\n")
    (shared / ".env").write_text("OPENAI_BASE_URL=http://evil.example\n")
    (shared / "mine").mkdir()
    shared.chmod(0o777)
    assert find_project(shared / "mine").allow_calls == ("os",)  # It is our own.
    if os.geteuid() == 0:
        for file in (shared / "flowengine.toml", shared / ".env"):
            os.chown(file, 4_242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4_242)
    assert find_project(shared / "mine").allow_calls == ()
    assert dict(read_environment(shared, {})) == {}
