"""What nodes keep for their descendants, beside shared state."""

from __future__ import annotations

from typing import Any

from flowengine.core.context import Context, NodeResult
from flowengine.engine.events import NodeFinished
from flowengine.engine.graph import Edge, Graph, Vertex
from flowengine.engine.state import StateStore
from flowengine.engine.view import view_of
from flowengine.engine.walk import Walk


class Unheard:
    scope = None
    ledger = None

    def note_of(self, node: str, /) -> Any: ...

    def tell_of(self, node: str, /) -> Any: ...


def diamond(**begins_with: Any) -> Walk:
    vertices = [Vertex(each) for each in ("a", "b", "c", "d")]
    edges = [Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d")]
    return Walk(Graph(vertices, edges), StateStore({}, begins_with))


def kept_by(walk: Walk, node: str) -> dict[str, Any]:
    context: Context = view_of(walk, walk.graph.index[node], Unheard())
    return dict(context.runtime.kept)


def finish(walk: Walk, node: str, **kept: Any) -> None:
    number = walk.graph.index[node]
    walk.ready.remove(number)
    walk.start(number)
    walk.apply(NodeFinished(node, 0.0, walk.admit(number, NodeResult(kept=kept))))


def test_a_conversation_is_added_to_what_ancestors_keep_and_other_names_are_replaced():
    walk = diamond()
    finish(walk, "a", conversation=["a1"], notes={"n": 1})
    finish(walk, "b", conversation=["b1"], notes={"n": 2})
    finish(walk, "c")
    assert kept_by(walk, "d") == {"conversation": ["a1", "b1"], "notes": {"n": 2}}


def test_parallel_nodes_see_only_what_their_ancestors_keep():
    walk = diamond()
    finish(walk, "a", conversation=["a1"])
    finish(walk, "b", conversation=["b1"], skills=["x"])
    assert kept_by(walk, "c") == {"conversation": ["a1"]}


def test_a_run_begins_with_what_it_is_given():
    walk = diamond(conversation=["earlier"], memory="m")
    assert kept_by(walk, "a") == {"conversation": ["earlier"], "memory": "m"}
    finish(walk, "a", conversation=["a1"])
    assert kept_by(walk, "b") == {"conversation": ["earlier", "a1"], "memory": "m"}


def test_memories_are_added_up():
    walk = diamond()
    finish(walk, "a", memory=["a1"])
    finish(walk, "b", memory=["b1"])
    finish(walk, "c", memory=["c1"])
    assert kept_by(walk, "d") == {"memory": ["a1", "b1", "c1"]}


def test_skills_are_a_union():
    walk = diamond()
    finish(walk, "a", skills=["x"])
    finish(walk, "b", skills=["x", "y"])
    finish(walk, "c", skills=["z"])
    assert kept_by(walk, "d") == {"skills": ["x", "y", "z"]}
