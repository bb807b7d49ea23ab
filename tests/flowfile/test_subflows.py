"""A flow that runs other files: each is opened once, checked, and never in a circle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.flowfile.checks.permissions import list_reach
from flowengine.flowfile.loader import check_file, check_text, load_flow
from flowengine.flowfile.project.project import find_project
from flowengine.flowfile.run_bundle import pack_bundle
from flowengine.journal.memory import MemoryStore
from flowengine.models.worst_case import ModelFacts

INNER = "flowengine: v1\nname: inner\ninputs: {question: {type: string}, most: {type: integer, default: 3}}\n"
BODY = "nodes: {a: {prompt: '{{ inputs.question }} {{ inputs.most }}'}}\noutputs: {notes: '{{ nodes.a.output }}'}\n"


def outer(*nodes: str) -> str:
    return "flowengine: v1\nname: outer\nnodes:\n" + "".join(f"  {each}\n" for each in nodes)


def runs(flow: str, given: str = "{question: x}") -> str:
    return f"s: {{type: subflow, flow: {flow}, with: {given}}}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "flowengine.toml").touch()
    (tmp_path / "inner.yaml").write_text(INNER + BODY)
    return tmp_path


def told(root: Path, text: str) -> list[str]:
    """What is wrong with a flow of this folder, files by their names alone."""
    file = root / "outer.yaml"
    file.write_text(text)
    return [str(each).replace(f"{root}{os.sep}", "") for each in check_file(file)]


@pytest.mark.parametrize(
    ("limits", "status"), [("{timeout: 60s}", "paused"), ("{timeout: 60s, on_limit: fail}", "failed")]
)
def test_the_file_says_what_happens_at_a_limit_where_the_node_does_not(root: Path, limits: str, status: str) -> None:
    limited = INNER + "limits: {model_calls: 1, on_limit: pause}\n" + BODY.replace("{a:", "{b: {prompt: x}, a:")
    (root / "inner.yaml").write_text(limited)
    node = runs("./inner.yaml").removesuffix("}") + f", limits: {limits}}}"
    flow = Flow.from_text(outer(node), root / "outer.yaml", model="offline")
    assert flow.run_sync(store=MemoryStore()).status == status


def test_the_flow_inside_is_loaded_with_the_one_that_runs_it(root: Path) -> None:
    file = root / "outer.yaml"
    file.write_text(outer(runs("./inner.yaml"), "t: {prompt: '{{ nodes.s.output.notes }}'}"))
    spec = load_flow(file)
    inner = spec.subflows["./inner.yaml"]
    assert (inner.name, inner.path) == ("inner", root / "inner.yaml")
    assert list(inner.outputs) == ["notes"]


def test_a_flow_without_outputs_gives_those_of_its_last_nodes(root: Path) -> None:
    (root / "flowengine.toml").write_text('allow_calls = ["counted"]\n')
    (root / "counted.py").write_text("def five() -> int:\n    return 5\n")
    (root / "open.yaml").write_text(
        "flowengine: v1\nname: open\nnodes: {last: {type: function, call: 'counted:five'}}\n"
    )
    text = outer("s: {type: subflow, flow: open.yaml}") + "outputs: {x: '{{ nodes.s.output.last }}'}\n"
    assert told(root, text) == []
    assert Flow.from_text(text, root / "outer.yaml").run_sync(store=MemoryStore()).outputs == {"x": 5}


def test_its_outputs_are_known(root: Path) -> None:
    assert told(root, outer(runs("inner.yaml"), "t: {prompt: '{{ nodes.s.output.note }}'}")) == [
        "outer.yaml:5:19: FE306 node 't': the output of 's' has no field 'note'; did you mean 'notes'?"
    ]


def test_a_file_that_is_not_there(root: Path) -> None:
    assert told(root, outer(runs("./iner.yaml"))) == [
        "outer.yaml:4:28: FE225 node 's': there is no file 'iner.yaml'; did you mean 'inner.yaml'?"
    ]
    (root / "folder").mkdir()
    assert told(root, outer(runs("folder"))) == ["outer.yaml:4:28: FE225 node 's': 'folder' is no file"]
    assert "FE503" in told(root, outer(runs('"a\\0b"')))[0]
    assert "FE503" in told(root, outer(runs("a" * 5000)))[0]


def test_a_path_that_leads_nowhere_is_a_problem_like_others(root: Path) -> None:
    (root / "round.yaml").symlink_to(root / "round.yaml")
    assert [each.code for each in check_file(root / "round.yaml")] == ["FE101"]
    assert [each.code for each in check_file("a\0b.yaml")] == ["FE101"]
    assert "FE503" in told(root, outer(runs("round.yaml")))[0]


def test_a_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe.yaml")
    assert told(root, outer(runs("pipe.yaml"))) == [
        "outer.yaml:4:28: FE503 node 's': the path 'pipe.yaml' is neither a file nor a folder: a flow may not name it"
    ]


def test_a_file_that_is_too_large_is_not_read(root: Path) -> None:
    with (root / "large.yaml").open("wb") as large:
        large.truncate(10**12)
    [found] = told(root, outer(runs("large.yaml")))
    assert found == "large.yaml:1:1: FE102 the file has 1,000,000,000,000 bytes; it may have 1,000,000"


@pytest.mark.parametrize("flow", ["../other.yaml", "inner/../../other.yaml", "/etc/passwd", "link.yaml"])
def test_a_file_outside_of_the_project(root: Path, flow: str) -> None:
    inside = root / "project"
    inside.mkdir()
    (inside / "flowengine.toml").touch()
    (root / "other.yaml").write_text(INNER + BODY)
    (inside / "link.yaml").symlink_to(root / "other.yaml")
    [found] = told(inside, outer(runs(flow)))
    assert "outer.yaml:4:28: FE503" in found


def test_paths_start_in_the_folder_of_their_own_file(root: Path) -> None:
    (root / "deep").mkdir()
    (root / "deep" / "one.yaml").write_text(outer(runs("two.yaml")).replace("outer", "one"))
    (root / "deep" / "two.yaml").write_text(outer(runs("../inner.yaml")).replace("outer", "two"))
    assert told(root, outer(runs("deep/one.yaml", "{}"))) == [
        "deep/one.yaml:4:45: FE228 node 's': the flow 'two' has no input 'question'",
    ]


def test_flows_that_run_each_other(root: Path) -> None:
    assert told(root, outer(runs("./outer.yaml"))) == [
        "outer.yaml:4:28: FE226 node 's': the flows run each other without an end: outer.yaml → outer.yaml"
    ]
    (root / "b.yaml").write_text(outer(runs("c.yaml", "{}")).replace("outer", "b"))
    (root / "c.yaml").write_text(outer(runs("b.yaml", "{}")).replace("outer", "c"))
    assert told(root, outer(runs("b.yaml", "{}"))) == [
        "c.yaml:4:28: FE226 node 's': the flows run each other without an end: b.yaml → c.yaml → b.yaml"
    ]
    (root / "c.yaml").unlink()
    (root / "c.yaml").symlink_to(root / "b.yaml")
    assert "FE226" in told(root, outer(runs("b.yaml", "{}")))[0]


def chain(root: Path, length: int) -> str:
    """A flow with so many files below each other."""
    for number in range(1, length):
        text = outer(runs(f"n{number + 1}.yaml", "{}")).replace("outer", f"n{number}")
        (root / f"n{number}.yaml").write_text(text)
    (root / f"n{length}.yaml").write_text("flowengine: v1\nname: last\nnodes: {a: {prompt: x}}\n")
    return outer(runs("n1.yaml", "{}"))


def test_seventeen_files_in_one_another(root: Path) -> None:
    assert told(root, chain(root, 16)) == []
    assert told(root, chain(root, 17)) == [
        "n16.yaml:4:28: FE227 node 's': subflows may be nested 16 deep, and this is one more"
    ]


def test_depth_is_counted_on_every_way(root: Path) -> None:
    """A file that was opened high up may be too deep further down."""
    chain(root, 10)
    for number in range(1, 8):
        text = outer(runs(f"m{number + 1}.yaml", "{}")).replace("outer", f"m{number}")
        (root / f"m{number}.yaml").write_text(text)
    (root / "m8.yaml").write_text(outer(runs("n1.yaml", "{}")).replace("outer", "m8"))
    text = outer(runs("n1.yaml", "{}"), runs("m1.yaml", "{}").replace("s:", "t:"))
    assert told(root, text) == [
        "m8.yaml:4:28: FE227 node 's': subflows may be nested 16 deep, and 'n1.yaml' goes deeper"
    ]


def test_a_file_that_many_nodes_run_is_opened_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 13):
        nodes = [f"{name}: {{type: subflow, flow: d{number + 1}.yaml}}" for name in ("a", "b")]
        (root / f"d{number}.yaml").write_text(outer(*nodes).replace("outer", f"d{number}"))
    (root / "d13.yaml").write_text("flowengine: v1\nname: last\nnodes: {a: {prompt: x}}\n")
    opened: list[Path] = []
    open_file = Path.open

    def opening(path: Path, mode: str = "r", **named: Any) -> Any:
        opened.extend([path] if mode == "rb" else [])
        return open_file(path, mode, **named)

    monkeypatch.setattr(Path, "open", opening)
    assert told(root, outer(runs("d1.yaml", "{}"))) == []
    assert len(opened) == 14


def test_a_flow_may_bring_along_two_hundred_files(root: Path) -> None:
    for number in range(201):
        (root / f"f{number}.yaml").write_text("flowengine: v1\nname: f\nnodes: {a: {prompt: x}}\n")
    nodes = [f"s{number}: {{type: subflow, flow: f{number}.yaml}}" for number in range(201)]
    assert told(root, outer(*nodes[:200])) == []
    [found] = told(root, outer(*nodes))
    assert found.startswith("outer.yaml:204:")
    assert "FE227" in found


def test_files_that_run_each_other_often_have_a_bound_of_nodes(root: Path) -> None:
    for number in range(1, 9):
        nodes = [f"s{each}: {{type: subflow, flow: d{number + 1}.yaml}}" for each in range(6)]
        (root / f"d{number}.yaml").write_text(outer(*nodes).replace("outer", f"d{number}"))
    (root / "d9.yaml").write_text("flowengine: v1\nname: last\nnodes: {a: {prompt: x}}\n")
    [found] = told(root, outer(runs("d1.yaml", "{}")))
    assert found.startswith("d3.yaml:5:")
    assert "FE227" in found
    assert "20,000 nodes with those of its subflows" in found


def test_texts_of_files_that_run_each_other_often_have_a_bound(root: Path) -> None:
    """Few nodes may say much, each time anew."""
    (root / "long.md").write_text("word " * 100_000)
    (root / "d2.yaml").write_text("flowengine: v1\nname: last\nnodes: {a: {prompt: {file: long.md}}}\n")
    twice = [f"s{each}: {{type: subflow, flow: d2.yaml}}" for each in range(2)]
    (root / "d1.yaml").write_text(outer(*twice).replace("outer", "d1"))
    nodes = [f"s{each}: {{type: subflow, flow: d1.yaml}}" for each in range(9)]
    assert told(root, outer(*nodes[:7])) == []
    assert told(root, outer(*nodes)) == [
        "outer.yaml:11:29: FE227 node 's7': a flow may have 8,000,000 characters with those of its subflows, "
        "and here they are more"
    ]


def test_problems_inside_are_told_under_their_own_name(root: Path) -> None:
    (root / "inner.yaml").write_text(INNER + "nodes: {b: {prompt: '{{ inputs.qestion }}'}}\n")
    assert told(root, outer("a: {promt: x}", runs("inner.yaml"))) == [
        "outer.yaml:4:7: FE201 node 'a': unknown key 'promt'; did you mean 'prompt'?",
        "inner.yaml:4:25: FE303 node 'b': unknown input 'qestion'; did you mean 'question'?",
    ]
    with pytest.raises(FlowError):
        load_flow(root / "outer.yaml")


def test_warnings_inside_are_told_where_the_flow_is_checked_that_runs_it(root: Path) -> None:
    (root / "inner.yaml").write_text(INNER + "nodes: {b: {prompt: x}}\n")
    assert told(root, outer(runs("inner.yaml"))) == [
        "inner.yaml:3:10: warning FE905 nothing reads the input 'question'",
        "inner.yaml:3:36: warning FE905 nothing reads the input 'most'",
    ]
    assert [each.code for each in check_file(root / "inner.yaml")] == ["FE905", "FE905"]
    assert load_flow(root / "outer.yaml").name == "outer"


def test_inputs_that_do_not_fit(root: Path) -> None:
    assert told(root, outer(runs("inner.yaml", "{qestion: x}"))) == [
        "outer.yaml:4:47: FE228 node 's': the flow 'inner' has no input 'qestion'; did you mean 'question'?",
    ]
    assert told(root, outer("s: {type: subflow, flow: inner.yaml}")) == [
        "outer.yaml:4:3: FE228 node 's': the flow 'inner' needs 'question': give it in 'with'"
    ]
    assert told(root, outer(runs("inner.yaml", "{question: x, most: many}"))) == [
        "outer.yaml:4:66: FE228 node 's': the input 'most' of 'inner' is of type integer, found 'many'"
    ]
    assert told(root, outer(runs("inner.yaml", "{question: x, most: '{{ 1 + 1 }}'}"))) == []


def test_a_flow_that_came_as_text_starts_in_its_projects_root(root: Path) -> None:
    assert check_text(outer(runs("inner.yaml")), project=find_project(root)) == []


def test_a_subflow_inside_a_body_is_opened_as_well(root: Path) -> None:
    node = "m: {type: map, over: '[1]', nodes: {" + runs("inner.yaml", "{question: '{{ item }}'}") + "}}"
    assert told(root, outer(node)) == []
    assert "FE225 node 'm.s'" in told(root, outer(node.replace("inner", "other")))[0]


def test_a_subflow_reads_nothing_of_the_flow_that_runs_it(root: Path) -> None:
    (root / "inner.yaml").write_text(INNER + "nodes: {b: {prompt: '{{ nodes.t.output }}'}}\n")
    [found] = told(root, outer("t: {prompt: x}", runs("inner.yaml")))
    assert found.startswith("inner.yaml:4:25: FE305")


def test_files_that_share_files_are_looked_at_once_however_many_ways_lead_to_them(root: Path) -> None:
    for level in range(9):
        nodes = [f"n{each}: {{type: subflow, flow: ./f{level + 1}_{each}.yaml}}" for each in range(3)]
        inside = nodes if level < 8 else ["a: {prompt: x, model: nowhere/small}"]
        for each in range(3):
            text = f"flowengine: v1\nname: f\nnodes:\n  {chr(10).join(inside).replace(chr(10), chr(10) + '  ')}\n"
            (root / f"f{level}_{each}.yaml").write_text(text)
    found = check_file(root / "f0_0.yaml", models=ModelFacts({}))
    assert [each.code for each in found] == ["FE511"] * 3
    spec = load_flow(root / "f0_0.yaml")
    assert len(pack_bundle(spec, find_project(root), root)["files"]) == 24
    assert list_reach(spec, find_project(root)) == []
