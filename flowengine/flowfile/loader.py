"""Loads a flow file as a `FlowSpec`, or every problem of it in one pass, sorted by position.

The stages, each on what the one before it let through: bytes, YAML, structure, meaning. A file whose
structure is wrong in places is mended for the last stage, so a misspelt key does not hide a misspelt
target. Nothing here runs a flow or imports foreign code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from flowengine.core import is_map
from flowengine.errors import Diagnostic, FlowError
from flowengine.flowfile.analysis import Gaps
from flowengine.flowfile.checks import check_meaning, check_models
from flowengine.flowfile.file_texts import DISK, FlowFiles, Subflows, named_text_files, read_text_files, with_texts
from flowengine.flowfile.project import Project, project_of
from flowengine.flowfile.recovery import Mending
from flowengine.flowfile.schema import FlowSpec
from flowengine.flowfile.translate import problems_of
from flowengine.flowfile.yaml import SourceText, decode, parse_yaml

if TYPE_CHECKING:
    from flowengine.models import ModelFacts


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
    outcome = _load(path, text, project, warnings=False, files=files)
    if outcome.spec is None:
        raise FlowError(outcome.diagnostics)
    return outcome.spec


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
            project, project_problems = project_of(where)
            problems += project_problems
        file_texts = read_text_files(data, source, project, subflows.files)
        source.take(file_texts.files, file_texts.places)
        data = file_texts.data
        problems += file_texts.problems
        for path in file_texts.gaps:
            gaps.note(path, None)
        beside = {*map(str, file_texts.files), *(each.file for each in file_texts.problems)}
    spec, structural = _structure(data, source, gaps)
    problems += structural
    if spec is not None:
        spec_with_source = spec.with_source(source)
        problems += check_meaning(spec_with_source, project, subflows, whole=not problems, warnings=warnings)
        problems += check_models(spec_with_source, models) if models is not None else ()
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
            problems = problems_of(error, source)
        for each in (problem.diagnostic for problem in mending.news(problems)):
            reported.setdefault((each.code, each.line, each.column, each.message), each)
        mending.mend(problems, drop_nodes=number >= _PATIENCE)
    return None, list(reported.values())


def _sort_problems(problems: Sequence[Diagnostic], beside: Collection[str | None] = ()) -> list[Diagnostic]:
    """Sorts problems by position; those of the files `beside`, which texts were taken from, come after a file's own."""

    def rank(each: Diagnostic) -> tuple[str, int, int, str, str]:
        other = each.file or "" if each.file in beside else ""
        return other, each.line or 0, each.column or 0, each.code, each.message

    return sorted(problems, key=rank)
