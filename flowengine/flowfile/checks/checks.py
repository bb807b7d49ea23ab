"""Runs the checks on a spec in their order: names, structure, code, and then the runs that the graph allows.

All of them look at every flow. What they would say because of another mistake (an edge that a wrong name hides, a key
of a node that was left out) they keep to themselves: that is known from `Gaps`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flowengine.errors import Diagnostic
from flowengine.flowfile.analysis.flow_nodes import (
    NodePath,
    is_approval,
    is_code_node,
    is_http,
    is_tool,
    key_path,
    nodes_of,
    settings_in,
)
from flowengine.flowfile.analysis.gaps import gaps_of, note_adrift
from flowengine.flowfile.analysis.level_analysis import runs_of
from flowengine.flowfile.analysis.references import reads_of
from flowengine.flowfile.analysis.texts import Text, texts_of
from flowengine.flowfile.checks.agent_sources import check_context, sources_of
from flowengine.flowfile.checks.attached_files import check_attachments
from flowengine.flowfile.checks.names import check_bodies, check_names
from flowengine.flowfile.checks.permissions import (
    check_approvals,
    check_calls,
    check_code,
    check_servers,
    check_tools,
    code_of,
    servers_of,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.checks.results import check_engine_values, check_results, check_writers
from flowengine.flowfile.checks.structure import check_structure, check_subflows, subflows_of
from flowengine.flowfile.checks.warnings import (
    check_unused,
    warn_of_absent_values,
    warn_of_dead_nodes,
    warn_of_endless_loop,
    warn_of_targets_behind_siblings,
)
from flowengine.flowfile.file_texts import Subflows
from flowengine.flowfile.project.project import Project, project_of
from flowengine.flowfile.schema.flow_file import FlowSpec

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.code_kind import CodeNodeSpec

__all__ = ["check"]

# --- The code of nodes, as far as it is seen without running it


def check_code_texts(spec: FlowSpec, report: Report) -> None:
    """Each text of a node's code that cannot run, or reads a name that nothing gives."""
    for path, node in nodes_of(spec):
        if is_code_node(node):
            _check(node, path, report, names_are_known=path not in gaps_of(spec).arguments)


def _check(node: CodeNodeSpec, path: NodePath, report: Report, *, names_are_known: bool) -> None:
    text = Text((*key_path(path), "code"), node.code, "plain", path, "node")

    def tell(message: str, at: ast.AST, hint: str = "") -> None:
        report.in_text("FE524", message, text, getattr(at, "lineno", 1), getattr(at, "col_offset", 0) + 1, hint)

    try:
        tree = ast.parse(node.code)
    except SyntaxError as error:
        lines = node.code.splitlines() or [""]
        line = min(max(error.lineno or 1, 1), len(lines))
        column = min(max(error.offset or 1, 1), max(len(lines[line - 1]), 1))  # It may stand behind the line's end.
        report.in_text("FE524", f"this is no Python: {error.msg:.200}", text, line, column)
        return
    except (ValueError, RecursionError, MemoryError) as error:
        report.in_text("FE524", f"this is no Python: {type(error).__name__}", text, 1, 1)
        return
    for each in ast.walk(tree):
        if isinstance(each, ast.Set) and len(each.elts) == 1 and isinstance(each.elts[0], ast.Set | ast.Dict):
            tell("'code' is not rendered: give the value a name in 'with'", each)
            return
    if not any(True for each in _list_statements(tree) if isinstance(each, ast.Return)):
        report.in_text("FE524", "nothing is returned: end with `return …`", text, 1, 1)
    bound = {*node.with_, *_find_bound_names(tree), *vars(builtins), "__name__"}
    for each in ast.walk(tree) if names_are_known else ():
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id not in bound:
            known = [name for name in bound if not name.startswith("_")]
            hint = report.nearest(each.id, known) or "; give it in 'with'"
            tell(f"the code reads '{each.id}', which nothing gives it", each, hint)


def _list_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of the code itself, and not of functions and classes in it."""
    for each in ast.iter_child_nodes(tree):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield each
            yield from _list_statements(each)


def _find_bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that is given a value anywhere."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.alias):
            yield each.asname or each.name.partition(".")[0]
        elif isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and each.name:
            yield each.name
        elif isinstance(each, ast.MatchMapping) and each.rest:
            yield each.rest


# --- Checks of what can happen in a run, level by level


def check_runs(spec: FlowSpec, report: Report, *, warnings: bool) -> None:
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


def check(
    spec: FlowSpec, project: Project | None, subflows: Subflows, *, whole: bool, warnings: bool
) -> list[Diagnostic]:
    """Everything that is wrong with what a spec means. `whole`: nothing of it was mended."""
    report, beside = Report(spec), Report(spec)  # Of the file itself, and of files beside it.
    note_adrift(spec, gaps_of(spec))
    _check_texts(spec, report)
    check_structure(spec, report)
    check_attachments(spec, report)
    check_code_texts(spec, report)
    problems: list[Diagnostic] = []
    if _needs_project(spec):
        if project is None:
            project, problems = project_of(spec.path)
        check_code(spec, project, beside)
        check_calls(spec, project, beside)
        check_servers(spec, project, beside)
        check_tools(spec, project, beside)
        if whole:
            check_approvals(spec, project, beside)
        if any(is_http(node) for _, node in nodes_of(spec)):
            from flowengine.flowfile.checks.allowed_addresses import check_addresses_of  # Few flows send requests.

            check_addresses_of(spec, project, beside)
        if _tells_people(spec):
            from flowengine.flowfile.checks.allowed_addresses import check_notified  # Few flows tell anybody.

            check_notified(spec, project, beside)
        check_context(spec, project, beside)
        check_subflows(spec, project, subflows, beside, whole=whole)
    check_bodies(spec, report)
    check_names(spec, () if project is None else project.allow_env, report)
    check_runs(spec, report, warnings=warnings)
    if warnings:
        check_unused(spec, report)
    if warnings and whole and not problems and not report.failed and not beside.failed:
        from flowengine.flowfile.checks.untrusted_texts import check_untrusted_texts  # A run does without it.

        check_untrusted_texts(spec, project or project_of(spec.path)[0], report)
    return [*problems, *report.found, *beside.found]


def _check_texts(spec: FlowSpec, report: Report) -> None:
    for text, error in reads_of(spec).errors:
        if text.kind == "expression" and text.text.lstrip().startswith("{{"):
            inner = text.text.strip().removeprefix("{{").removesuffix("}}").strip()
            report.in_text("FE301", "an expression stands without braces", text, 1, 1, f"; did you mean '{inner}'?")
        else:
            report.in_text("FE301", error.message, text, error.line, error.column)
    too_much = reads_of(spec).too_much
    if too_much is not None:
        told = "with this node the texts of shared agents are looked up too often; name fewer values in them"
        report.at_key("FE312", told, key_path(too_much))
    for text in texts_of(spec):
        if text.kind == "plain" and ("{{" in text.text or "{%" in text.text):
            _refuse_braces(text, report)


def _refuse_braces(text: Text, report: Report) -> None:
    at = min(found for found in (text.text.find("{{"), text.text.find("{%")) if found >= 0)
    line = text.text.count("\n", 0, at) + 1
    column = at - text.text.rfind("\n", 0, at)
    key = next(str(part) for part in reversed(text.path) if isinstance(part, str))
    report.in_text("FE310", f"'{key}' is not rendered, so it takes no template", text, line, column)


def _tells_people(spec: FlowSpec) -> bool:
    return any(is_approval(node) and node.notify for _, node in nodes_of(spec))


def _needs_project(spec: FlowSpec) -> bool:
    if any(use.reference.path[0] == "env" for use in reads_of(spec).uses):
        return True
    if any(is_tool(node) or is_http(node) for _, node in nodes_of(spec)) or _tells_people(spec):
        return True
    if any(getattr(each, "approve", None) for _, each in settings_in(spec)):
        return True
    return any(True for _ in (*code_of(spec), *servers_of(spec), *sources_of(spec), *subflows_of(spec)))
