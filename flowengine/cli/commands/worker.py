"""`flowengine worker`: takes runs from a queue, until it is told to stop."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial
from typing import Any

import anyio
import click

from flowengine.cli.environment import environment
from flowengine.cli.failure import exit_code
from flowengine.cli.options import duration
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.worker_log import LogFormat, tell, worker_log
from flowengine.errors import FlowEngineError
from flowengine.extras import install_hint
from flowengine.runners.notices import Notice

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
@click.option(
    "--health-port", type=click.IntRange(0, 65_535), metavar="PORT",
    help="Answer /healthz, /readyz and /metrics there; 0 takes any free port.",
)  # fmt: skip
@click.option("--health-host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where that port is.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Lines on stderr: as text, or an object of JSON each.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@store_option
def command(
    queue: str,
    concurrency: int,
    grace: float,
    takeovers: int,
    until_idle: bool,
    health_port: int | None,
    health_host: str,
    log_format: LogFormat,
    quiet: bool,
    store: str | None,
) -> int:
    """Work on the runs of a queue. At SIGTERM or Ctrl-C nothing new begins; runs that do not end within the
    grace are interrupted, and put back for another worker.

    A run that waits for a person holds no slot. What a worker leaves that dies is taken up by another. The code that
    flows call is that of the project of the working folder, and keys are those of this environment; a run for which
    something is not here is left to other workers.
    """
    with worker_log(log_format, quiet=quiet):
        try:
            return _work(queue, concurrency, grace, takeovers, until_idle, health_port, health_host, store)
        except FlowEngineError as error:
            if log_format == "text":
                raise
            tell(Notice(str(error), "error"))
            return exit_code(error)


def _work(
    queue: str,
    concurrency: int,
    grace: float,
    takeovers: int,
    until_idle: bool,
    health_port: int | None,
    health_host: str,
    store: str | None,
) -> int:
    with ExitStack() as stack:
        kept = stack.enter_context(journals(chosen_store(store)))
        from flowengine.runners.queue import queue_store  # Needs its extra.
        from flowengine.runners.queue_worker import Pace, work

        place = queue_store(kept)
        options: dict[str, Any] = {"queue": queue, "concurrency": concurrency, "takeovers": takeovers}
        tell(Notice(f"working on queue '{queue}', {concurrency} at once", "started"))
        if health_port is not None:
            options["health"] = stack.enter_context(_listening(health_host, health_port))
        pace = Pace(grace=grace)
        anyio.run(partial(work, place, pace=pace, tell=tell, wait=not until_idle, environ=environment(), **options))
    return 0


def _listening(host: str, port: int) -> socket.socket:
    try:
        from flowengine.runners.queue_health import listen
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise click.UsageError(f"--health-port needs {error.name}: {install_hint('ui')}") from None
    listening = listen(host, port)
    shown, bound = f"[{host}]" if ":" in host else host, listening.getsockname()[1]
    tell(Notice(f"health and metrics on http://{shown}:{bound}", "listening"))
    return listening
