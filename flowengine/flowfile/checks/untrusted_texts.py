"""Warns where a stranger's text can reach an effect on the outside, and of each `trust` that nothing needs.

Only of a flow without errors. Paths that lie in another file that runs as a node are told where that file is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.risks.text_flow import may_have_ways
from flowengine.flowfile.schema.flow_file import FlowSpec

__all__ = ["check_strange_texts"]

_SOURCES: Final = 3
"""Sources that are told of one effect, the nearest; `plan --risks` lists all."""
_ADVICE: Final = "; let a person see it before, close the choice, or say why it is meant with `trust`"


def check_strange_texts(spec: FlowSpec, project: Project, report: Report) -> None:
    """The ways on which a stranger's text gets to where the flow acts."""
    if not may_have_ways(spec):
        return
    from flowengine.flowfile.risks.risk_paths import find_risk_paths, place_text  # Loads networkx.

    found = find_risk_paths(spec, project, most_sources=_SOURCES)
    told = {each for inner in spec.subflows.values() for each in _told_inside(inner, project)}
    for way in found.open:
        effect, source = way.effect, way.source
        if (place_text(way.source_place), place_text(way.effect_place), effect.what) in told:
            continue
        by = [f"'{each.name}'" for each in way.steps[1:-1]]
        path = f", by way of {', '.join(by)}" if by else ""
        why = "; ".join(each for each in (source.why, effect.why) if each)
        text = f"a stranger's text reaches {effect.what}: {source.what} ({place_text(way.source_place)}){path}"
        report.at_place("FE921", f"{text}{why and f' ({why})'}", way.effect_place.position(), way.effect_node, _ADVICE)
    for trust in found.unneeded:
        of_key = f" at '{trust.key}'" if trust.key else ""
        text = f"no stranger's text gets to an effect by way of this{of_key}, so nothing needs `trust`"
        report.at_place("FE922", text, trust.place.position(), trust.node, "; remove it")


def _told_inside(inner: FlowSpec, project: Project) -> Iterator[tuple[str, str, str]]:
    """The ways of another file, which are told as its own."""
    from flowengine.flowfile.risks.risk_paths import place_text, risk_paths_of

    ways = risk_paths_of(inner, project)
    for way in (*ways.open, *ways.meant):
        yield place_text(way.source_place), place_text(way.effect_place), way.effect.what
