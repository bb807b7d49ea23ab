"""The rule of the threat model that what comes from outside never raises what it may do: each place of it is tried."""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from mcp_types import Tool as ListedTool
from mcp_types import ToolAnnotations

from flowengine.agents.tools.mcp.listed_tools import describe
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.core.json_schema import find_misfits
from flowengine.flow import Flow
from flowengine.flowfile.project.project import Project, find_project
from flowengine.flowfile.run_bundle import unpack_bundle

ROOT = Path(__file__).parents[2]
HEADING = "## One rule: what comes from outside can never raise what it may do"


def read_places() -> dict[str, str]:
    """Place → the test that tries it, as the page has them."""
    page = (ROOT / "flowengine/docs/security.md").read_text("utf-8")
    part = page.partition(HEADING)[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row[-1].strip("`") for row in rows[1:]}


def test_each_place_of_the_rule_has_a_test_of_its_own_that_is_run() -> None:
    places = read_places()
    assert len(places) >= 12
    assert len(set(places.values())) == len(places)
    for place, tried in places.items():
        file, _, name = tried.partition("::")
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        found = [
            each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
        ]
        assert len(found) == 1, place
        marks = [ast.unparse(each) for each in found[0].decorator_list]
        assert not [each for each in marks if re.search(r"skip|xfail|\.long", each)], place


# --- Each place that is cheap to try, tried with texts of somebody outside: what he may do afterwards is in what he may
# do without them. The places that need servers, stores or clocks are tried by the tests that the page names.

Rights = set[str]
SECRET: Final = "a word that only this machine has"


def read_by_files(folder: Path, said: Any) -> Rights:
    """What a flow reads of this machine for a value of its file input."""
    (folder / "secret.txt").write_text(SECRET)
    (folder / "flow.yaml").write_text(
        "flowengine: v1\nname: f\ninputs: {doc: {type: string}}\n"
        "nodes: {inner: {type: subflow, flow: ./inner.yaml, with: {doc: '{{ inputs.doc | trim }}'}}}\n"
        "outputs: {out: '{{ nodes.inner.output.out }}'}\n"
    )
    (folder / "inner.yaml").write_text(
        "flowengine: v1\nname: i\ninputs: {doc: {type: file}}\n"
        "nodes: {read: {type: function, call: 'reading:read', with: {doc: '{{ inputs.doc }}'}}}\n"
        "outputs: {out: '{{ nodes.read.output }}'}\n"
    )
    (folder / "reading.py").write_text("def read(doc):\n    return doc.read_text()\n")
    run = Flow.from_yaml(folder / "flow.yaml").run_sync({"doc": said.format(folder=folder)})
    return {SECRET} if SECRET in f"{run.outputs} {run.error}" else set()


def allowed_by_baggage(folder: Path, said: Any) -> Rights:
    """What a project allows beside a run's baggage that says so."""
    (folder / "flowengine.toml").write_text('allow_calls = ["json"]\n')
    own = find_project(folder / "f.yaml")
    of_prices = {
        "providers",
        "default_provider",
        "prices",
    }  # What these may be is checked, so that nonsense is refused before all else.
    brought = {"project": {each.name: said for each in fields(Project) if each.name not in of_prices}, "path": "f.yaml"}
    project = unpack_bundle(brought, folder / "f.yaml", own).project
    of_the_run = {"providers", "default_provider", "prices", "memory", "allow_env"}
    """Of the run's own texts, of which variables its record has the values."""
    names = [each.name for each in fields(Project) if each.name not in of_the_run]
    return {name for name in names if getattr(project, name) != getattr(own, name)}


def spared_by_hints(folder: Path, said: Any) -> Rights:
    """Which words of a server of tools make its tool less than an external one."""
    tool = ListedTool.model_validate(
        {"name": "a", "input_schema": {"type": "object"}, "annotations": said}, by_name=True
    )
    (found,) = describe(McpServer(name="s", command="x"), [tool])
    return {found.effect} - {"external"}


def passed_by_schemas(folder: Path, said: Any) -> Rights:
    """What fits a pattern that takes for ever, and so must not."""
    return set() if find_misfits({"type": "string", "pattern": "^(a|a)*$"}, said) else {"it fits"}


ATTACKS: Final[dict[str, tuple[Callable[[Path, Any], Rights], Sequence[Any]]]] = {
    "a value for a `file` input, of a flow or a subflow": (
        read_by_files,
        ["{folder}/secret.txt", "secret.txt", "file://{folder}/secret.txt", "@secret.txt", "./../x/../secret.txt"],
    ),
    "the baggage of a run": (
        allowed_by_baggage,
        [
            ["os", "shutil"],
            True,
            {"x": {"command": "sh", "url": "http://evil.example"}},
            "/etc/runs.db",
            "http://evil.example",
        ],
    ),
    "the hints of a server of tools": (
        spared_by_hints,
        [
            ToolAnnotations(read_only_hint=True),
            ToolAnnotations(idempotent_hint=True),
            ToolAnnotations(destructive_hint=False, open_world_hint=False),
            None,
        ],
    ),
    "a value for a schema": (passed_by_schemas, ["a" * 60 + "!", "a" * 100_000 + "!"]),
}


@pytest.mark.parametrize("place", ATTACKS)
def test_what_is_said_from_outside_adds_no_right(place: str, tmp_path: Path) -> None:
    assert place in read_places()
    find_rights, texts = ATTACKS[place]
    for text in texts:
        assert find_rights(tmp_path, text) == set(), text


def test_what_is_read_is_seen(tmp_path: Path) -> None:
    """The attack on files would notice what it looks for."""
    content = base64.b64encode(SECRET.encode()).decode()
    assert read_by_files(tmp_path, f"data:text/plain;base64,{content}") == {SECRET}
