"""`flowengine eval` says what a flow is worth over data, and pays only for what changed since the last time."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from flowengine.cli.ending import INTERRUPTED, run_until_interrupted
from flowengine.cli.options import FiniteRange, duration, open_journal, store_option, strict_limits_option
from flowengine.cli.run_rows import RowMeter, how_to_go_on, pace_of
from flowengine.cli.terminal import Results, complain, format_table
from flowengine.core import Budget, tells_refusals, write_output
from flowengine.evals import (
    PREFIX,
    EvalReport,
    EvalRun,
    EvalSet,
    find_set,
    list_sets,
    load_eval,
    load_set,
    make_report,
    parse_bounds,
    report_lines,
    require_statistics,
    revision_of,
    to_annotations,
    to_json,
    to_junit,
    to_markdown,
    tree_at,
    write_eval,
)
from flowengine.evals.report_page import report_page
from flowengine.flow import Flow
from flowengine.models import load_environment


class _FileFirst(click.Group):
    """A file stands where a subcommand may: `flowengine eval FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_FileFirst)
def command() -> None:
    """Score a flow over data: `flowengine eval FILE.floweval.yaml`, or `flowengine eval init FLOW`.

    What goes behind FILE: `flowengine eval run --help`.
    """


@command.command("run")
@click.argument("file", metavar="FILE")
@store_option
@click.option("--against", metavar="SET", help="Compare with LAST, the id of a set, or git:REVISION.")
@click.option("--fail-under", "bounds", multiple=True, metavar="SCORER=MEAN", help="Exit code 1 if a mean is lower.")
@click.option("--fresh", is_flag=True, help="Repeat all calls, not only those that changed.")
@click.option("--rows", "first_rows", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Maximum number of rows running at once.")
@click.option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", help="Instead of the file's.")
@strict_limits_option
@click.option("--model", metavar="NAME", help="Use this model in place of all models of the flow.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "junit", "github"]),
    default="text",
    show_default=True,
    help="How the report is printed; github: annotations, and a table into $GITHUB_STEP_SUMMARY.",
)
@click.option("--html", metavar="FILE", help="Also write the report as one HTML page.")
@click.option("--batch", is_flag=True, help="Use the vendors' batch APIs, at half the price.")
@click.option(
    "--deadline", callback=duration, metavar="TIME", help="With --batch: after this time, make calls directly."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
def run_eval(
    file: str,
    store: str | None,
    against: str | None,
    bounds: tuple[str, ...],
    fresh: bool,
    first_rows: int | None,
    concurrency: int | None,
    max_cost: float | None,
    strict_limits: bool | None,
    model: str | None,
    form: str,
    html: str | None,
    batch: bool,
    deadline: float | None,
    quiet: bool,
) -> int:
    """Run the eval in FILE: its flow over its rows, its scorers over the answers.

    Each row takes what still holds from its last run in this eval, judges too. Stopped and started again, it goes on.
    """
    pace = pace_of(batch=batch, deadline=deadline)
    results = Results()
    require_statistics()
    with results.alone():
        loaded = load_eval(file, model=model, environ=load_environment())
    thresholds = parse_bounds(bounds, list(loaded.spec.scorers))
    with open_journal(store) as journal:
        prepare = partial(
            EvalRun,
            file=loaded,
            store=journal,
            fresh=fresh,
            first_rows=first_rows,
            concurrency=concurrency,
            budget=None if max_cost is None else Budget(cost_usd=max_cost),
            settings={
                "folder": os.getcwd(),
                **({} if model is None else {"model": model}),
                **({"needs_prices": True} if strict_limits else {}),
            },
            batch=pace,
            tell=complain,
        )
        before: EvalSet | None = None
        if against is not None and against.startswith(PREFIX):
            # The set of another revision is made first; what of it is there already is not run again.
            with _flow_at(loaded.flow_path, against, model, results) as (flow, version):
                before = _run(prepare(flow=flow, version=version), results, quiet=quiet)
            if before is None:
                return INTERRUPTED
        elif against is not None:
            before = load_set(journal, find_set(list_sets(journal, loaded.name), against).id)
        run = prepare(against=before)
        result = _run(run, results, quiet=quiet)
        if result is None:
            return INTERRUPTED
        report = make_report(result, before, thresholds)
    _tell(report, form, results, file)
    if html is not None:
        write_output(html, [report_page(report)])
    if not result.finished:
        is_limited = run.ledger.has_refused
        reason = "a limit was reached" if is_limited else "a batch could not be looked at"
        complain(f"{reason}: {how_to_go_on(fresh)}")
        return 4 if is_limited else 1
    reason = result.reason_of_no_score()
    if reason is not None:
        complain(f"nothing could be scored: {reason}")
    return 1 if report.under or reason is not None else 0


def _run(run: EvalRun, results: Results, *, quiet: bool) -> EvalSet | None:
    """Run an eval; None where it was interrupted."""
    meter = RowMeter(run.total, quiet=quiet, is_batched=run.batch is not None)
    if run.stand_in_notice and not quiet:
        complain(f"notice: {run.stand_in_notice}")
    run.heard = meter.hear
    try:
        with results.alone():
            result = run_until_interrupted(run.run)
    finally:
        meter.end()
    if result is None:
        complain(f"interrupted\n  {how_to_go_on(run.fresh)}")
    return result


@contextmanager
def _flow_at(path: Path, against: str, model: str | None, results: Results) -> Generator[tuple[Flow, str]]:
    """The flow as it was in another revision, and what that version is called."""
    commit = revision_of(path, against.removeprefix(PREFIX))
    with tree_at(path, commit) as there:
        with results.alone():
            flow = Flow.from_yaml(there, model=model, environ=load_environment())
        yield flow, f"{PREFIX}{commit[:12]}"


def _tell(report: EvalReport, form: str, results: Results, file: str) -> None:
    if form == "json":
        results.json(to_json(report))
    elif form == "junit":
        results.document(to_junit(report))
    elif form == "github":
        results.lines(to_annotations(report, file))
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with tells_refusals(summary), open(summary, "a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(to_markdown(report))
        else:
            results.document(to_markdown(report).rstrip("\n"))
    else:
        for each in report_lines(report):
            results.lines([each] if isinstance(each, str) else format_table(each))


# --- `flowengine eval init`


@command.command("init")
@click.argument("flow", metavar="FLOW")
@store_option
@click.option("--runs", "selection", metavar="RUNS", help="Which: 'status=succeeded since=30d label.team=a limit=200'.")
@click.option("-o", "--output", metavar="FILE", help="The eval to write.  [default: beside FLOW]")
@click.option("--mask", is_flag=True, help="Without personal data and secrets.")
@click.option("--force", is_flag=True, help="Also over files that are there.")
def init(flow: str, store: str | None, selection: str | None, output: str | None, mask: bool, force: bool) -> int:
    """Write an eval of the flow in FLOW from runs that the store has: their inputs, and their outputs as expected."""
    loaded = Flow.from_yaml(flow, environ=load_environment())
    with open_journal(store) as journal:
        new_eval = write_eval(loaded, Path(flow), journal, selection or "", output=output, mask=mask, force=force)
    for path in new_eval.files:
        complain(f"wrote {path}")
    complain(f"{new_eval.rows:,} rows; to run it: flowengine eval {new_eval.files[0]}")
    return 0
