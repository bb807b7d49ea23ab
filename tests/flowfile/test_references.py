"""The edges that follow from a file, and the texts in it."""

from __future__ import annotations

import pytest

from flowengine.engine.graph import FALLBACK, ON_ERROR, Edge
from flowengine.flowfile.analysis.flow_nodes import labels_of
from flowengine.flowfile.analysis.references import edges_of, texts_of
from flowengine.flowfile.loader import load_flow

HEAD = "flowengine: v1\nname: a\nnodes:\n"


def edges(nodes: str) -> set[tuple[str, str, str | None]]:
    return set(map(tuple, edges_of(load_flow(text=HEAD + nodes))))


END = "  a: {prompt: x}\n  b: {prompt: x}\n  c: {prompt: x}\n"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("n: {needs: [a, b], prompt: x}", {("a", "n", None), ("b", "n", None)}),
        ("n: {prompt: '{{ nodes.a.output }}', when: nodes.b.output == 'x'}", {("a", "n", None), ("b", "n", None)}),
        (
            "n: {prompt: x, improve: {instructions: '{{ nodes.a.output }}'}, "
            "agent: {system_message: '{{ nodes.b.output }}'}}",
            {("a", "n", None), ("b", "n", None)},
        ),
        (
            "n: {type: condition, if: nodes.c.output, then: a, else: b}",
            {("c", "n", None), ("n", "a", "then"), ("n", "b", "else")},
        ),
        (
            "n: {type: condition, cases: [{if: 'true', then: a}, {if: 'false', then: b, label: two}], else: c}",
            {("n", "a", "a"), ("n", "b", "two"), ("n", "c", "else")},
        ),
        (
            "n: {type: routing, target: t, instruction: i, routes: {x: a, y: {}}, fallback: b}",
            {("n", "a", "x"), ("n", "b", FALLBACK)},
        ),
        ("n: {type: routing, target: t, instruction: i, routes: {x: a, b: {}}, fallback: b}", {("n", "a", "x")}),
        ("n: {type: evaluation, target: t, routes: {pass: a, fail: b}}", {("n", "a", "pass"), ("n", "b", "fail")}),
        (
            "n: {prompt: x, routing: {instruction: i, routes: {x: a}, fallback: b}, on_error: {then: c}}",
            {("n", "a", "x"), ("n", "b", FALLBACK), ("n", "c", ON_ERROR)},
        ),
        ("n: {prompt: '{% for x in nodes.a.output %}{{ x.nodes }}{% endfor %}'}", {("a", "n", None)}),
    ],
)
def test_what_a_node_says_makes_edges(node: str, expected: set[tuple[str, str, str | None]]) -> None:
    assert edges(END + "  " + node) == expected


def test_set_sees_nodes_and_so_waits_for_them() -> None:
    text = (
        "flowengine: v1\nname: a\nshared_state: {k: {}}\nnodes:\n"
        + END
        + "  n: {prompt: x, set: {k: [{d: '{{ nodes.a.output }}'}]}}"
    )
    assert edges_of(load_flow(text=text)) == [Edge("a", "n")]


def test_closed_pairs_have_both_labels_and_a_missing_else_has_none() -> None:
    spec = load_flow(
        text=HEAD
        + END
        + "  p: {type: condition, if: 'true', then: a}\n  e: {type: evaluation, target: t, routes: {fail: b}}\n"
        + "  q: {type: condition, cases: [{if: 'true', then: a}]}\n"
        + "  r: {type: condition, cases: [{if: 'true', then: a}], else: {}}\n"
    )
    assert labels_of(spec, "p") == {"then", "else"}
    assert labels_of(spec, "e") == {"pass", "fail"}
    assert labels_of(spec, "q") == {"a"}
    assert labels_of(spec, "r") == {"a", "else"}
    assert labels_of(spec, "a") == frozenset()


def test_every_text_has_its_path_its_kind_and_its_scope() -> None:
    spec = load_flow(
        text="flowengine: v1\nname: a\nshared_state: {k: {}}\nnodes:\n"
        "  a: {prompt: p, when: 'true', model: m, set: {k: [v]}}\noutputs: {o: {x: t}}"
    )
    assert {(".".join(map(str, each.path)), each.text, each.kind, each.scope) for each in texts_of(spec)} == {
        ("nodes.a.prompt", "p", "template", "node"),
        ("nodes.a.when", "true", "expression", "node"),
        ("nodes.a.model", "m", "plain", "node"),
        ("nodes.a.set.k.0", "v", "template", "set"),
        ("outputs.o.x", "t", "template", "outputs"),
    }
