"""`flowengine graph` draws a flow, or a run with the path that it took."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click

from flowengine.cli.options import open_journal, store_option
from flowengine.cli.run_access import read
from flowengine.cli.terminal import Results
from flowengine.core import write_output
from flowengine.errors import RunNotFoundError, did_you_mean
from flowengine.flow import Flow
from flowengine.flowfile import load_flow
from flowengine.flowfile.project import find_project
from flowengine.journal import reading_record
from visualize.draw import FORMATS, render
from visualize.picture import Picture, picture_of_run
from visualize.style import Heat
from visualize.svg import PAPERS, Paper, Theme

_SUFFIXES: Final = {**{f".{form}": form for form in FORMATS}, ".gv": "dot", ".mmd": "mermaid"}


@click.command("graph")
@click.argument("what", metavar="FLOW|RUN")
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: as FILE ends, else svg]")
@click.option("-o", "--output", "file", metavar="FILE", help="Write to this file instead of stdout.")
@click.option("--risks", is_flag=True, help="For a flow file: also draw paths of untrusted text to effects.")
@click.option("--theme", type=click.Choice(("auto", "light", "dark")), help="Of SVG and PNG. [default: the reader's]")
@click.option("--heat", type=click.Choice(("time", "cost")), help="SVG and PNG of a run: colour nodes by this.")
@click.option("--paper", type=click.Choice(tuple(PAPERS)), help="Fit an SVG on a sheet of this size.")
@store_option
def command(
    what: str,
    form: str | None,
    file: str | None,
    risks: bool,
    theme: Theme | None,
    heat: Heat | None,
    paper: Paper | None,
    store: str | None,
) -> int:
    """Draw a flow file, or a run: an id, the start of one, or @last.

    A run is drawn from its record: what ran, what was skipped and why, what failed, time, tokens and cost.
    """
    results = Results()
    ending = Path(file or "").suffix.lower()
    if form is None and ending and ending not in _SUFFIXES:
        endings = f"{', '.join(_SUFFIXES)}{did_you_mean(ending, _SUFFIXES)}"
        raise click.UsageError(f"no format has the ending '{ending}'; give --format, or one of {endings}")
    picture_format = form or _SUFFIXES.get(ending, "svg")
    if file is None and picture_format == "png" and results.on_terminal:
        raise click.UsageError("a PNG is no text for a terminal: write it to a file with -o FILE")
    if picture_format not in ("svg", "png") and (theme or heat):
        raise click.UsageError(f"--theme and --heat are those of an SVG or a PNG, and this is {picture_format}")
    if picture_format != "svg" and paper:
        raise click.UsageError(f"--paper is that of an SVG, and this is {picture_format}")
    look = partial(render, form=picture_format, theme=theme or "auto", heat=heat or "", paper=paper or "")
    with results.alone():
        picture = _draw(what, look, store, risks)
    if file is None:
        results.bytes(picture if picture_format == "png" or picture.endswith(b"\n") else picture + b"\n")
    else:
        write_output(file, [picture])
    return 0


def _draw(what: str, look: Callable[[Picture], bytes], store: str | None, risks: bool) -> bytes:
    """Draws the flow file where there is one of that name, else the run."""
    if os.path.exists(what) or what.endswith((".yaml", ".yml")):
        flow = Flow.from_yaml(what)
        return look(_draw_risks(flow.picture(), what) if risks else flow.picture())
    if risks:
        raise click.UsageError(f"--risks draws the ways through a flow file, and there is no file '{what}'")
    with open_journal(store) as journal:
        try:
            run_id = journal.find(what)
            with reading_record(run_id):
                return look(picture_of_run(read(journal, run_id)))
        except RunNotFoundError as error:
            raise RunNotFoundError(f"there is no file '{what}', and {error}") from error


def _draw_risks(picture: Picture, file: str) -> Picture:
    from flowengine.cli.risks import draw_risk_paths  # Loads networkx.
    from flowengine.flowfile.risks import risk_paths_of

    project = find_project(file)
    return draw_risk_paths(picture, risk_paths_of(load_flow(file, project=project), project))
