"""Checks what the spec of a flow means: names, structure, code, permissions, and the runs that its graph allows.

All checks look at every flow. What they would say because of another mistake (an edge that a wrong name hides, a key
of a node that was left out) they keep to themselves: that is known from `Gaps`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from flowengine.errors import Diagnostic
from flowengine.flowfile.analysis import (
    Text,
    code_of,
    gaps_of,
    is_approval,
    key_path,
    nodes_of,
    note_adrift,
    reads_of,
    runs_of,
    servers_of,
    settings_in,
    texts_of,
)
from flowengine.flowfile.checks.agent_sources import check_attachments, check_context, sources_of
from flowengine.flowfile.checks.code_texts import check_code_texts
from flowengine.flowfile.checks.names import check_bodies, check_decisions, check_names, check_switches
from flowengine.flowfile.checks.permissions import (
    check_approvals,
    check_code,
    check_servers,
    check_tools,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.checks.results import check_engine_values, check_results, check_writers
from flowengine.flowfile.checks.structure import check_structure, check_subflows
from flowengine.flowfile.checks.unbounded import warn_of_unbounded
from flowengine.flowfile.checks.warnings import (
    check_unused,
    warn_of_absent_values,
    warn_of_bare_expressions,
    warn_of_dead_nodes,
    warn_of_endless_loop,
    warn_of_inputs,
    warn_of_open_choices,
    warn_of_targets_behind_siblings,
)
from flowengine.flowfile.file_texts import Subflows
from flowengine.flowfile.project import Project, project_of
from flowengine.flowfile.schema import FlowSpec


def check_meaning(
    spec: FlowSpec, project: Project | None, subflows: Subflows, *, whole: bool, warnings: bool
) -> list[Diagnostic]:
    """Everything that is wrong with what a spec means. `whole`: nothing of it was mended."""
    report, beside = Report(spec), Report(spec)  # Of the file itself, and of files beside it.
    note_adrift(spec, gaps_of(spec))
    _check_texts(spec, report)
    check_structure(spec, report)
    check_attachments(spec, report)
    types = {node.type for _, node in nodes_of(spec)}
    if "code" in types:
        check_code_texts(spec, report)
    problems: list[Diagnostic] = []
    if _needs_project(spec, types):
        if project is None:
            project, problems = project_of(spec.path)
        if "tool" in types or _names_code(spec):
            check_code(spec, project, beside)
            check_servers(spec, project, beside)
            check_tools(spec, project, beside)
        if whole and _asks_people(spec):
            check_approvals(spec, project, beside)
        if "http" in types:
            from flowengine.flowfile.checks.allowed_addresses import check_addresses_of  # Few flows send requests.

            check_addresses_of(spec, project, beside)
        if _tells_people(spec):
            from flowengine.flowfile.checks.allowed_addresses import check_notified  # Few flows tell anybody.

            check_notified(spec, project, beside)
        check_context(spec, project, beside)
        check_subflows(spec, project, subflows, beside, whole=whole)
    check_bodies(spec, report)
    check_names(spec, () if project is None else project.allow_env, report)
    check_decisions(spec, report)
    _check_runs(spec, report, warnings=warnings)
    if whole and "condition" in types:
        check_switches(spec, report)
    if warnings:
        check_unused(spec, report)
        warn_of_bare_expressions(spec, report)
        warn_of_open_choices(spec, report)
        warn_of_inputs(spec, lambda: project or project_of(spec.path)[0], report)
    if warnings and whole and not problems and not report.failed and not beside.failed:
        from flowengine.flowfile.checks.untrusted_texts import check_untrusted_texts  # A run does without it.

        check_untrusted_texts(spec, project or project_of(spec.path)[0], report)
        warn_of_unbounded(spec, report)
    return [*problems, *report.diagnostics, *beside.diagnostics]


def _check_runs(spec: FlowSpec, report: Report, *, warnings: bool) -> None:
    """Ambiguous values and unordered writers; with `warnings` also what is merely doubtful."""
    if gaps_of(spec).everything:
        return
    every = runs_of(spec)
    for runs in every.values():
        check_results(spec, runs, report)
        check_engine_values(spec, runs, report)
        check_writers(spec, runs, report)
    for runs in every.values() if warnings else ():
        warn_of_absent_values(spec, runs, report)
        warn_of_targets_behind_siblings(runs, report)
        warn_of_dead_nodes(runs, report)
        warn_of_endless_loop(spec, runs.level, report)


def _check_texts(spec: FlowSpec, report: Report) -> None:
    for text, error in reads_of(spec).errors:
        if text.kind == "expression" and text.text.lstrip().startswith("{{"):
            inner = text.text.strip().removeprefix("{{").removesuffix("}}").strip()
            report.in_text("FE301", "an expression stands without braces", text, 1, 1, f"; did you mean '{inner}'?")
        else:
            report.in_text("FE301", error.message, text, error.line, error.column)
    too_much = reads_of(spec).too_much
    if too_much is not None:
        message = "with this node the texts of shared agents are looked up too often; name fewer values in them"
        report.at_key("FE312", message, key_path(too_much))
    for text in texts_of(spec):
        if text.kind == "plain" and ("{{" in text.text or "{%" in text.text):
            _refuse_braces(text, report)


def _refuse_braces(text: Text, report: Report) -> None:
    at = min(position for position in (text.text.find("{{"), text.text.find("{%")) if position >= 0)
    line = text.text.count("\n", 0, at) + 1
    column = at - text.text.rfind("\n", 0, at)
    key = next(str(part) for part in reversed(text.path) if isinstance(part, str))
    report.in_text("FE310", f"'{key}' is not rendered, so it takes no template", text, line, column)


def _tells_people(spec: FlowSpec) -> bool:
    return any(is_approval(node) and node.notify for _, node in nodes_of(spec))


def _asks_people(spec: FlowSpec) -> bool:
    """Tells whether calls of an agent's tools wait for a person."""
    return any(getattr(each, "approve", None) for _, each in settings_in(spec))


def _names_code(spec: FlowSpec) -> bool:
    """Tells whether the flow names code of the project or servers of tools."""
    return any(True for _ in chain(code_of(spec), servers_of(spec)))


def _needs_project(spec: FlowSpec, types: Collection[str]) -> bool:
    """Tells whether what the project file allows matters to a flow; `types`: of its nodes."""
    return (
        any(each in types for each in ("tool", "http", "subflow"))
        or _tells_people(spec)
        or _asks_people(spec)
        or _names_code(spec)
        or any(True for _ in sources_of(spec))
        or any(use.reference.path[0] == "env" for use in reads_of(spec).uses)
    )
