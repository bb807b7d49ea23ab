"""Makes a new run that shares the past of an earlier one up to a node, and goes on from there. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from flowengine.core import MapStopped, Reused, ToolCall, freeze
from flowengine.engine import (
    Event,
    Graph,
    History,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    RunStarted,
    StateStore,
    enclosing_containers,
    patches_in,
    start_of,
)
from flowengine.errors import InputError, RunError, StateError, did_you_mean, refuse_other_kind
from flowengine.nodes import CompiledFlow, ContainerNode, Definitions, Past, file_path
from flowengine.runtime.local.shared_past import shared_events
from flowengine.runtime.run import settings_of

# --- Items that failed in maps

_ITEM: Final = re.compile(r"(.*)\[(\d+)\]\.")


def failed_items(plan: CompiledFlow, events: Sequence[Event]) -> Mapping[str, Collection[int]]:
    """Path of a map that went on without its failed items → their indices. One that had enough needs no more."""
    from flowengine.nodes import MapNode

    history, nodes = History(events), plan.all_nodes
    stopped = {each.node for each in events if isinstance(each, NodeRecorded) and type(each.record) is MapStopped}
    indices: dict[str, list[int]] = {}
    for prefix in history.prefixes():
        item = _ITEM.fullmatch(prefix)
        node = None if item is None else nodes.get(file_path(item[1]))
        if item is None or not isinstance(node, MapNode) or node.on_item_error == "fail" or item[1] in stopped:
            continue
        if _has_failed(node.body.graph, history.of(prefix), prefix):
            indices.setdefault(item[1], []).append(int(item[2]))
    return indices


def refuse_repeated_deeds(
    plan: CompiledFlow, events: Sequence[Event], maps: Collection[str], allowed: Collection[str] = ()
) -> Collection[str]:
    """The nodes behind the maps that have an external effect or ask a person: they would do so a second time.

    `RunError` for those that are not in `allowed`.
    """
    nodes = plan.all_nodes
    finished = {event.node for event in events if isinstance(event, NodeFinished)}
    deeds = {event.node for event in events if isinstance(event, NodeRecorded) and _has_deed(event.record)}
    nodes_by_path = {each: node for each in finished if (node := nodes.get(file_path(each))) is not None}
    deeds |= {each for each, node in nodes_by_path.items() if node.effect == "external"}
    approvals = {each for each, node in nodes_by_path.items() if node.kind == "approval"}
    behind = sorted(each for each in deeds | approvals if _is_behind(plan, nodes, maps, each))
    refused = [each for each in behind if each not in allowed]
    if refused:
        names = ", ".join(f"'{each}'" for each in refused)
        options = " ".join(f"--retry-effect {each}" for each in refused)
        raise RunError(
            f"to repeat failed items runs all that is behind them again, and {names} would act or ask a second time: "
            f"allow it with {options}, or begin a new run with --reuse"
        )
    return behind


def _has_deed(record: Any) -> bool:
    """Tells whether something external was done: by the node itself, or where its result was taken from."""
    if type(record) is Reused:
        return any(map(_has_deed, record.calls))
    return type(record) is ToolCall and record.effect == "external"


def _has_failed(graph: Graph, events: Sequence[Event], prefix: str) -> bool:
    last = {name[len(prefix) :]: each for each in events if (name := getattr(each, "node", None)) is not None}
    return any(
        isinstance(event, NodeFailed) and name in graph.index and graph.vertices[graph.index[name]].on_error == "fail"
        for name, event in last.items()
    )


def _is_behind(plan: CompiledFlow, nodes: Mapping[str, object], maps: Collection[str], node: str) -> bool:
    return any(_comes_after(plan, nodes, each, node) for path in maps for each in (path, *enclosing_containers(path)))


def _comes_after(plan: CompiledFlow, nodes: Mapping[str, object], first: str, node: str) -> bool:
    """Tells whether a node, or a container that it ran in, is behind another of the same level, or of a later round."""
    level, name = _place(first)
    container = next(iter(enclosing_containers(first)), None)
    around = plan.graph if container is None else _graph_of(nodes, file_path(container))
    for each in (node, *enclosing_containers(node)):
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


def fork_events(
    plan: CompiledFlow,
    events: Sequence[Event],
    run_id: str,
    node: str,
    state: Mapping[str, Any],
    at: float,
    inputs: Mapping[str, Any] | None = None,
) -> list[Event]:
    """The first events of the new run: its start, and what every node has left that is not behind `node`.

    `state`: shared state as `node` is to find it, key → value (a contribution where the key takes those). `inputs`: in
    the place of the run's; what was shared was made with those, so that it holds for no other run.
    All of it happens at `at`. What had been paid is not told again: a node whose result is shared has a `Reused` in
    its place.
    """
    started = start_of(events)
    assert started is not None  # As the store gives them.
    if started.flow != plan.name:
        raise InputError(f"run {started.run_id} is one of flow '{started.flow}', not of '{plan.name}'")
    refuse_other_kind(node, str, "a node is named by text", InputError)
    refuse_other_kind(state, Mapping, "the state of a fork is a mapping, as {'key': value}", InputError)
    _check(plan, node, state)
    shared = [plan.graph.ids[number] for number in range(len(plan.graph)) if not _follows(plan, node, number)]
    past, now = Past(events), Definitions(plan.fingerprints, plan.code)
    foreign = [each for each in past.results.values() if inputs is not None or not each.is_defined_as(now)]
    before = settings_of(events)
    patches = dict(patches_in(before))
    patches[node] = {**patches.get(node, {}), **state}
    settings = {
        **before,
        "forked": started.run_id,
        "from": node,
        "set": freeze(dict(state)),
        "patches": freeze({name: each for name, each in patches.items() if each}),
        "edited": sorted({file_path(each.path) for each in foreign}),
    }
    first = started._replace(
        run_id=run_id,
        at=at,
        inputs=started.inputs if inputs is None else inputs,
        settings=settings,
        fingerprints=plan.fingerprints,
        code=plan.code,
        graph=plan.skeleton,
        source=plan.source,
    )
    return [first, *shared_events(events, shared, started.run_id, at)]


def patches_of(plan: CompiledFlow, started: RunStarted) -> Mapping[int, Mapping[str, Any]]:
    """Node → what it is to find in shared state, for a run that was forked; nothing for any other."""
    index = plan.graph.index
    return {index[node]: dict(state) for node, state in patches_in(started.settings).items() if node in index}


def forked_nodes(plan: CompiledFlow, started: RunStarted) -> Collection[str]:
    """The nodes that a forked run is to run itself: the one that it begins at, and all behind it."""
    node = str(started.settings.get("from"))
    if node not in plan.graph.index:
        return ()
    return [name for number, name in enumerate(plan.graph.ids) if _follows(plan, node, number)]


def _check(plan: CompiledFlow, node: str, state: Mapping[str, Any]) -> None:
    if node not in plan.graph.index:
        raise InputError(f"the flow has no node '{node}'{did_you_mean(node, plan.graph.index)}")
    store = StateStore(plan.rules)
    try:
        store.admit(0, store.root, state)
    except StateError as error:
        raise InputError(str(error)) from error


def _follows(plan: CompiledFlow, node: str, number: int) -> bool:
    start = plan.graph.index[node]
    return number == start or plan.graph.is_ancestor(start, number)
