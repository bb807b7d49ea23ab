"""Draws flows and runs: readings of a graph and of a journal's events. Nothing here runs a node.

    import visualize
    from flowengine import Flow

    flow = Flow.from_yaml("flows/support_triage.yaml")
    svg = visualize.to_svg(flow)

`to_svg`, `to_png`, `to_dot`, `to_mermaid`, `to_graphviz` and `to_networkx` take a flow, a run, or a run of a store. All
else in this package is the project's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visualize.draw import to_dot, to_graphviz, to_mermaid, to_networkx, to_png, to_svg

__all__ = ["to_dot", "to_graphviz", "to_mermaid", "to_networkx", "to_png", "to_svg"]


def __getattr__(name: str) -> Any:  # A part of the package is imported without the rest.
    if name not in __all__:
        raise AttributeError(f"module 'visualize' has no attribute '{name}'")
    from visualize import draw

    return getattr(draw, name)
