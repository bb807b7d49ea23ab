"""`flowengine runs`: its subcommands list, note, show, resume, cancel, remove and move the runs of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

import anyio
import click

from flowengine.cli.commands.runs_files import export_run, import_run, list_files, repair
from flowengine.cli.commands.runs_list import list_runs, note_run
from flowengine.cli.commands.runs_show import show
from flowengine.cli.commands.test import to_test
from flowengine.cli.options import open_journal, store_option
from flowengine.cli.run_selection import Selection, selection
from flowengine.cli.terminal import complain
from flowengine.core import RunStatus
from flowengine.errors import FlowEngineError, JournalError, StoreUnavailableError
from flowengine.runtime.queue import ENDED, standing_of

if TYPE_CHECKING:
    from procrastinate import App

    from flowengine.journal.postgres import PostgresStore

# --- `flowengine runs rm`


@click.command("rm")
@selection
@click.option("--force", is_flag=True, help="Also a RUN that has not ended: queued, waiting, paused or interrupted.")
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@store_option
def remove(selected: Selection, force: bool, dry_run: bool, store: str | None) -> int:
    """Forget RUNs with all their events: ids, starts of ids, or @last; or all runs that the filters find.

    Runs that have not ended are left: --force removes those that are named. What a process writes is left in any case.
    """
    if force and not selected.references:
        raise click.UsageError("--force goes with a RUN: filters remove only what has ended")
    with open_journal(store) as journal:
        selected_runs = selected.choose(journal)
        failed = 0
        for run_id, word in selected_runs.runs.items():
            is_named, has_ended = run_id in selected_runs.named_ids, word in ENDED
            try:
                if not has_ended and not (force and is_named):
                    raise StoreUnavailableError(f"run '{run_id}' has not ended, it is {word}")
                if not dry_run:
                    journal.remove(run_id)
            except StoreUnavailableError as error:
                failed += is_named or has_ended
                complain(f"left: {error}")
                continue
            complain(f"{'would remove' if dry_run else 'removed'} {run_id}")
    if not selected_runs.runs:
        complain("there is nothing to remove")
    return 1 if failed else 0


_RESUMABLE: Final = frozenset({"failed", "partial", "paused", "interrupted"})
"""Words of runs that filters find to go on with; cancelled ones are meant only where the filter says so."""
_CANCELLABLE: Final = frozenset({"queued", "running", "waiting", "interrupted"})
"""Words of runs that filters find to cancel."""
_CANCELLED: Final[RunStatus] = "cancelled"

Act = Callable[["App", "PostgresStore", str], Awaitable[str]]
"""Does something to one run; what it was, in words. What it raises leaves the run."""


@click.command("resume")
@selection
@click.option("--queue", metavar="NAME", help="Queue for the runs.  [default: as before]")
@click.option("--allow-changed", is_flag=True, help="Accept workers with other versions of the functions.")
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@store_option
def resume_runs(selected: Selection, queue: str | None, allow_changed: bool, dry_run: bool, store: str | None) -> int:
    """Put runs that have stopped back into their queue: RUNs (ids, starts of ids, or @last), or all that are found.

    Filters find what failed, is partial, paused or interrupted; with --status cancelled what was cancelled. A run of no
    queue is left, unless --queue says where it is to go.
    """

    async def put_back(app: App, place: PostgresStore, run_id: str) -> str:
        from flowengine.runtime.queue import requeue

        if queue is None and not isinstance(place.start_of(run_id).settings.get("queue"), str):
            raise JournalError(f"run {run_id} is of no queue: `flowengine resume {run_id}`, or --queue")
        if not dry_run:
            await requeue(place, run_id, queue=queue, allow_changed=allow_changed, app=app)
        return f"run {run_id} {'would be' if dry_run else 'is'} put back into its queue"

    matching = frozenset({_CANCELLED}) if selected.query.status == _CANCELLED else _RESUMABLE
    return _act_on_runs(selected, store, put_back, "resume", of=_RESUMABLE | {_CANCELLED}, matching=matching)


@click.command("cancel")
@selection
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@store_option
def cancel_runs(selected: Selection, dry_run: bool, store: str | None) -> int:
    """Stop runs of the queue that have not ended: RUNs (ids, starts of ids, or @last), or all that the filters find."""

    async def stop(app: App, place: PostgresStore, run_id: str) -> str:
        from flowengine.runtime.queue import cancel

        if dry_run:
            is_there = place.status_of(run_id) == "waiting" or standing_of(place, run_id) is not None
            outcome = "would be cancelled" if is_there else "nothing to stop"
        else:
            outcome = await cancel(place, run_id, app)
        if outcome == "nothing to stop":
            raise JournalError(f"run {run_id} is in no queue and waits for no answer")
        return f"run {run_id} {_CANCEL_WORDS.get(outcome, outcome)}"

    return _act_on_runs(selected, store, stop, "cancel", of=_CANCELLABLE, matching=_CANCELLABLE)


_CANCEL_WORDS: Final = {"before it began": "is cancelled", "asked to stop": "is asked to stop"}


def _act_on_runs(
    selected: Selection, store: str | None, act: Act, verb: str, *, of: Collection[str], matching: Collection[str]
) -> int:
    """Acts on the chosen runs one by one; 1 where one fails.

    `of`: how a run may stand; `matching`: how those may stand that filters choose.
    """
    with open_journal(store) as journal:
        from flowengine.runtime.queue import open_queue, queue_store  # Needs its extra.

        place = queue_store(journal)
        selected_runs = selected.choose(place)
        runs = {
            run_id: word
            for run_id, word in selected_runs.runs.items()
            if run_id in selected_runs.named_ids or word in matching
        }

        async def act_on_all() -> int:
            failures = 0
            async with open_queue(place) as app:
                for run_id, word in runs.items():
                    try:
                        if word not in of:
                            raise JournalError(f"run {run_id} is {word}")
                        complain(await act(app, place, run_id))
                    except FlowEngineError as error:
                        failures += 1
                        complain(f"left: {error}")
            return failures

        failures = anyio.run(act_on_all) if runs else 0
    if not runs:
        complain(f"there is nothing to {verb}")
    return 1 if failures else 0


@click.group("runs")
def command() -> None:
    """List and search the runs of a store, show or note one, resume, cancel or remove many, or move one as a file."""


for each in (list_runs, note_run, show, resume_runs, cancel_runs, remove, to_test):
    command.add_command(each)
for each in (export_run, import_run, list_files, repair):
    command.add_command(each)
