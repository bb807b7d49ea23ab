"""`flowengine validate` reports every problem of flow files. It neither runs them nor imports what they call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import click

from flowengine.cli.ending import format_excerpt
from flowengine.cli.environment import read_model_facts
from flowengine.cli.terminal import Results, complain
from flowengine.errors import Diagnostic, FlowError
from flowengine.flowfile import check_file, find_flow_files, find_yaml_files, load_flow, says_flowengine
from flowengine.flowfile.checks import describe_unnamed, vendors_of
from flowengine.flowfile.project import find_project
from flowengine.models import ModelFacts

Format = Literal["text", "json", "github"]

_OF_FLOWS: Final = (".flowtest.yaml", ".floweval.yaml")
"""Files that belong to flows, and are read by other commands."""


@click.command("validate")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "github"]), default="text", show_default=True,
    help="text: one line per problem; json: an array; github: annotations.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--deny-risks", is_flag=True, help="Exit code 1 if untrusted text reaches an effect (FE921).")
@click.option("-v", "--verbose", is_flag=True, help="Also show the vendor of each model, and why.")
def command(paths: tuple[str, ...], form: Format, strict: bool, deny_risks: bool, verbose: bool) -> int:
    """Check flow files; a folder stands for the flow files anywhere below it.

    A model's name is looked up with the environment and the project that are here. Exit code 2 where a flow has errors.
    """
    listings = [list_flow_files(path) for path in paths]
    files = list(dict.fromkeys(file for group, _ in listings for file in group))
    looked_up = {file: _read_model_facts(file) for file in files}
    every = (each for file in files for each in check_file(file, project=find_project(file), models=looked_up[file]))
    diagnostics = list(dict.fromkeys(every))  # A file that several flows run is told of once.
    results = Results()
    if form == "json":
        results.value(diagnostics)
    elif form == "github":
        results.lines(_format_as_github(diagnostics))
    else:
        results.lines(f"{each}{format_excerpt(each) if results.on_terminal else ''}" for each in diagnostics)
    if verbose and form == "text":
        for file, facts in looked_up.items():
            results.lines(_describe_models(file, facts))
    errors = sum(each.severity == "error" for each in diagnostics)
    if form == "text":
        complain(_format_summary(len(files), errors, len(diagnostics) - errors, sum(others for _, others in listings)))
    if errors or (strict and diagnostics):
        return 2
    return 1 if deny_risks and any(each.code == "FE921" for each in diagnostics) else 0


def check_with_models(file: str | Path) -> list[Diagnostic]:
    """All problems of a flow file, where its models' names are looked up with the environment and the project."""
    return check_file(file, project=find_project(file), models=_read_model_facts(str(file)))


def _read_model_facts(file: str) -> ModelFacts:
    """Reads the model settings of the file's project."""
    project = find_project(file)
    return read_model_facts(project)


def _describe_models(file: str, facts: ModelFacts) -> Iterator[str]:
    try:
        spec = load_flow(file, project=find_project(file))
    except FlowError:
        return  # Its problems are told.
    for model, vendor in vendors_of(spec, facts).items():
        yield f"{file}: model '{model}' goes to {vendor.provider}, since {vendor.because}"
    if (unnamed := describe_unnamed(spec, facts)) is not None:
        yield f"{file}: {unnamed}"


def list_flow_files(path: str) -> tuple[list[str], int]:
    """The file itself, or the flow files anywhere below a folder, and how many YAML files there are of other kinds.

    A folder without a flow file is an error.
    """
    place = Path(path)
    if not place.is_dir():
        return [path], 0
    files = [str(each) for each in find_flow_files(place)]
    others = sum(not (each.name.endswith(_OF_FLOWS) or says_flowengine(each)) for each in find_yaml_files(place))
    if not files:
        note = f" ({others} YAML file{'s' * (others != 1)} without `flowengine:`)" if others else ""
        raise click.UsageError(f"there is no flow file below '{path}'{note}")
    return files, others


def _format_as_github(problems: Sequence[Diagnostic]) -> Iterator[str]:
    """Workflow commands; their values are escaped, so no text of a flow can start one."""
    for each in problems:
        place = {"file": each.file, "line": each.line, "col": each.column, "title": each.code}
        values = ",".join(f"{key}={_escape_property(str(value))}" for key, value in place.items() if value is not None)
        where = f"node '{each.node}': " if each.node else ""
        yield f"::{each.severity} {values}::{_escape_data(f'{where}{each.message}{each.hint}')}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _format_summary(files: int, errors: int, warnings: int, others: int) -> str:
    counts = [
        f"{count} {word}{'s' * (count != 1)}" for count, word in ((errors, "error"), (warnings, "warning")) if count
    ]
    passed = f"; {others} other YAML file{'s' * (others != 1)} without `flowengine:` passed over" if others else ""
    return f"{files} file{'s' * (files != 1)}: {' and '.join(counts) or 'no problems'}{passed}"
