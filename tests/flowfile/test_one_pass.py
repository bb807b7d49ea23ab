"""Mistakes of different layers are told all in one pass, and one mistake brings no others that follow from it."""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.flowfile.loader import check_text
from flowengine.flowfile.yaml.parser import parse_yaml
from tests.flowfile.test_fuzz import NESTED, at, paths


class Planted(NamedTuple):
    """Nodes with one mistake, and where that is told: in the line with this text, at the column of this part of it."""

    nodes: str
    code: str
    line: str
    part: str


PLANTED = [
    # Structure.
    Planted("N: {prompt: N, temperature: warm}", "FE401", "N: {prompt", "warm"),
    Planted("N: {prompt: N, temprature: 1}", "FE201", "N: {prompt", "temprature"),
    Planted("N: {prompt: N, colour: red}", "FE201", "N: {prompt", "colour"),
    Planted("N: {promt: N}", "FE201", "N: {promt", "promt"),
    Planted("N: {type: function}", "FE202", "N: {type", "N:"),
    Planted("N: {type: routing, target: N, routes: {x: {}}}", "FE202", "N: {type", "N:"),
    Planted("N: {type: agnet, prompt: N}", "FE204", "N: {type", "agnet"),
    Planted("N: {prompt: N, timeout: 30}", "FE405", "N: {prompt", "30"),
    Planted(
        "N: {type: condition, if: 'true', then: {}, cases: [{if: 'true', label: x}]}", "FE209", "N: {type", "cases"
    ),
    Planted("N: {prompt: N, retry: {attempts: 0}}", "FE403", "N: {prompt", "0}}"),
    Planted("N: {prompt: N, output: {type: strng}}", "FE406", "N: {prompt", "strng"),
    # Names and edges.
    Planted("N: {prompt: N, needs: [Nothing]}", "FE203", "N: {prompt", "Nothing"),
    Planted("N: {type: condition, if: 'true', then: Nwhere}\nNhere: {prompt: N}", "FE203", "N: {type", "Nwhere"),
    Planted("N: {prompt: N, agent: writre}", "FE213", "N: {prompt", "writre"),
    Planted("N: {needs: [Nb], prompt: N}\nNb: {needs: [N], prompt: N}", "FE210", "N: {needs", "Nb"),
    Planted("N: {prompt: N, needs: [N]}", "FE211", "N: {prompt", "N]"),
    Planted("N: {prompt: N, set: {totl: 1}}", "FE218", "N: {prompt", "totl"),
    # Routing labels.
    Planted(
        "N: {type: routing, target: N, instruction: N, routes: {fallback: Na}, fallback: Nb}\n"
        "Na: {prompt: N}\nNb: {prompt: N}",
        "FE212",
        "N: {type",
        "fallback: Na",
    ),
    Planted(
        "N: {type: approval, message: N, routes: {yes: {}}, expires: 2h, on_expire: no}",
        "FE224",
        "N: {type",
        "on_expire",
    ),
    Planted("N: {type: evaluation, target: N, routes: {good: {}}}", "FE201", "N: {type", "good"),
    # Templates.
    Planted("N: {prompt: '{{ inputs.topik }}'}", "FE303", "N: {prompt", "inputs"),
    Planted("N: {prompt: '{{ inputs.topic | uper }}'}", "FE301", "N: {prompt", "uper"),
    Planted("N: {prompt: '{{ nodes.Nothing.output }}'}", "FE305", "N: {prompt", "nodes"),
    Planted("N: {prompt: '{{ shared_state.totl }}'}", "FE304", "N: {prompt", "shared_state"),
    Planted("Na: {prompt: N}\nN: {prompt: '{{ nodes.Na.output.title }}'}", "FE306", "N: {prompt", "nodes"),
    Planted("N: {prompt: '{{ output }}'}", "FE309", "N: {prompt", "output"),
    Planted("N: {prompt: N, model: '{{ inputs.topic }}'}", "FE310", "N: {prompt", "{{"),
    # Results and writers.
    Planted("Na: {prompt: N}\nNb: {prompt: N}\nN: {needs: [Na, Nb]}", "FE215", "N: {needs", "N:"),
    Planted(
        "Na: {prompt: N}\nNb: {prompt: N}\nN: {type: evaluation, needs: [Na, Nb], target: '{{ result }}'}",
        "FE215",
        "N: {type",
        "result",
    ),
    Planted(
        "Na: {prompt: N}\nNb: {prompt: N}\nN: {needs: [Na, Nb], prompt: '{{ shared_state._last_prompt }}'}",
        "FE216",
        "N: {needs",
        "shared_state",
    ),
    Planted("Na: {prompt: N, set: {count_N: 1}}\nN: {prompt: N, set: {count_N: 2}}", "FE217", "N: {prompt", "count_N"),
    # Bodies.
    Planted("N:\n  type: map\n  over: inputs.list\n  nodes: {Na: {prompt: N}, Nb: {prompt: N}}", "FE222", "N:", "N:"),
    Planted(
        "N: {type: loop, max_iterations: 2, on_exhausted: continue, initial: {a: 1}, "
        "carry: {b: 2}, nodes: {Nb: {prompt: N}}}",
        "FE221",
        "N: {type",
        "b: 2",
    ),
    # Reachability.
    Planted(
        "Nc: {type: condition, if: 'true', then: Na, else: Nb}\nNa: {prompt: N}\nNb: {prompt: N}\n"
        "N: {needs: [Na, Nb], join: all, prompt: N}",
        "FE902",
        "N: {needs",
        "N:",
    ),
    Planted(
        "Na: {when: inputs.topic == 'x', prompt: N}\nN: {prompt: '{{ nodes.Na.output }}', join: always}",
        "FE903",
        "N: {prompt",
        "nodes",
    ),
]


def flow_of(planted: list[Planted]) -> tuple[str, list[tuple[str, int, int]]]:
    """A sound flow with mistakes in it, and what should be said: code, line and column, sorted by place."""
    names = [f"n{number}" for number in range(len(planted))]
    counts = ", ".join(f"count_{name}: {{type: integer}}" for name in names)
    reads = " ".join(f"{{{{ shared_state.count_{name} }}}}" for name in names)
    lines = [
        "flowengine: v1",
        "name: planted",
        "inputs: {topic: {type: string}, list: {type: array, default: []}}",
        f"shared_state: {{{counts}}}",
        "agents: {writer: {model: offline}}",
        "nodes:",
        f"  start: {{agent: writer, prompt: '{{{{ inputs.topic }}}} {{{{ inputs.list }}}} {reads}'}}",
    ]
    expected: list[tuple[str, int, int]] = []
    for name, each in zip(names, planted, strict=True):
        begin = len(lines)
        lines += [f"  {line}" for line in each.nodes.replace("N", name).splitlines()]
        found = f"  {each.line.replace('N', name)}"
        line = next(at for at in range(begin, len(lines)) if lines[at].startswith(found))
        expected.append((each.code, line + 1, lines[line].index(each.part.replace("N", name), 2) + 1))
    return "\n".join(lines), sorted(expected, key=lambda each: each[1:])


def told(text: str) -> list[tuple[str, int | None, int | None]]:
    return [(each.code, each.line, each.column) for each in check_text(text)]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: f"{each.code} {each.nodes[:40]}")
def test_one_mistake_is_told_as_that_one(planted: Planted) -> None:
    text, expected = flow_of([planted])
    assert told(text) == expected


@given(st.lists(st.sampled_from(PLANTED), min_size=2, max_size=8))
@settings(max_examples=60, deadline=None)
def test_mistakes_of_different_layers_are_told_all_in_one_pass(planted: list[Planted]) -> None:
    text, expected = flow_of(planted)
    assert told(text) == expected


def test_every_mistake_that_is_planted_is_told_beside_all_others() -> None:
    text, expected = flow_of(PLANTED)
    assert told(text) == expected


TREE = parse_yaml(NESTED).data
WHOLE = [path for path in paths(TREE)[1:] if isinstance(at(TREE, path[:-1]), dict)]
DECLARING = {
    "inputs",
    "shared_state",
    "agents",
    "nodes",
    "initial",
    "carry",
    "properties",
    "outputs",
    "routes",
    "result",
}
"""Keys whose values have names of the author's for keys."""


@pytest.mark.parametrize("value", [[[1]], 3, None], ids=repr)
def test_a_value_of_another_type_brings_nothing_that_follows_from_it(value: Any) -> None:
    """Each value of a flow that has all kinds of nodes, one after the other."""
    cascades: list[str] = []
    for path in WHOLE:
        tree = copy.deepcopy(TREE)
        at(tree, path[:-1])[path[-1]] = value
        cascades += cascade(path, tree)
    assert cascades == []


def test_a_misspelt_key_brings_nothing_that_follows_from_it() -> None:
    cascades: list[str] = []
    for path in WHOLE:
        if len(path) == 1 or path[-2] not in DECLARING:
            tree = copy.deepcopy(TREE)
            holder = at(tree, path[:-1])
            pairs = [(f"{key}x" if key == path[-1] else key, each) for key, each in holder.items()]
            holder.clear()
            holder.update(pairs)
            cascades += cascade(path, tree)
    assert cascades == []


def test_a_key_that_is_missing_brings_nothing_that_follows_from_it() -> None:
    cascades: list[str] = []
    for path in WHOLE:
        tree = copy.deepcopy(TREE)
        del at(tree, path[:-1])[path[-1]]
        if any(each.code == "FE202" for each in check_text(json.dumps(tree))):
            cascades += cascade(path, tree)
    assert cascades == []


def cascade(path: tuple[Any, ...], tree: Any) -> list[str]:
    """What is said of a flow that has one mistake of structure, where that is more than one thing."""
    found = check_text(json.dumps(tree, indent=1))
    structural = [each for each in found if each.code[:3] in ("FE2", "FE4")]
    return [f"{path}: {[str(each) for each in found]}"] if structural and len(found) > 1 else []


def test_a_node_without_its_type_is_told_which_one_its_keys_are_of() -> None:
    node = "l: {max_iterations: 2, until: 'true', nodes: {a: {prompt: '{{ inputs.x }}'}}}"
    text = f"flowengine: v1\nname: a\nnodes:\n  {node}\n"
    assert [str(each) for each in check_text(text)] == [
        "4:3: FE202 node 'l': the key 'type' is missing; did you mean 'type: loop'?",
        "4:65: FE303 node 'l.a': unknown input 'x'",
    ]


def test_a_note_on_a_type_is_no_misspelt_type() -> None:
    noted = "flowengine: v1\nname: f\nnodes:\n  a: {prompt: Why?, x-type: map}\n"
    assert check_text(noted) == []
    assert [(each.code, each.line) for each in check_text(noted + "  b: {promt: Why?}\n")] == [("FE201", 5)]


def test_a_misspelt_type_is_taken_for_the_nearest_one() -> None:
    text = (
        "flowengine: v1\nname: a\nnodes:\n  l: {typ: lop, max_iterations: 2, nodes: {a: {prompt: '{{ inputs.x }}'}}}\n"
    )
    [first, _] = check_text(text.replace("lop", "loop"))
    assert str(first) == "4:7: FE201 node 'l': unknown key 'typ'; did you mean 'type'?"
    assert [each.code for each in check_text(text.replace("typ:", "type:"))] == ["FE204", "FE303"]


def test_a_broken_node_makes_unknown_only_what_stands_behind_it() -> None:
    """`d` may come between `a` and `b`, for all that is known; it cannot come between `e` and `f`."""
    text = (
        "flowengine: v1\nname: a\nnodes:\n"
        "  a: {prompt: x}\n  d: {prompt: 3, needs: [a]}\n  b: {needs: [d], prompt: x}\n  c: {needs: [a, b]}\n"
        "  e: {prompt: x}\n  f: {prompt: x}\n  g: {needs: [e, f]}\n  h: {needs: [d, e]}\n"
    )
    assert [(each.code, each.node) for each in check_text(text)] == [("FE401", "d"), ("FE215", "g")]


def test_a_chooser_without_its_routes_may_lead_to_what_has_an_ancestor_with_it_in_common() -> None:
    text = (
        "flowengine: v1\nname: a\nnodes:\n  s: {prompt: x}\n"
        "  p: {type: routing, needs: [s], instruction: i}\n"
        "  a: {needs: [s], prompt: x}\n  b: {needs: [s], prompt: x}\n  c: {needs: [a, b]}\n"
        "  e: {prompt: x}\n  f: {prompt: x}\n  g: {needs: [e, f]}\n"
    )
    assert [(each.code, each.node) for each in check_text(text)] == [("FE202", "p"), ("FE215", "g")]
