"""What `with` gives to a function is compared with what the function takes, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowengine.errors import FlowError, ProjectError
from flowengine.flow import Flow
from flowengine.flowfile.loader import check_file
from flowengine.flowfile.project.project import project_of

CODE = """
import functools

def search(query, limit=5): ...
async def save(text, *, folder): ...
def anything(first, **rest): ...
def with_context(text, context): ...
def nothing(): ...
def one(context): ...
def two(a, b): ...
@functools.cache
def decorated(a, b): ...
def twice(a): ...
def twice(b): ...
class Thing:
    def __init__(self, a): ...
found = search
"""


def told(folder: Path, node: str) -> list[str]:
    (folder / "tools.py").write_text(CODE)
    file = folder / "flow.yaml"
    file.write_text(f"flowengine: v1\nname: calls\nnodes:\n  f: {{type: function, call: {node}}}\n")
    return [str(each).rpartition("/")[2] for each in check_file(file)]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            "'tools:search', with: {limit: 3}",
            "flow.yaml:4:29: FE512 node 'f': the function needs 'query': give it in 'with'",
        ),
        (
            "'tools:search', with: {query: a, limt: 3}",
            "flow.yaml:4:62: FE512 node 'f': the function takes no argument 'limt'; did you mean 'limit'?",
        ),
        ("'tools:save', with: {text: a}", "FE512 node 'f': the function needs 'folder': give it in 'with'"),
        ("'tools:save'", "FE512 node 'f': the function needs 'text', 'folder': give it in 'with'"),
        ("'tools:anything', with: {other: a}", "FE512 node 'f': the function needs 'first': give it in 'with'"),
        ("'tools:nothing', with: {a: 1}", "FE512 node 'f': the function takes no argument 'a'"),
        ("'tools:two'", "FE512 node 'f': the function needs 'a', 'b': give it in 'with'"),
    ],
)
def test_arguments_that_are_missing_or_not_known(tmp_path: Path, node: str, expected: str):
    [found] = told(tmp_path, node)
    assert expected in found


@pytest.mark.parametrize(
    "node",
    [
        "'tools:search', with: {query: a}",
        "'tools:search'",
        "'tools:save', with: {text: a, folder: b}",
        "'tools:anything', with: {first: a, other: b}",
        "'tools:with_context', with: {text: a}",
        "'tools:nothing'",
        "'tools:one'",
        "'tools:decorated', with: {c: 1}",
        "'tools:twice', with: {c: 1}",
        "'tools:Thing', with: {b: 1}",
        "'tools:found', with: {b: 1}",
    ],
)
def test_nothing_is_said_of_what_fits_or_cannot_be_seen(tmp_path: Path, node: str):
    assert told(tmp_path, node) == []


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("def f():\n    import nowhere.at_all\n", "nowhere.at_all"),
        ("async def f():\n    'Docs.'\n    x = 1\n    from nowhere import it\n    return it\n", "nowhere"),
        ("import json, nowhere\ndef f(): ...\n", "nowhere"),
        ("def f():\n    import beside, json, package.part\n    from . import x\n", None),
        ("try:\n    import nowhere\nexcept ImportError:\n    nowhere = None\ndef f(): ...\n", None),
        ("def f():\n    try:\n        import nowhere\n    except ImportError: ...\n", None),
        ("def f():\n    if not f:\n        return\n    import nowhere\n", None),
        ("def g():\n    import nowhere\ndef f(): ...\n", None),
    ],
)
def test_a_module_that_a_function_is_sure_to_miss_is_told(code: str, missing: str | None, tmp_path: Path) -> None:
    (tmp_path / "beside.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "tools.py").write_text(code)
    file = tmp_path / "flow.yaml"
    for node, column in (("type: function, call: 'tools:f'", 29), ("prompt: x, tools: ['tools:f']", 26)):
        file.write_text(f"flowengine: v1\nname: calls\nnodes:\n  f: {{{node}}}\n")
        found = [str(each).rpartition("/")[2] for each in check_file(file)]
        text = f"flow.yaml:4:{column}: FE505 node 'f': 'tools:f' imports '{missing}', and there is no such module"
        assert found == ([text] if missing else [])


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ("{type: condition, call: 'tools:two', routes: {a: {}}}", "4:30"),
        ("{type: evaluation, target: x, call: 'tools:save'}", "4:42"),
        ("{prompt: x, guardrails: {output: ['tools:one', 'tools:two']}}", "4:53"),
    ],
)
def test_a_function_that_is_given_one_value_may_need_no_other(tmp_path: Path, node: str, place: str):
    (tmp_path / "tools.py").write_text(CODE)
    file = tmp_path / "flow.yaml"
    file.write_text(f"flowengine: v1\nname: calls\nnodes:\n  f: {node}\n")
    [found] = [str(each).rpartition("/")[2] for each in check_file(file)]
    assert found.startswith(f"flow.yaml:{place}: FE512 node 'f': the function is called with one value by its place")


@pytest.mark.parametrize("code", ["def one(context):\n    return 1 +\n", "def one(context): ...\n\0"])
def test_a_module_that_is_no_python_is_told_before_a_run(code: str, tmp_path: Path):
    (tmp_path / "tools.py").write_text(code)
    file = tmp_path / "flow.yaml"
    file.write_text("flowengine: v1\nname: calls\nnodes:\n  f: {type: function, call: 'tools:one'}\n")
    [found] = check_file(file)
    assert found.code == "FE507"
    assert (found.line, found.column) == (4, 29)
    with pytest.raises(FlowError) as raised:
        Flow.from_yaml(file)
    assert raised.value.diagnostics == (found,)
    assert project_of(file)[0].problem_with("tools:one") is not None
    with pytest.raises(ProjectError, match=re.escape(found.message)):
        project_of(file)[0].import_object("tools:one")


KINDS = """
from flowengine.agents.tools.function_tool import tool
from pydantic import BaseModel

VERSION, NAMES, SCHEMA = "1", [], {}
NUMBER = 3
LIST: list[str] = []
MADE = print
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
def find(text: str) -> str: return text
@tool(name="find")
def look(text: str) -> str: return text
@tool
def rest(first: str, *rest: str) -> str: return first
def place(first: str, /) -> str: return first
def named(**named: str) -> str: return ""
class Answer(BaseModel):
    text: str
class Answers:
    text = "a"
LATE = None
def set_late():
    global LATE
    LATE = find
set_late()
"""


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("{type: function, call: 'm:NUMBER'}", "FE508 'm:NUMBER' is int, which cannot be called"),
        ("{type: condition, call: 'm:LIST', routes: {a: {}}}", "FE508 'm:LIST' is list, which cannot be"),
        ("{type: tool, tool: 'm:NUMBER'}", "FE508 'm:NUMBER' is int, which cannot be called"),
        ("{prompt: x, guardrails: {input: ['m:NUMBER']}}", "FE508 'm:NUMBER' is int, which cannot"),
        (
            "{prompt: x, output: 'm:find'}",
            "FE508 'm:find' is a function, and `output` takes a pydantic class or a JSON Schema",
        ),
        (
            "{prompt: x, output: 'm:Answers'}",
            "FE508 'm:Answers' is a class, and `output` takes a pydantic class or a JSON Schema; "
            "did you mean 'Answer'?",
        ),
        ("{prompt: x, contexts: ['m:find']}", "FE508 'm:find' is a function, and `contexts` takes typed"),
        (
            "{prompt: x, tools: ['m:find', 'm:look']}",
            "FE526 'm:find' is a tool named 'find' too; list it once, or give one another name",
        ),
        ("{prompt: x, tools: ['m:find', 'm:find']}", "FE526 'm:find' is a tool named 'find' too"),
        (
            "{prompt: x, tools: ['m:rest']}",
            "FE512 a tool is given each argument by its name, and 'm:rest' has `*rest`",
        ),
        ("{prompt: x, tools: ['m:place']}", "FE512 a tool is given each argument by its name, and 'm:p"),
        ("{type: tool, tool: 'm:named', with: {a: x}}", "FE512 a tool is given each argument by its na"),
        (
            "{prompt: x, agent: {tools: ['m:find', 'm:find']}}",
            "FE526 'm:find' is a tool named 'find' too",
        ),
    ],
)
def test_code_that_cannot_do_what_its_key_asks_for_is_told_before_a_run(node: str, expected: str, tmp_path: Path):
    (tmp_path / "m.py").write_text(KINDS)
    file = tmp_path / "flow.yaml"
    file.write_text(f"flowengine: v1\nname: calls\nnodes:\n  f: {node}\n")
    [found] = [each for each in check_file(file) if each.severity == "error"]
    assert f"{found.code} {found.message}{found.hint}".startswith(expected)
    assert (found.node, found.line, found.column) == ("f", 4, 6 + node.rindex("'m:"))
    with pytest.raises(FlowError):
        Flow.from_yaml(file)


@pytest.mark.parametrize(
    "nodes",
    [
        "f: {prompt: x, output: 'm:SCHEMA'}",
        "f: {prompt: x, output: 'm:Answer'}",
        "f: {type: function, call: 'm:LATE', with: {text: x}}",
        "f: {type: function, call: 'm:place'}",
        "guardrails: {prompt: x, model: offline, tools: ['m:find', 'm:MADE']}",
        "f: {agent: spare, output: 'm:Answer', tools: ['m:look'], contexts: [], prompt: x}",
    ],
)
def test_nothing_is_said_of_code_that_a_run_can_use(nodes: str, tmp_path: Path):
    (tmp_path / "m.py").write_text(KINDS)
    file = tmp_path / "flow.yaml"
    agents = "agents: {spare: {tools: ['m:find', 'm:find'], output: 'm:find', contexts: ['m:NUMBER']}}"
    file.write_text(f"flowengine: v1\nname: calls\n{agents}\nnodes:\n  {nodes}\n")
    assert [each for each in check_file(file) if each.severity == "error"] == []
    if "MADE" not in nodes:
        Flow.from_yaml(file)


def test_a_tool_of_a_node_called_as_a_key_is_no_function_that_gets_one_value(tmp_path: Path):
    (tmp_path / "tools.py").write_text("def two(a: str, b: str) -> str: ...")
    file = tmp_path / "flow.yaml"
    file.write_text("flowengine: v1\nname: calls\nnodes:\n  call: {prompt: x, tools: ['tools:two']}\n")
    assert check_file(file) == []
    Flow.from_yaml(file)
