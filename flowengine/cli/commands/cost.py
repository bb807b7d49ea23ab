"""`flowengine cost` prints what the runs of a store have spent, by flow, node, model or label. It writes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final

import click

from flowengine.cli.options import duration, format_store, label_option, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand
from flowengine.cli.terminal import Results, complain, format_dollars, format_table
from flowengine.errors import FlowEngineError, JournalError
from flowengine.evals import SpendingRow, parse_dimensions, spending_of, to_safe_cell
from flowengine.journal import RunQuery

_COLUMNS: Final = ("runs", "calls", "in", "cached", "out", "cost")


def _dimensions(ctx: click.Context, param: click.Parameter, value: str) -> Sequence[str]:
    try:
        return parse_dimensions(value)
    except FlowEngineError as error:
        raise click.BadParameter(str(error).removeprefix("--by: ")) from None


@click.command("cost", cls=ReadingCommand)
@store_option
@click.option("--since", callback=duration, metavar="TIME", help="Only runs that began since: 12h, 30d.")
@click.option("--flow", default="", metavar="NAME", help="Only runs of this flow.")
@label_option("Only runs with this label; given several times, with all of them.")
@click.option(
    "--by",
    default="flow,model",
    show_default=True,
    callback=_dimensions,
    metavar="NAMES",
    help="What to sum up by: flow, node, model, label, label:NAME, provider, purpose, day, run.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "csv", "json"]), default="text", show_default=True,
    help="How the result is printed.",
)  # fmt: skip
def command(
    store: str | None,
    since: float | None,
    flow: str,
    labels: Mapping[str, str],
    by: Sequence[str],
    form: str,
) -> int:
    """Sum up what model calls have cost, from the journals of the store's runs.

    IN are tokens of prompts that the vendor read anew, CACHED those that it had in its cache. A cost with + leaves out
    calls whose price is not known. MAY BE BILLED is the most that attempts cost which were not answered in time, or
    broke off: it is not in COST. A run whose record is damaged is named and left out; the exit code is 1 then.
    """
    damaged: list[str] = []

    def tell(run_id: str, error: JournalError) -> None:
        damaged.append(run_id)
        complain(f"error: run {run_id} is left out: {error}")

    query = RunQuery(flow, "", labels, started_from=None if since is None else time() - since)
    with open_journal(store) as journal:
        rows, whole = spending_of(journal, query.select(journal.list()), by, tell)
    results = Results()
    if form == "json":
        results.value({"groups": [_to_object(row, by) for row in rows], "all": _to_object(whole, ())})
    elif form == "csv":
        results.document(_to_csv(rows, by).rstrip("\n"))
    elif not rows:
        which = "such runs" if query != RunQuery() else "runs"
        complain(f"no model was called by {which} in {format_store(store)}{' that can be read' if damaged else ''}")
    else:
        columns = (*_COLUMNS, *["may be billed"] * bool(whole.unanswered))
        head = [each.upper() for each in (*by, *columns)]
        cells = map(_format_row, (*rows, *[whole] * (len(rows) > 1)))
        table = [head, *(each[: len(head)] for each in cells)]
        results.lines(format_table(table, right=range(len(by), len(head))))
    return 1 if damaged else 0


def _format_row(row: SpendingRow) -> list[str]:
    counts = (len(row.runs), row.calls, row.tokens_in, row.tokens_cached, row.tokens_out)
    cost = format_dollars(row.cost_usd, is_whole=not row.unpriced)
    late = format_dollars(row.may_be_billed_usd) if row.unanswered else ""
    return [*(each or "-" for each in row.group), *(f"{each:,}" for each in counts), cost, late]


def _to_object(row: SpendingRow, by: Sequence[str]) -> dict[str, Any]:
    return {
        **dict(zip(by, row.group, strict=False)),
        "runs": len(row.runs),
        "calls": row.calls,
        "failed_calls": row.failed,
        "unpriced_calls": row.unpriced,
        "tokens_in": row.tokens_in,
        "tokens_cached": row.tokens_cached,
        "tokens_out": row.tokens_out,
        "cost_usd": row.cost_usd,
        "unanswered_calls": row.unanswered,
        "may_be_billed_usd": row.may_be_billed_usd,
    }


def _to_csv(rows: Sequence[SpendingRow], by: Sequence[str]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, list(_to_object(SpendingRow([""] * len(by)), by)), lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({name: to_safe_cell(value) for name, value in _to_object(row, by).items()})
    return text.getvalue()
