"""Makes the pictures of a flow and of its runs, with what its definition says: words, remarks, places."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine.engine.events import Event
from flowengine.nodes.compiled_flow import CompiledFlow
from visualize.picture import Picture, PictureNode, picture_of_run, picture_of_skeleton

__all__ = ["picture_of_flow_run", "picture_of_plan"]


def picture_of_plan(plan: CompiledFlow) -> Picture:
    """The flow with the bodies of its containers."""
    return _describe(picture_of_skeleton(plan.name, plan.skeleton), plan)


def picture_of_flow_run(plan: CompiledFlow, events: Sequence[Event]) -> Picture:
    """A run of the flow, finished or not, from its journal."""
    return _describe(picture_of_run(events), plan)


def _describe(picture: Picture, plan: CompiledFlow) -> Picture:
    return picture._replace(nodes=tuple(_describe_node(node, plan) for node in picture.nodes))


def _describe_node(node: PictureNode, plan: CompiledFlow) -> PictureNode:
    definition = plan.all_nodes.get(node.id)
    if definition is None:  # A run of the flow as it was.
        return node
    place = None if plan.place_of is None or plan.path is None else (plan.path, *plan.place_of(node.id))
    return node._replace(remark=definition.remark, description=definition.description, place=place)
