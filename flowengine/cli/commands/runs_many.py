"""`flowengine runs resume` and `runs cancel`: many runs of the queue at once, by name or by filters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

import anyio
import click

from flowengine.cli.selection import Selection, selection
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import complain
from flowengine.context import RunStatus
from flowengine.errors import FlowEngineError, JournalError
from flowengine.runners.queue_view import standing_of

if TYPE_CHECKING:  # the libraries of the queue are imported where one is used
    from procrastinate import App

    from flowengine.journal.postgres import PostgresStore

__all__ = ["cancel_runs", "resume_runs"]

_STOPPED: Final = frozenset({"failed", "partial", "paused", "interrupted"})
"""Words of runs that filters find to go on with; cancelled ones are meant only where the filter says so."""
_OPEN: Final = frozenset({"queued", "running", "waiting", "interrupted"})
"""Words of runs that filters find to cancel."""
_CANCELLED: Final[RunStatus] = "cancelled"

Act = Callable[["App", "PostgresStore", str], Awaitable[str]]
"""Does something to one run; what it was, in words. What it raises leaves the run."""


@click.command("resume")
@selection
@click.option("--queue", metavar="NAME", help="Which workers take them.  [default: as before]")
@click.option("--allow-changed", is_flag=True, help="Also in a worker that has other versions of their functions.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@store_option
def resume_runs(selected: Selection, queue: str | None, allow_changed: bool, dry_run: bool, store: str | None) -> int:
    """Put runs that have stopped back into their queue: RUNs (ids, starts of ids, or @last), or all that are found.

    Filters find what failed, is partial, paused or interrupted; with --status cancelled what was cancelled. A run of no
    queue is left, unless --queue says where it is to go.
    """

    async def put_back(app: App, place: PostgresStore, run_id: str) -> str:
        from flowengine.runners.queue import requeue_in

        if queue is None and not isinstance(place.start_of(run_id).settings.get("queue"), str):
            raise JournalError(f"run {run_id} is of no queue: `flowengine resume {run_id}`, or --queue")
        if not dry_run:
            await requeue_in(app, place, run_id, queue=queue, allow_changed=allow_changed)
        return f"run {run_id} {'would be' if dry_run else 'is'} put back into its queue"

    found = frozenset({_CANCELLED}) if selected.query.status == _CANCELLED else _STOPPED
    return _do(selected, store, put_back, "resume", of=_STOPPED | {_CANCELLED}, found=found)


@click.command("cancel")
@selection
@click.option("--dry-run", is_flag=True, help="Only say which.")
@store_option
def cancel_runs(selected: Selection, dry_run: bool, store: str | None) -> int:
    """Stop runs of the queue that have not ended: RUNs (ids, starts of ids, or @last), or all that the filters find."""

    async def stop(app: App, place: PostgresStore, run_id: str) -> str:
        from flowengine.runners.queue import cancel_in

        if dry_run:
            is_there = place.status_of(run_id) == "waiting" or standing_of(place, run_id) is not None
            found = "would be cancelled" if is_there else "nothing to stop"
        else:
            found = await cancel_in(app, place, run_id)
        if found == "nothing to stop":
            raise JournalError(f"run {run_id} is in no queue, and waits for nobody")
        return f"run {run_id} {_CANCEL_WORDS.get(found, found)}"

    return _do(selected, store, stop, "cancel", of=_OPEN, found=_OPEN)


_CANCEL_WORDS: Final = {"before it began": "is cancelled", "asked to stop": "is asked to stop"}


def _do(
    selected: Selection, given: str | None, act: Act, verb: str, *, of: Collection[str], found: Collection[str]
) -> int:
    """Act on the chosen runs one by one; 1 where one is left. `of`: how a run may stand, `found`: those of filters."""
    with journals(chosen_store(given)) as kept:
        from flowengine.runners.queue import opened, queue_store  # Needs its extra.

        place = queue_store(kept)
        chosen = selected.choose(place)
        runs = {run_id: word for run_id, word in chosen.runs.items() if run_id in chosen.named or word in found}

        async def act_on_all() -> int:
            left = 0
            async with opened(place) as app:
                for run_id, word in runs.items():
                    try:
                        if word not in of:
                            raise JournalError(f"run {run_id} is {word}")
                        complain(await act(app, place, run_id))
                    except FlowEngineError as error:
                        left += 1
                        complain(f"left: {error}")
            return left

        left = anyio.run(act_on_all) if runs else 0
    if not runs:
        complain(f"there is nothing to {verb}")
    return 1 if left else 0
