"""The traits of each kind of node that more than its own class has to know: the engine's nodes, files, pictures, plans.

Said here once. A kind that is not in the table has the traits of a function.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["TRAITS", "NodeTraits", "traits_of"]


class NodeTraits(NamedTuple):
    """What is true of all nodes of a kind."""

    transparent: bool = False
    """Passes on the `result` that it received."""
    container: bool = False
    """Runs nodes of its own inside."""
    asks_models: bool = False
    """Its work is done by an agent."""
    shape: str = "rectangle"
    """How it is drawn."""


TRAITS: Final[dict[str, NodeTraits]] = {
    "agent": NodeTraits(asks_models=True, shape="rounded"),
    "routing": NodeTraits(transparent=True, asks_models=True, shape="hexagon"),
    "condition": NodeTraits(transparent=True, shape="diamond"),
    "evaluation": NodeTraits(transparent=True, asks_models=True, shape="octagon"),
    "function": NodeTraits(),
    "map": NodeTraits(container=True, shape="stack"),
    "loop": NodeTraits(container=True, shape="stack"),
    "subflow": NodeTraits(container=True, shape="folder"),
    "approval": NodeTraits(transparent=True, shape="house"),
}
"""Kind of node → its traits."""


def traits_of(kind: str) -> NodeTraits:
    """The traits of a kind, be it one that no table knows."""
    return TRAITS.get(kind, TRAITS["function"])
