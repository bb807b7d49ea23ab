"""Lists the kinds of node, and the traits of each that more than its own file has to know.

A kind of ours is a line in `TRAITS` and a file in `flowfile/kinds`; a package names its own under the entry point
group `flowengine.nodes`. A kind that is neither has the traits of a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Final, NamedTuple

from flowengine.core.user_code import find_entry_points, load_entry_point
from flowengine.errors import DefinitionError

SHAPES: Final = ("rectangle", "rounded", "hexagon", "octagon", "diamond", "stack", "folder", "house")


class NodeTraits(NamedTuple):
    """Properties of all nodes of a kind."""

    transparent: bool = False
    """Passes on the `result` that it received."""
    container: bool = False
    """Runs nodes of its own inside."""
    asks_models: bool = False
    """Its work is done by an agent."""
    shape: str = "rectangle"
    """How it is drawn: one of `SHAPES`."""


class _KnownTraits(dict[str, NodeTraits]):
    """The traits of our kinds; those of another kind are looked for in the package that brings it."""

    def __missing__(self, kind: str) -> NodeTraits:
        point = find_packaged_kinds().get(kind)
        try:
            node_type: object = None if point is None else load_entry_point(point, f"the node type '{kind}'")
        except DefinitionError:  # A run can be drawn whose kind can no longer be had; running it says what is wrong.
            node_type = None
        traits = getattr(node_type, "traits", None)
        return traits if isinstance(traits, NodeTraits) and traits.shape in SHAPES else self["function"]


TRAITS: Final[Mapping[str, NodeTraits]] = _KnownTraits(
    {
        "agent": NodeTraits(asks_models=True, shape="rounded"),
        "routing": NodeTraits(transparent=True, asks_models=True, shape="hexagon"),
        "condition": NodeTraits(transparent=True, shape="diamond"),
        "evaluation": NodeTraits(transparent=True, asks_models=True, shape="octagon"),
        "function": NodeTraits(),
        "tool": NodeTraits(),
        "http": NodeTraits(),
        "code": NodeTraits(),
        "map": NodeTraits(container=True, shape="stack"),
        "loop": NodeTraits(container=True, shape="stack"),
        "subflow": NodeTraits(container=True, shape="folder"),
        "approval": NodeTraits(transparent=True, shape="house"),
    }
)
"""Kind of node → its traits. It lists each kind of ours, alone, and has an answer for every other kind."""


def find_packaged_kinds() -> Mapping[str, EntryPoint]:
    """The kinds that installed packages bring; none takes the name of one of ours. Nothing is imported."""
    return {name: point for name, point in find_entry_points("flowengine.nodes").items() if name not in TRAITS}
