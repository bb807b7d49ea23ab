"""`flowengine worker`: takes runs from a queue, until it is told to stop."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import click

from flowengine.cli.environment import environment
from flowengine.cli.options import duration
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import complain

__all__ = ["command"]


@click.command("worker")
@click.option("--queue", default="default", show_default=True, metavar="NAME", help="Which runs to take.")
@click.option("--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at once.")
@click.option("--grace", callback=duration, default="20s", show_default=True, help="That runs have to end at SIGTERM.")
@click.option(
    "--takeovers", type=click.IntRange(min=0), default=5, show_default=True, metavar="N",
    help="How often in a row a run is taken over whose worker died, before it is given up.",
)  # fmt: skip
@click.option("--until-idle", is_flag=True, help="End when there is nothing to begin.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@store_option
def command(
    queue: str, concurrency: int, grace: float, takeovers: int, until_idle: bool, quiet: bool, store: str | None
) -> int:
    """Work on the runs of a queue. At SIGTERM or Ctrl-C nothing new begins; runs that do not end within the
    grace are interrupted, and put back for another worker.

    A run that waits for a person holds no slot. What a worker leaves that dies is taken up by another. The code that
    flows call is that of the project of the working folder, and keys are those of this environment; a run for which
    something is not here is left to other workers.
    """
    with journals(chosen_store(store)) as kept:
        from flowengine.runners.queue import queue_store  # Needs its extra.
        from flowengine.runners.queue_worker import Pace, work

        place = queue_store(kept)
        if not quiet:
            complain(f"working on queue '{queue}', {concurrency} at once")
        pace, tell = Pace(grace=grace), _say_nothing if quiet else complain
        options: dict[str, Any] = {"queue": queue, "concurrency": concurrency, "takeovers": takeovers}
        anyio.run(partial(work, place, pace=pace, tell=tell, wait=not until_idle, environ=environment(), **options))
    return 0


def _say_nothing(line: str) -> None:
    """What a quiet worker tells."""
