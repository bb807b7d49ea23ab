"""`flowengine blame` says which edit between two versions of a flow moved the score of an eval."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import click

from flowengine.cli.ending import INTERRUPTED, run_until_interrupted
from flowengine.cli.options import FiniteRange, open_journal, store_option, strict_limits_option
from flowengine.cli.terminal import Results, complain, format_dollars, format_table
from flowengine.core import Budget
from flowengine.evals import (
    FEWEST,
    PREFIX,
    Blame,
    BlameReport,
    Probe,
    change_cells,
    describe_change,
    load_eval,
    require_statistics,
    revision_of,
    tree_at,
    without_nan,
)
from flowengine.models import load_environment


@click.command("blame")
@click.argument("file", metavar="FILE")
@click.option("--good", required=True, metavar="REV", help="A git revision with a good score.")
@click.option("--bad", required=True, metavar="REV", help="A git revision with a bad score.")
@click.option("--scorer", metavar="NAME", help="The scorer.  [default: the eval's first]")
@click.option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", help="Maximum cost in USD.")
@strict_limits_option
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How the result is printed.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@store_option
def command(
    file: str,
    good: str,
    bad: str,
    scorer: str | None,
    max_cost: float | None,
    strict_limits: bool | None,
    form: str,
    quiet: bool,
    store: str | None,
) -> int:
    """Say which edit of a flow moved the score of the eval in FILE.

    Parts of the flow's file (nodes, agents, other keys) are taken back to what they were, singly and in halves. Each
    such flow pays only behind what it changes.
    """
    results = Results()
    require_statistics()
    with results.alone():
        loaded = load_eval(file, environ=load_environment())
    path = loaded.flow_path
    commits = [revision_of(path, each.removeprefix(PREFIX)) for each in (good, bad)]
    with tree_at(path, commits[0]) as then, tree_at(path, commits[1]) as now, open_journal(store) as journal:
        blame = Blame(
            file=loaded,
            store=journal,
            good=then,
            bad=now,
            scorer=scorer,
            budget=Budget(cost_usd=max_cost),
            environ=load_environment(),
            settings={"folder": os.getcwd(), **({"needs_prices": True} if strict_limits else {})},
            tell=(lambda text: None) if quiet else complain,
        )
        with results.alone():
            report = run_until_interrupted(blame.run)
    if report is None:
        complain("interrupted\n  the same command takes what was paid from its runs")
        return INTERRUPTED
    if form == "json":
        results.value(without_nan({**report._asdict(), "blamed": report.blamed}))
    else:
        results.lines(_lines(report))
    return 0 if report.finished else 4


def _lines(report: BlameReport) -> Iterator[str]:
    yield f"'{report.scorer}': good {_format_mean(report.good)}, bad {_format_mean(report.bad)}"
    whole, moved = report.whole, report.whole.better + report.whole.worse
    if not whole.n:
        yield "no row has a score in both versions: there is nothing to compare"
    elif not whole.mean:
        yield "both versions have the same mean: no part is to blame"
    elif moved < FEWEST:
        rows = "1 row differs" if moved == 1 else f"{moved} rows differ"
        yield f"the difference of the two versions may be chance: {rows}, and fewer than {FEWEST} cannot tell"
    elif not whole.is_certain:
        yield "the difference of the two versions may be chance: more rows would tell"
    if report.probes:
        yield ""
        yield from format_table([["TAKEN BACK", "MEAN", "GAIN [95 %]", ""], *map(_row, report.probes)])
        yield ""
        names = ", ".join(f"'{each}'" for each in report.blamed)
        yield f"to blame: {names}" if names else "no part by itself brings the score back for certain"
        if not names:
            yield "not tried: files that code reads, what is installed, the environment, and other models behind a name"
    paid = format_dollars(report.paid_usd, is_whole=not report.paid_unpriced_calls)
    yield f"paid {paid}{'' if report.finished else '; the limit was reached'}"


def _row(probe: Probe) -> list[str]:
    gain, parts = probe.gain, ", ".join(probe.parts)
    if gain is None or probe.mean is None:
        return [parts, "-", "-", probe.error]
    _, change, *_ = change_cells("", gain)
    return [parts, _format_mean(probe.mean), change, "" if gain.is_certain else describe_change(gain)]


def _format_mean(mean: float) -> str:
    return "-" if math.isnan(mean) else f"{mean:.3f}"
