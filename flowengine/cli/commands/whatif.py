"""`flowengine whatif` says what recorded runs would have come to with one node changed. It has no effect outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from flowengine.cli.ending import INTERRUPTED, run_until_interrupted
from flowengine.cli.options import FiniteRange, duration, open_journal, store_option, strict_limits_option
from flowengine.cli.run_access import format_command
from flowengine.cli.run_rows import RowMeter, pace_of
from flowengine.cli.terminal import Results, complain, format_dollars, format_span, format_table
from flowengine.core import Budget, parse_value
from flowengine.errors import InputError
from flowengine.evals import WhatIf, WhatIfReport, WhatIfRow
from flowengine.models import load_environment

_SHOWN = 20
"""Runs that are told of one by one."""


@click.command("whatif")
@click.option("--node", required=True, metavar="NODE", help="The node that is changed; polish.judge is in polish.")
@click.option("--model", metavar="NAME", help="Another model.")
@click.option("--prompt", metavar="TEXT", help="Another prompt; @FILE is a file's text, @@ one @.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Another option of the node, as JSON.")
@click.option("--runs", required=True, metavar="RUNS", help="Which: 'flow=triage since=30d label.team=a limit=200'.")
@click.option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", help="Maximum cost in USD.")
@strict_limits_option
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Forks at once."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How the result is printed.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@click.option("--batch", is_flag=True, help="Use the vendors' batch APIs, at half the price.")
@click.option(
    "--deadline", callback=duration, metavar="TIME", help="With --batch: after this time, make calls directly."
)
@store_option
def command(
    node: str,
    model: str | None,
    prompt: str | None,
    settings: tuple[str, ...],
    runs: str,
    max_cost: float | None,
    strict_limits: bool | None,
    concurrency: int,
    form: str,
    quiet: bool,
    batch: bool,
    deadline: float | None,
    store: str | None,
) -> int:
    """Say what recorded runs would have given with another model, prompt or option of one node.

    Each run is forked at the node. What is behind it is recomputed only where its answer differs. Nothing has an effect
    outside, and no person is asked: recorded effects and answers stand, and where another effect or question would
    come, the fork ends there.
    """
    pace = pace_of(batch=batch, deadline=deadline)
    change = read_change(model, prompt, settings)
    results = Results()
    with open_journal(store) as journal:
        with results.alone():
            experiment = WhatIf(
                store=journal,
                node=node,
                change=change,
                runs=runs,
                budget=Budget(cost_usd=max_cost),
                concurrency=concurrency,
                environ=load_environment(),
                settings={"needs_prices": True} if strict_limits else {},
                batch=pace,
                tell=complain,
            )
        meter = RowMeter(len(experiment.chosen), quiet=quiet, is_batched=batch)
        experiment.heard = meter.hear
        try:
            with results.alone():
                report = run_until_interrupted(experiment.run)
        finally:
            meter.end()
    if report is None:
        complain("interrupted")
        return INTERRUPTED
    if form == "json":
        results.value({**report.totals(), "node": node, "change": change, "rows": _to_rows(report)})
    else:
        results.lines(_lines(report, store))
    if not report.is_whole:
        complain("a limit was reached: the same command goes on where it was")
        return 4
    return 0


def read_change(model: str | None, prompt: str | None, settings: Sequence[str]) -> dict[str, Any]:
    """Reads the change from the options, by the keys of a node."""
    change: dict[str, Any] = {}
    if model is not None:
        change["model"] = model
    if prompt is not None:
        change["prompt"] = _read_text(prompt)
    for pair in settings:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair!r:.80}: write it as KEY=VALUE")
        change[key] = parse_value(text)
    return change


def _read_text(text: str) -> str:
    if not text.startswith("@") or text.startswith("@@"):  # Doubled, it is the text's own.
        return text.removeprefix("@")
    try:
        return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompt {text}: it cannot be read: {error}") from error


def _lines(report: WhatIfReport, store: str | None) -> Iterator[str]:
    totals = report.totals()
    change = ", ".join(f"{key} {value}" for key, value in report.change.items())
    yield f"'{report.node}' with {' '.join(change.split())[:200]}: {totals['runs']:,} runs"
    if report.left:
        yield f"{report.left:,} runs were left out: the limit was reached"
    yield f"answers of '{report.node}' that differ: {totals['answers_differ']:,}"
    yield f"runs whose outputs differ: {totals['outputs_differ']:,} of {totals['ended']:,} that came to their end"
    if totals["ended_at_an_effect"]:
        yield f"runs that end where an effect would be another one: {totals['ended_at_an_effect']:,}"
    for what, count in totals["verdicts"].items():
        yield f"verdicts: {what}: {count:,}"
    table = [
        ["", "BEFORE", "AFTER"],
        [
            "cost",
            *(
                format_dollars(totals[f"cost_usd_{each}"], is_whole=not totals[f"unpriced_calls_{each}"])
                for each in ("before", "after")
            ),
        ],
        ["models took", *(format_span(totals[f"model_seconds_{each}"]) for each in ("before", "after"))],
    ]
    yield from format_table(table)
    yield f"paid now: {format_dollars(totals['paid_usd'], is_whole=not totals['paid_unpriced_calls'])}"
    rows = [each for each in report.rows if each.answer_differs or each.status != "succeeded"]
    if rows:
        yield ""
        yield from format_table([["RUN", "FORK", "STATUS", "ANSWER", "OUTPUTS", ""], *map(_format_row, rows[:_SHOWN])])
    forked = [each for each in rows if each.fork_id is not None]
    if forked:
        yield f"to look at one: {format_command(f'diff {forked[0].run_id}', str(forked[0].fork_id), store)}"


def _format_row(row: WhatIfRow) -> list[str]:
    differs = {True: "differs", False: "same", None: "-"}
    why = f"at '{row.ended_at}'" if row.ended_at is not None else " ".join(row.error.split())[:80]
    return [row.run_id, row.fork_id or "-", row.status, differs[row.answer_differs], differs[row.outputs_differ], why]


def _to_rows(report: WhatIfReport) -> list[dict[str, Any]]:
    return [
        {
            **row._asdict(),
            "verdicts": [each._asdict() for each in row.verdicts],
            "before": row.before._asdict(),
            "after": row.after._asdict(),
        }
        for row in report.rows
    ]
