"""Shows the paths on which untrusted text reaches an effect: as lines, as data, and drawn over the flow's graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from flowengine.flowfile.risks import RiskPath, RiskPaths, Step, place_text
from visualize.picture import Picture, PictureEdge, PictureNode, Risk


def list_risk_paths(risks: RiskPaths) -> Iterator[str]:
    """Yields lines for people: each open path with both its places, those that are meant with their reasons."""
    for risk in risks.open:
        yield f"{place_text(risk.effect_place)}: untrusted text reaches {risk.effect.what}"
        yield from _describe_risk(risk)
    for risk in risks.meant:
        yield f"{place_text(risk.effect_place)}: meant: {risk.meant}"
        yield from _describe_risk(risk)
    for trust in risks.unneeded:
        yield f"{place_text(trust.place)}: nothing needs this `trust`"
    count = len(risks.open)
    accepted = f", and {len(risks.meant)} that {'is' if len(risks.meant) == 1 else 'are'} meant" if risks.meant else ""
    yield f"{count or 'no'} path{'s' * (count != 1)} of untrusted text to an effect{accepted}"


def _describe_risk(risk: RiskPath) -> Iterator[str]:
    yield f"    from  {risk.source.what} ({place_text(risk.source_place)})"
    yield f"    by    {' → '.join(map(_describe_step, risk.steps))}"
    if risk.meant is not None:
        yield f"    to    {risk.effect.what}"
    for why in dict.fromkeys(each for each in (risk.source.why, risk.effect.why) if each):
        yield f"    note  {why}"


def _describe_step(step: Step) -> str:
    return f"{step.name} ({', '.join(step.keys)})" if step.keys else step.name


def risk_paths_as_data(flow: str, risks: RiskPaths) -> dict[str, Any]:
    """Returns the paths as data for scripts."""
    return {
        "flow": flow,
        "open": [_risk_as_data(each) for each in risks.open],
        "meant": [_risk_as_data(each) for each in risks.meant],
        "unneeded_trust": [
            {"node": ".".join(each.node) or None, "key": each.key or None, **_place_as_data(each.place.position())}
            for each in risks.unneeded
        ],
    }


def _risk_as_data(risk: RiskPath) -> dict[str, Any]:
    ends = {
        "source": (risk.source, risk.source_node, risk.source_place),
        "effect": (risk.effect, risk.effect_node, risk.effect_place),
    }
    data = {
        end: {
            "what": spot.what,
            "node": ".".join(node) or None,
            "key": spot.key,
            "assumed_since": spot.why or None,
            **_place_as_data(place.position()),
        }
        for end, (spot, node, place) in ends.items()
    }
    steps = [{"name": step.name, "kind": step.kind, "keys": list(step.keys)} for step in risk.steps]
    return {**data, "steps": steps, "meant": risk.meant}


def _place_as_data(position: tuple[str | None, int, int]) -> dict[str, Any]:
    return dict(zip(("file", "line", "column"), position, strict=True))


# --- drawn over the graph of the flow

_ORDER: Final[tuple[Risk, ...]] = ("", "passes", "source", "effect")
"""Roles of a node on a path, weakest first; on several paths the strongest is shown."""


def draw_risk_paths(picture: Picture, risks: RiskPaths) -> Picture:
    """The picture of a flow with the paths in it: inputs and state that they pass, thick edges, and dotted ones for
    those that are meant."""
    marks: dict[str, Risk] = {}
    kinds: dict[str, str] = {}
    edges = {(each.source, each.target): each for each in picture.edges}
    parents = {node.id: node.parent for node in picture.nodes}
    for risk, is_open in [*((each, True) for each in risks.open), *((each, False) for each in risks.meant)]:
        steps = [each for each in risk.steps if each.name in parents or (each.kind in ("input", "state"))]
        for number, step in enumerate(steps):
            kinds.setdefault(step.name, step.kind)
            parents.setdefault(step.name, None)
            mark: Risk = "effect" if number == len(steps) - 1 else "source" if number == 0 else "passes"
            if is_open:
                current: Risk = marks.get(step.name, "")
                marks[step.name] = mark if _ORDER.index(mark) > _ORDER.index(current) else current
        for one, other in pairwise(steps):
            _add_edge(edges, _meet(parents, one.name, other.name), is_open)
    ids = {node.id for node in picture.nodes}
    added = [PictureNode(name, kind) for name, kind in kinds.items() if name not in ids]
    nodes = tuple(each._replace(risk=marks.get(each.id, "")) for each in (*added, *picture.nodes))
    count = len(risks.open)
    title = f"{picture.name} · {count or 'no'} path{'s' * (count != 1)} of untrusted text to an effect"
    return picture._replace(name=title, nodes=nodes, edges=tuple(edges.values()))


def _add_edge(edges: dict[tuple[str, str], PictureEdge], ends: tuple[str, str] | None, is_open: bool) -> None:
    if ends is None:
        return
    edge = edges.get(ends) or PictureEdge(*ends, (), "declared" if is_open else "undecided")
    words = "untrusted text" if is_open else "meant"
    labels = edge.labels if words in edge.labels else (*edge.labels, words)
    edges[ends] = edge._replace(labels=labels, critical=edge.critical or is_open)


def _meet(parents: Mapping[str, str | None], one: str, other: str) -> tuple[str, str] | None:
    """The two ends, or the containers round them, that stand on one level; None where that is the same one."""
    lines: list[list[str]] = []
    for end in (one, other):
        line, at = [end], parents.get(end)
        while at is not None:
            line.append(at)
            at = parents.get(at)
        lines.append(line)
    for first in lines[0]:
        for second in lines[1]:
            if parents.get(first) == parents.get(second):
                return None if first == second else (first, second)
    return None
