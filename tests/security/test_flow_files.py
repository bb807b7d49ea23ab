"""Attempts by flow files to take long, to need much memory, and to reach files that are not the project's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.errors import Diagnostic
from flowengine.flowfile.loader import check_file, check_text
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.yaml.parser import MAX_BYTES
from tests.support.pace import spent_within

HEAD = "flowengine: v1\nname: a\n"
NODE = HEAD + "nodes: {a: {prompt: x}}\n"
PER_MEGABYTE = 14.0
"""Seconds of a quiet machine; the slowest shape takes half of it."""
LEAST = 0.25


def filled(head: str, unit: Callable[[int], str], tail: str, size: int) -> str:
    parts, length, number = [head], len(head) + len(tail), 0
    while length < size - 200:
        parts.append(unit(number))
        length += len(parts[-1])
        number += 1
    return "".join([*parts, tail])


AT_ONCE: dict[str, str] = {
    "lists in lists": HEAD + "x: " + "[" * 900_000,
    "maps in maps": HEAD + "x: " + "{a: " * 200_000,
    "dashes": HEAD + "x: " + "- " * 400_000,
    "question marks": HEAD + "x: " + "? " * 400_000,
    "indents": "".join(" " * depth + "a:\n" for depth in range(1_300)),
    "a thousand million aliases": HEAD
    + "x-a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"x-{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "aliases": NODE + "x-k: &a [1]\nx-n: [" + "*a," * 300_000 + "1]\n",
    "a map that merges itself": HEAD + "nodes: &n {a: *n}\n",
    "an alias of nothing": HEAD + "x-n: [" + "*b," * 300_000 + "1]\n",
    "a key of a megabyte": HEAD + "'" + "k" * 990_000 + "': 1\nnodes: {a: {prompt: x}}\n",
    "a number of a megabyte": NODE + "x: " + "9" * 990_000 + "\n",
    "a name of a megabyte": HEAD + "nodes: {" + "A" * 990_000 + ": {prompt: x}}\n",
    "a megabyte and one byte": NODE + "#" * (MAX_BYTES - len(NODE) + 1),
    "many documents": HEAD + "---\na: 1\n" * 90_000,
    "tabs": HEAD + "\tx: 1\n" * 100_000,
    "a tag that makes objects": HEAD + "x: !!python/object/apply:os.system ['true']\nnodes: {a: {prompt: x}}\n",
}
"""Refused before much is done."""

SIZED: dict[str, tuple[str, Callable[[int], str], str]] = {
    "numbers": (NODE + "x-n: [", lambda n: "1,", "1]\n"),
    "nested lists": (NODE + "x-n: [", lambda n: "[" * 58 + "]" * 58 + ",", "1]\n"),
    "unknown keys of one node": (HEAD + "nodes:\n a:\n  prompt: x\n", lambda n: f"  k{n}: 1\n", ""),
    "the same key again": (NODE + "x-n: {", lambda n: "k: 1, ", "}\n"),
    "keys that are no text": (NODE, lambda n: f"{n}: 1\n", ""),
    "nodes of no type": (HEAD + "nodes:\n", lambda n: f" n{n}: {{type: foo}}\n", ""),
    "nodes of nothing": (HEAD + "nodes:\n", lambda n: f" n{n}: {{}}\n", ""),
    "nodes in a chain": (
        HEAD + "nodes:\n n0: {prompt: x}\n",
        lambda n: f" n{n + 1}: {{prompt: x, needs: [n{n}]}}\n",
        "",
    ),
    "nodes that nobody knows": (HEAD + "nodes:\n", lambda n: f" n{n}: {{prompt: x, needs: [m{n}]}}\n", ""),
    "inputs of no type": (NODE + "inputs:\n", lambda n: f" i{n}: {{type: strin}}\n", ""),
    "code that is not there": (HEAD + "nodes:\n", lambda n: f" n{n}: {{type: function, call: 'm{n}:f'}}\n", ""),
    "providers that are not there": (HEAD + "nodes:\n", lambda n: f" n{n}: {{prompt: x, context: [k{n}]}}\n", ""),
    "flows that are not there": (HEAD + "nodes:\n", lambda n: f" n{n}: {{type: subflow, flow: f{n}.yaml}}\n", ""),
    "a text full of placeholders": (HEAD + "nodes: {a: {prompt: '", lambda n: "{{ x }}", "'}}\n"),
    "an expression of parentheses": (HEAD + "nodes: {a: {prompt: x, when: '", lambda n: "(", "'}}\n"),
}
"""A head, what comes again and again, a tail."""


@pytest.mark.parametrize("shape", AT_ONCE)
def test_a_flow_file_of_a_hostile_shape_is_refused_at_once(shape: str, tmp_path: Path) -> None:
    found: list[Diagnostic] = []
    assert spent_within(LEAST, lambda: found.extend(check_text(AT_ONCE[shape], "flow.yaml", project=Project(tmp_path))))
    assert any(each.severity == "error" for each in found)


@pytest.mark.parametrize("size", [20_000, pytest.param(60_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("shape", SIZED)
def test_checking_a_flow_file_takes_time_by_its_size_and_not_by_its_shape(
    shape: str, size: int, tmp_path: Path
) -> None:
    for number in range(200):
        (tmp_path / f"module{number}.py").touch()
    text = filled(*SIZED[shape], size)
    limit = LEAST + PER_MEGABYTE * size / 1_000_000
    assert spent_within(limit, lambda: check_text(text, "flow.yaml", project=Project(tmp_path)))


PATHS = ["/etc/passwd", "../outside", "a/../../outside", "link", "link/outside", "//etc/passwd", "/postgresql://x"]
PLACES = {
    "a subflow": "{type: subflow, flow: 'PATH'}",
    "skills": "{prompt: x, skills: ['PATH']}",
    "a file": "{prompt: x, context: [fixed_file: {file_path: 'PATH'}]}",
    "a folder of code": "{prompt: x, context: [source_code: {codebase_path: 'PATH'}]}",
    "a folder of documents": "{prompt: x, context: [retrieval: {documents: 'PATH'}]}",
    "an index": "{prompt: x, context: [retrieval: {documents: ., store: 'PATH'}]}",
    "an index by its settings": "{prompt: x, context: [retrieval: {documents: ., settings: {path: 'PATH'}}]}",
    "a memory": "{prompt: x, memory: {store: 'PATH', scope: channel, scope_id: C1}}",
    "a memory as a source": ("{prompt: x, context: [long_term_memory: {store: 'PATH', scope: channel, scope_id: C1}]}"),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", PLACES)
def test_no_path_of_a_flow_leaves_the_project(place: str, path: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    file = root / "flow.yaml"
    file.write_text(f"{HEAD}nodes:\n  a: {PLACES[place].replace('PATH', path)}\n")
    found = check_file(file, project=Project(root))
    assert [each.code for each in found if each.severity == "error"] == ["FE503"], found
    assert not list((tmp_path / "outside").iterdir())
