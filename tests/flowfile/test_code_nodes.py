"""`type: code` in flow files: what is seen of the code without running it."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from flowengine import Flow, FlowBuilder
from flowengine.agents.skills.sandbox.sandbox import verdict
from flowengine.flowfile.loader import check_file
from flowengine.testing.fakes import faked
from tests.support.require import missing

HEAD = "flowengine: v1\nname: coded\nnodes:\n  a:\n    type: code\n    with: {total: 3, text: x}\n    code: |\n"


def told(folder: Path, code: str, head: str = HEAD) -> list[str]:
    file = folder / "flow.yaml"
    file.write_text(f"{head}{indent(code, '      ')}\n")
    return [str(each).replace(f"{folder}/", "") for each in check_file(file)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "x = 1\nreturn totl",
            "flow.yaml:9:14: FE524 node 'a': the code reads 'totl', which nothing gives it; did you",
        ),
        ("return nothing_like_it", "flow.yaml:8:14: FE524 node 'a': the code reads 'nothing_like_it'"),
        ("x = 1\nif x\n  return 1", "flow.yaml:9:10: FE524 node 'a': this is no Python: expected ':'"),
        ("return {{ total }}", "flow.yaml:8:14: FE524 node 'a': 'code' is not rendered: give the value a name in"),
        ("total + 1", "flow.yaml:8:7: FE524 node 'a': nothing is returned: end with `return …`"),
        ("def f():\n    return 1\nf()", "flow.yaml:8:7: FE524 node 'a': nothing is returned"),
        (
            "from __future__ import annotations\nreturn 1",
            "flow.yaml:8:7: FE524 node 'a': the code is a function's body",
        ),
        ("return " + "(" * 300 + ")" * 300, "flow.yaml:8:"),
        ("return " + "-" * 60_000 + "1", "flow.yaml:8:"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, code: str, expected: str):
    found = told(tmp_path, code)
    assert len(found) == 1, found
    assert found[0].startswith(expected)


@pytest.mark.parametrize(
    "code",
    [
        "return total",
        "import json as j, os.path\nreturn [j, os, *(y for y in text), lambda z: z]",
        "try:\n    return total\nexcept ValueError as error:\n    return str(error)",
        "match total:\n    case [a, *b]:\n        return a, b\n    case {'c': c, **d}:\n        return c, d\nreturn 1",
        "class A:\n    b = 1\nasync def g(*args, **more):\n    return args, more\nreturn A.b",
        "with open('x') as f:\n    return (n := f.read(), n)",
        'return f"{{{total}}}", {"a": {"b": total}}',
        "global seen\nseen = 1\nreturn seen",
        "raise ValueError(text)",
    ],
)
def test_what_is_right_is_not_told(tmp_path: Path, code: str):
    assert told(tmp_path, code) == []


def test_keys_are_checked_as_those_of_every_node(tmp_path: Path):
    head = "flowengine: v1\nname: coded\nnodes:\n  a:\n    type: code\n    %s\n    code: |\n"
    assert "FE206 node 'a': 'class' is a word of Python" in told(tmp_path, "return 1", head % "with: {class: 1}")[0]
    assert "unknown key 'wiht'; did you mean 'with'?" in "".join(told(tmp_path, "return 1", head % "wiht: {b: 1}"))
    [found] = told(tmp_path, "return b", head % "with: {b: '{{ inputs.c }}'}")
    assert "FE303 node 'a': unknown input 'c'" in found
    (tmp_path / "flow.yaml").write_text("flowengine: v1\nname: coded\nnodes:\n  a: {type: code}\n")
    [found] = [str(each) for each in check_file(tmp_path / "flow.yaml")]
    assert "FE202 node 'a': the key 'code' is missing" in found


def test_braces_in_values_are_values(tmp_path: Path):
    if not verdict(tmp_path).holds:
        missing(f"there is no sandbox: {verdict(tmp_path).reason}")
    flow = FlowBuilder("coded", inputs={"text": {"type": "string"}})
    flow.code("a", "return text + '!'", with_={"text": "{{ inputs.text }}"})
    text = "'); import os; ('{{ inputs.text }}"
    run = flow.build(root=tmp_path).run_sync({"text": text}).raise_for_status()
    assert run.outputs == {"a": f"{text}!"}


def test_a_fake_takes_the_place_of_the_code_without_a_sandbox(tmp_path: Path):
    flow = FlowBuilder("coded")
    flow.code("a", "return text", with_={"text": "x"})
    made: Flow = flow.build(root=tmp_path)
    assert faked(made, functions={"a": lambda text: text * 2}).run_sync().outputs == {"a": "xx"}
    assert faked(made, functions={"a": [1]}).run_sync().outputs == {"a": [1]}
