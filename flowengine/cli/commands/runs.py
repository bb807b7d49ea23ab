"""`flowengine runs` lists the runs of a store; its subcommands show, resume, cancel, remove and move them."""

from __future__ import annotations

import click

from flowengine.cli.commands.runs_files import export_run, import_run, repair
from flowengine.cli.commands.runs_many import add_filter_options, cancel_runs, remove, resume_runs
from flowengine.cli.commands.runs_show import show
from flowengine.cli.run_access import choose_store, format_store, open_journal, store_option
from flowengine.cli.terminal import Results, complain, format_clock, format_span, format_table
from flowengine.engine.ports import RunInfo
from flowengine.journal.run_export import dumps
from flowengine.journal.run_lookup import RunQuery
from flowengine.runners.queue.run_positions import words_of

__all__ = ["command"]


@click.group("runs")
def command() -> None:
    """List the runs of a store, show one, resume, cancel or remove many, or move one as a file."""


@command.command("list")
@store_option
@add_filter_options
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
def list_runs(store: str | None, query: RunQuery, as_json: bool) -> int:
    """The runs of the store, the newest first.

    `queued`: no worker has it yet; `interrupted`: nobody works on it any more, and `flowengine resume` goes on with it.
    """
    with open_journal(choose_store(store)) as kept:
        every = kept.list()
        words = words_of(kept, every)
    runs = query.select(every, words)
    results = Results()
    if as_json:
        results.json(dumps([run._asdict() | {"standing": words[run.run_id]} for run in runs], indent=2))
        return 0
    if not runs:
        complain(f"there are no {'such ' * bool(every)}runs in {format_store(store)}")
        return 0
    head = ["RUN", "FLOW", "STATUS", "STARTED", "TOOK", *["LABELS"] * any(run.labels for run in runs)]
    for line in format_table([head, *(_format_row(run, words[run.run_id])[: len(head)] for run in runs)]):
        results.line(line)
    return 0


def _format_row(run: RunInfo, word: str) -> list[str]:
    took = "" if run.finished is None else format_span(run.finished - run.started)
    labels = " ".join(f"{name}={value}" for name, value in run.labels.items())
    return [run.run_id, run.flow, word, format_clock(run.started), took, labels]


command.add_command(show)
command.add_command(resume_runs)
command.add_command(cancel_runs)
command.add_command(remove)
command.add_command(export_run)
command.add_command(import_run)
command.add_command(repair)
