"""Shows the ways on which a stranger's text reaches an effect: as lines, as data, and drawn over the flow's graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from flowengine.flowfile.risks.risk_paths import RiskPath, RiskPaths, Step, place_text
from visualize.picture import Picture, PictureEdge, PictureNode, Risk

__all__ = ["draw_risk_paths", "list_risk_paths", "risk_paths_as_data"]


def list_risk_paths(ways: RiskPaths) -> Iterator[str]:
    """For people: each open way with both its places, those that are meant with their reasons."""
    for way in ways.open:
        yield f"{place_text(way.effect_place)}: a stranger's text reaches {way.effect.what}"
        yield from _describe_way(way)
    for way in ways.meant:
        yield f"{place_text(way.effect_place)}: meant: {way.meant}"
        yield from _describe_way(way)
    for trust in ways.unneeded:
        yield f"{place_text(trust.place)}: nothing needs this `trust`"
    count = len(ways.open)
    meant = f", and {len(ways.meant)} that {'is' if len(ways.meant) == 1 else 'are'} meant" if ways.meant else ""
    yield f"{count or 'no'} way{'s' * (count != 1)} of a stranger's text to an effect{meant}"


def _describe_way(way: RiskPath) -> Iterator[str]:
    yield f"    from  {way.source.what} ({place_text(way.source_place)})"
    yield f"    by    {' → '.join(map(_describe_step, way.steps))}"
    if way.meant is not None:
        yield f"    to    {way.effect.what}"
    for why in dict.fromkeys(each for each in (way.source.why, way.effect.why) if each):
        yield f"    note  {why}"


def _describe_step(step: Step) -> str:
    return f"{step.name} ({', '.join(step.keys)})" if step.keys else step.name


def risk_paths_as_data(flow: str, ways: RiskPaths) -> dict[str, Any]:
    """For scripts."""
    return {
        "flow": flow,
        "open": [_way_as_data(each) for each in ways.open],
        "meant": [_way_as_data(each) for each in ways.meant],
        "unneeded_trust": [
            {"node": ".".join(each.node) or None, "key": each.key or None, **_place_as_data(each.place.position())}
            for each in ways.unneeded
        ],
    }


def _way_as_data(way: RiskPath) -> dict[str, Any]:
    ends = {
        "source": (way.source, way.source_node, way.source_place),
        "effect": (way.effect, way.effect_node, way.effect_place),
    }
    shown = {
        end: {
            "what": spot.what,
            "node": ".".join(node) or None,
            "key": spot.key,
            "assumed_since": spot.why or None,
            **_place_as_data(place.position()),
        }
        for end, (spot, node, place) in ends.items()
    }
    steps = [{"name": step.name, "kind": step.kind, "keys": list(step.keys)} for step in way.steps]
    return {**shown, "steps": steps, "meant": way.meant}


def _place_as_data(position: tuple[str | None, int, int]) -> dict[str, Any]:
    return dict(zip(("file", "line", "column"), position, strict=True))


# --- drawn over the graph of the flow

_ORDER: Final[tuple[Risk, ...]] = ("", "passes", "source", "effect")
"""Of what a node is on several ways, the last of these is shown."""


def draw_risk_paths(picture: Picture, ways: RiskPaths) -> Picture:
    """The picture of a flow with the ways in it: inputs and state that they pass, thick edges, and dotted ones for
    those that are meant."""
    risks: dict[str, Risk] = {}
    kinds: dict[str, str] = {}
    edges = {(each.source, each.target): each for each in picture.edges}
    parents = {node.id: node.parent for node in picture.nodes}
    for way, is_open in [*((each, True) for each in ways.open), *((each, False) for each in ways.meant)]:
        steps = [each for each in way.steps if each.name in parents or (each.kind in ("input", "state"))]
        for number, step in enumerate(steps):
            kinds.setdefault(step.name, step.kind)
            parents.setdefault(step.name, None)
            mark: Risk = "effect" if number == len(steps) - 1 else "source" if number == 0 else "passes"
            if is_open:
                known: Risk = risks.get(step.name, "")
                risks[step.name] = mark if _ORDER.index(mark) > _ORDER.index(known) else known
        for one, other in pairwise(steps):
            _add_edge(edges, _meet(parents, one.name, other.name), is_open)
    drawn = {node.id for node in picture.nodes}
    added = [PictureNode(name, kind) for name, kind in kinds.items() if name not in drawn]
    nodes = tuple(each._replace(risk=risks.get(each.id, "")) for each in (*added, *picture.nodes))
    count = len(ways.open)
    title = f"{picture.name} · {count or 'no'} way{'s' * (count != 1)} of a stranger's text to an effect"
    return picture._replace(name=title, nodes=nodes, edges=tuple(edges.values()))


def _add_edge(edges: dict[tuple[str, str], PictureEdge], ends: tuple[str, str] | None, is_open: bool) -> None:
    if ends is None:
        return
    known = edges.get(ends) or PictureEdge(*ends, (), "declared" if is_open else "undecided")
    words = "a stranger's text" if is_open else "meant"
    labels = known.labels if words in known.labels else (*known.labels, words)
    edges[ends] = known._replace(labels=labels, critical=known.critical or is_open)


def _meet(parents: Mapping[str, str | None], one: str, other: str) -> tuple[str, str] | None:
    """The two ends, or the containers round them, that stand on one level; None where that is the same one."""
    lines: list[list[str]] = []
    for end in (one, other):
        line, at = [end], parents.get(end)
        while at is not None:
            line.append(at)
            at = parents.get(at)
        lines.append(line)
    for left in lines[0]:
        for right in lines[1]:
            if parents.get(left) == parents.get(right):
                return None if left == right else (left, right)
    return None
