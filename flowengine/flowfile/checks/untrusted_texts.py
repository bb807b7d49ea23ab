"""Warns where untrusted text can reach an effect on the outside, and of each unneeded `trust`.

Only of a flow without errors. Paths that lie in another file that runs as a node are told where that file is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.project import Project
from flowengine.flowfile.risks import may_have_risks
from flowengine.flowfile.schema import FlowSpec

_SOURCES: Final = 3
"""Sources that are told of one effect, the nearest; `plan --risks` lists all."""
_ADVICE: Final = "; add an approval, restrict the value to a closed choice, or give a reason with `trust`"


def check_untrusted_texts(spec: FlowSpec, project: Project, report: Report) -> None:
    """Reports the paths on which untrusted text reaches an external effect."""
    if not may_have_risks(spec, project):
        return
    from flowengine.flowfile.risks import find_risk_paths, place_text  # Loads networkx.

    risk_paths = find_risk_paths(spec, project, most_sources=_SOURCES)
    inner_findings = {each for inner in spec.subflows.values() for each in _paths_inside(inner, project)}
    for risk in risk_paths.open:
        effect, source = risk.effect, risk.source
        if (place_text(risk.source_place), place_text(risk.effect_place), effect.what) in inner_findings:
            continue
        by = [f"'{each.name}'" for each in risk.steps[1:-1]]
        path = f", by way of {', '.join(by)}" if by else ""
        why = "; ".join(each for each in (source.why, effect.why) if each)
        text = f"untrusted text reaches {effect.what}: {source.what} ({place_text(risk.source_place)}){path}"
        report.at_place(
            "FE921", f"{text}{why and f' ({why})'}", risk.effect_place.position(), risk.effect_node, _ADVICE
        )
    for trust in risk_paths.unneeded:
        of_key = f" at '{trust.key}'" if trust.key else ""
        text = f"no untrusted text reaches an effect through this{of_key}, so `trust` is not needed"
        report.at_place("FE922", text, trust.place.position(), trust.node, "; remove it")


def _paths_inside(inner: FlowSpec, project: Project) -> Iterator[tuple[str, str, str]]:
    """The paths of another file, which are told as its own."""
    from flowengine.flowfile.risks import place_text, risk_paths_of

    risks = risk_paths_of(inner, project)
    for risk in (*risks.open, *risks.meant):
        yield place_text(risk.source_place), place_text(risk.effect_place), risk.effect.what
