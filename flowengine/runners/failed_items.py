"""Items that failed in maps which went on without them (`on_item_error: collect` and `skip`), and what repeats them.

Such a map has ended, so going on with its run leaves it alone. Where its items are to be tried again, it is entered
once more, what had finished inside stays, and all that is behind it runs again. Pure: a plan and events in.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from flowengine.engine.events import Event, NodeFailed, NodeFinished, NodeRecorded
from flowengine.engine.graph import Graph
from flowengine.engine.restoring import History, containers_round
from flowengine.errors import RunError
from flowengine.nodes.container import ContainerNode, every_node, file_path
from flowengine.nodes.map import MapNode
from flowengine.nodes.plan import Plan
from flowengine.records import ToolCall

__all__ = ["failed_items", "refuse_repeated_deeds"]

_ITEM: Final = re.compile(r"(.*)\[(\d+)\]\.")


def failed_items(plan: Plan, events: Sequence[Event]) -> Mapping[str, Collection[int]]:
    """Path of a map that went on without its failed items → their indices."""
    history, nodes = History(events), dict(every_node(plan.definitions))
    found: dict[str, list[int]] = {}
    for prefix in history.prefixes():
        item = _ITEM.fullmatch(prefix)
        node = None if item is None else nodes.get(file_path(item[1]))
        if item is None or not isinstance(node, MapNode) or node.on_item_error == "fail":
            continue
        if _has_failed(node.body.graph, history.of(prefix), prefix):
            found.setdefault(item[1], []).append(int(item[2]))
    return found


def refuse_repeated_deeds(
    plan: Plan, events: Sequence[Event], maps: Collection[str], allowed: Collection[str] = ()
) -> Collection[str]:
    """The nodes behind the maps that have an external effect or ask a person: they would do so a second time.

    `RunError` for those that are not in `allowed`.
    """
    nodes = dict(every_node(plan.definitions))
    finished = {event.node for event in events if isinstance(event, NodeFinished)}
    deeds = {
        event.node
        for event in events
        if isinstance(event, NodeRecorded) and type(event.record) is ToolCall and event.record.effect == "external"
    }
    asked = {each for each in finished if (node := nodes.get(file_path(each))) is not None and node.kind == "approval"}
    behind = sorted(each for each in deeds | asked if _is_behind(plan, nodes, maps, each))
    refused = [each for each in behind if each not in allowed]
    if refused:
        names = ", ".join(f"'{each}'" for each in refused)
        options = " ".join(f"--retry-effect {each}" for each in refused)
        raise RunError(
            f"to repeat failed items runs all that is behind them again, and {names} would act or ask a second time: "
            f"allow it with {options}, or begin a new run with --reuse"
        )
    return behind


def _has_failed(graph: Graph, events: Sequence[Event], prefix: str) -> bool:
    last = {name[len(prefix) :]: each for each in events if (name := getattr(each, "node", None)) is not None}
    return any(
        isinstance(event, NodeFailed) and name in graph.index and graph.vertices[graph.index[name]].on_error == "fail"
        for name, event in last.items()
    )


def _is_behind(plan: Plan, nodes: Mapping[str, object], maps: Collection[str], node: str) -> bool:
    return any(_comes_after(plan, nodes, each, node) for path in maps for each in (path, *containers_round(path)))


def _comes_after(plan: Plan, nodes: Mapping[str, object], first: str, node: str) -> bool:
    """Whether a node, or a container that it ran in, is behind another of the same level, or of a later round."""
    level, name = _place(first)
    container = next(iter(containers_round(first)), None)
    around = plan.graph if container is None else _graph_of(nodes, file_path(container))
    for each in (node, *containers_round(node)):
        other, own = _place(each)
        if around is None or own not in around.index:
            continue
        if other == level and around.is_ancestor(around.index[name], around.index[own]):
            return True
        if _is_later_round(level, other):
            return True
    return False


def _place(path: str) -> tuple[str, str]:
    level, _, name = path.rpartition(".")
    return level, name


def _graph_of(nodes: Mapping[str, object], path: str) -> Graph | None:
    node = nodes.get(path)
    return node.body.graph if isinstance(node, ContainerNode) else None


def _is_later_round(level: str, other: str) -> bool:
    one, two = (re.fullmatch(r"(.*)\.round\[(\d+)\]", each) for each in (level, other))
    return one is not None and two is not None and one[1] == two[1] and int(two[2]) > int(one[2])
