"""Loads a flow file as a `FlowSpec`, or every problem of it in one pass, sorted by position.

The stages, each on what the one before it let through: bytes, YAML, structure, meaning. A file whose
structure is wrong in places is mended for the last stage, so a misspelt key does not hide a misspelt
target. Nothing here runs a flow or imports foreign code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from flowengine.core.values import is_map
from flowengine.errors import Diagnostic, FlowError
from flowengine.flowfile.analysis.flow_nodes import (
    is_approval,
    key_path,
    nodes_of,
    settings_in,
)
from flowengine.flowfile.analysis.gaps import Gaps, gaps_of, note_adrift
from flowengine.flowfile.analysis.level_analysis import runs_of
from flowengine.flowfile.analysis.references import Text, code_of, reads_of, servers_of, texts_of
from flowengine.flowfile.checks.agent_sources import check_attachments, check_context, check_models, sources_of
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
from flowengine.flowfile.file_texts import DISK, FlowFiles, Subflows, named_text_files, read_text_files, with_texts
from flowengine.flowfile.project.project import Project, project_of
from flowengine.flowfile.recovery import Mending
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.translate import problems_of
from flowengine.flowfile.yaml.parser import decode, parse_yaml
from flowengine.flowfile.yaml.positions import SourceText

if TYPE_CHECKING:
    from flowengine.models.worst_case import ModelFacts

__all__ = ["Loaded", "check_file", "check_text", "is_flow_file", "load_flow"]


class Loaded(NamedTuple):
    """A loaded file: a spec if it has no errors, and its problems, including warnings."""

    spec: FlowSpec | None
    diagnostics: list[Diagnostic]


def load_flow(
    path: str | PathLike[str] | None = None,
    *,
    text: str | None = None,
    project: Project | None = None,
    files: FlowFiles = DISK,
) -> FlowSpec:
    """The flow of a file, or of a text (then the path only names it). `FlowError` holds all problems.

    `files`: where the flows are that it runs as nodes.

    >>> load_flow(text="{flowengine: v1, name: hello, nodes: {greet: {prompt: Say hello.}}}").name
    'hello'
    """
    loaded = _load(path, text, project, warnings=False, files=files)
    if loaded.spec is None:
        raise FlowError(loaded.diagnostics)
    return loaded.spec


def check_file(
    path: str | PathLike[str], *, project: Project | None = None, models: ModelFacts | None = None
) -> list[Diagnostic]:
    """All problems of a file, warnings included, sorted by position.

    `models`: where the models' names are looked up; None: they are not, since that depends on where a flow runs.
    """
    return _load(path, None, project, warnings=True, models=models).diagnostics


def check_text(
    text: str, path: str | PathLike[str] | None = None, *, project: Project | None = None
) -> list[Diagnostic]:
    """All problems of a text, as `check_file`."""
    return _load(path, text, project, warnings=True).diagnostics


def is_flow_file(path: Path) -> bool:
    """Tells whether a file has the structure of a flow, whatever it means."""
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    read = DISK.text(path)
    parsed = None if isinstance(read, Diagnostic) else parse_yaml(read, str(path))
    if parsed is None or parsed.problems or not is_map(parsed.data):
        return False
    try:
        FlowSpec.model_validate(with_texts(parsed.data))
    except ValidationError:
        return False
    return True


def _load(
    path: str | PathLike[str] | None,
    text: str | None,
    project: Project | None,
    warnings: bool,
    files: FlowFiles = DISK,
    models: ModelFacts | None = None,
) -> Loaded:
    """The flow with those that it runs as nodes. Their problems follow its own."""

    def load_inner(path: Path, project: Project, subflows: Subflows) -> Loaded:
        return _load_one(path, None, project, subflows, warnings)

    where = None if path is None else Path(path)
    subflows = Subflows(load_inner, where, files)
    spec, problems = _load_one(where, text, project, subflows, warnings, models)
    if not subflows.problems:
        return Loaded(spec, problems)
    inner = sorted(subflows.problems, key=lambda each: each.file or "")
    failed = any(each.severity == "error" for each in inner)
    return Loaded(None if failed else spec, [*problems, *inner])


def _load_one(
    where: Path | None,
    text: str | None,
    project: Project | None,
    subflows: Subflows,
    warnings: bool,
    models: ModelFacts | None = None,
) -> Loaded:
    file = None if where is None else str(where)
    read = _text_of(where, text, subflows.files)
    if isinstance(read, Diagnostic):
        return Loaded(None, [read])
    parsed = parse_yaml(read, file)
    problems = list(parsed.problems)
    if parsed.place is None:
        return Loaded(None, problems)
    if not is_map(parsed.data):
        problems.append(
            Diagnostic("FE115", "a flow file is a map with the keys flowengine, name and nodes", file, 1, 1)
        )
        return Loaded(None, _sort_problems(problems))
    source = SourceText(read, where, parsed.place)
    data = parsed.data
    beside: set[str | None] = set()
    gaps = Gaps()
    if named_text_files(data):
        if project is None:
            project, found = project_of(where)
            problems += found
        brought = read_text_files(data, source, project, subflows.files)
        source.take(brought.files, brought.places)
        data = brought.data
        problems += brought.problems
        for path in brought.lost:
            gaps.note(path, None)
        beside = {*map(str, brought.files), *(each.file for each in brought.problems)}
    spec, structural = _structure(data, source, gaps)
    problems += structural
    if spec is not None:
        placed = spec.with_source(source)
        problems += _check(placed, project, subflows, whole=not problems, warnings=warnings)
        problems += check_models(placed, models) if models is not None else ()
        beside |= {each.file for each in problems if each.code == "FE921"}  # What acts may stand in a subflow's file.
    failed = any(each.severity == "error" for each in problems)
    return Loaded(None if failed else spec, _sort_problems(problems, beside - {file}))


def _text_of(path: Path | None, text: str | None, files: FlowFiles) -> str | Diagnostic:
    if text is not None:
        return decode(text.encode("utf-8", "surrogatepass"), None if path is None else str(path))
    if path is None:
        raise TypeError("load_flow() needs a path or a text")
    return files.text(path)


_ROUNDS: Final = 8
_PATIENCE: Final = 5
"""Rounds after which nodes that are still wrong are left out as a whole."""


def _structure(data: dict[str, Any], source: SourceText, gaps: Gaps) -> tuple[FlowSpec | None, list[Diagnostic]]:
    """The spec, of the mended data where it must be, and what is wrong with the structure."""
    try:
        spec = FlowSpec.model_validate(data)
    except ValidationError:
        spec, problems = _mend(data, source, gaps)
    else:
        problems = []
    if spec is not None:
        spec.remember("gaps", lambda _: gaps)
    return spec, problems


def _mend(data: dict[str, Any], source: SourceText, gaps: Gaps) -> tuple[FlowSpec | None, list[Diagnostic]]:
    reported: dict[tuple[Any, ...], Diagnostic] = {}
    mending = Mending(data, source, gaps)
    for each in mending.supply_types():
        reported[each.code, each.line, each.column, each.message] = each
    for number in range(_ROUNDS):
        try:
            return FlowSpec.model_validate(mending.data), list(reported.values())
        except ValidationError as error:
            found = problems_of(error, source)
        for each in (problem.diagnostic for problem in mending.news(found)):
            reported.setdefault((each.code, each.line, each.column, each.message), each)
        mending.mend(found, drop_nodes=number >= _PATIENCE)
    return None, list(reported.values())


def _sort_problems(problems: Sequence[Diagnostic], beside: Collection[str | None] = ()) -> list[Diagnostic]:
    """By position; those of the files `beside`, which texts were taken from, come after a file's own."""

    def rank(each: Diagnostic) -> tuple[str, int, int, str, str]:
        other = each.file or "" if each.file in beside else ""
        return other, each.line or 0, each.column or 0, each.code, each.message

    return sorted(problems, key=rank)


# --- The checks of what a spec means, in their order: names, structure, code, and then the runs that the graph allows
#
# All of them look at every flow. What they would say because of another mistake (an edge that a wrong name hides, a key
# of a node that was left out) they keep to themselves: that is known from `Gaps`.


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


def _check(
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
