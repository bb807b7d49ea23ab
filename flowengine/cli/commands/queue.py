"""`flowengine queue` lists what the queues of a store hold, and what is wrong with them."""

from __future__ import annotations

import click

from flowengine.cli.options import duration
from flowengine.cli.run_access import choose_store, format_store, open_journal, store_option
from flowengine.cli.terminal import Results, complain, format_span, format_table
from flowengine.journal.run_export import dumps
from flowengine.runners.queue.status import QueueStatus, problems_of, queues_of, workers_of

__all__ = ["command"]


@click.command("queue")
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@click.option("--max-age", callback=duration, metavar="TIME", help="Complain of runs that are due for longer: 10m, 2h.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@store_option
def command(names: tuple[str, ...], max_age: float | None, as_json: bool, store: str | None) -> int:
    """What the QUEUEs hold, all of the store unless named, and what is wrong there.

    The exit code is 1 where somebody is needed: runs are due and no worker takes from their queue, workers lack
    something for runs, runs have lost their job, or the oldest one is due for longer than --max-age.
    """
    with open_journal(choose_store(store)) as kept:
        from flowengine.runners.queue.rescue import Orphans
        from flowengine.runners.queue.run_queue import queue_store  # Needs its extra.

        place = queue_store(kept)
        queues = queues_of(place, workers_of(place))
        orphans = {run_id: job.queue for run_id, job in Orphans(place).find().items()}
    if names:
        known = {each.queue: each for each in queues}
        queues = [known.get(name, QueueStatus(name)) for name in dict.fromkeys(names)]
        orphans = {run_id: queue for run_id, queue in orphans.items() if queue in names}
    problems = list(problems_of(queues, orphans, max_age))
    results = Results()
    if as_json:
        found = {
            "queues": [each._asdict() for each in queues],
            "orphans": orphans,
            "problems": [each._asdict() for each in problems],
        }
        results.line(dumps(found, indent=2))
    elif queues:
        head = ["QUEUE", "DUE", "OLDEST", "LATER", "ASKING", "LACKING", "TAKEN", "LOST", "WORKERS"]
        for line in format_table([head, *map(_format_row, queues)], right=range(1, len(head))):
            results.line(line)
    else:
        complain(f"the queues of {format_store(store)} hold nothing, and have no workers")
    for each in problems:
        complain(each.text)
    return 1 if problems else 0


def _format_row(each: QueueStatus) -> list[str]:
    before = [str(each.due), format_span(each.oldest), *map(str, (each.later, each.asking, each.lacking))]
    return [each.queue, *before, *map(str, (each.taken, each.lost, each.workers))]
