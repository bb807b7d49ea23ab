"""`flowengine worker` takes runs from a queue until it is told to stop, and logs to stderr."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
import click

from flowengine.cli.debugging import debug_option, watch_loop_if_debugging
from flowengine.cli.ending import exit_code
from flowengine.cli.options import (
    TelemetryOptions,
    add_telemetry_options,
    duration,
    needing_extra,
    open_journal,
    store_option,
)
from flowengine.cli.terminal import escape_controls
from flowengine.engine import Event
from flowengine.errors import FlowEngineError
from flowengine.flowfile.project import find_project
from flowengine.models import load_environment
from flowengine.runtime.queue import WorkerNotice

# --- The worker's log on stderr

LogFormat = Literal["text", "json"]

_LOGGER: Final = logging.getLogger("flowengine.worker")
_LEVELS: Final = {
    **dict.fromkeys(("left", "queue_lost", "look_failed", "loop_held"), logging.WARNING),
    "error": logging.ERROR,
}
"""Events that may need somebody, and the one that ends the worker."""


def log_notice(notice: WorkerNotice) -> None:
    """Log what a worker tells."""
    _LOGGER.log(
        _LEVELS.get(notice.event, logging.INFO), "%s", notice, extra={"event": notice.event, "run": notice.run_id}
    )


@contextmanager
def worker_log(form: LogFormat, *, quiet: bool, logger: logging.Logger = _LOGGER) -> Generator[None]:
    """Log to stderr for as long as the block lasts; `quiet`: errors only. `logger`: whose lines are the log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    handler.setLevel(logging.ERROR if quiet else logging.INFO)
    root, level = logging.getLogger(), logger.level
    root.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeHandler(handler)


class _TextFormatter(logging.Formatter):
    """Time and message; what is of several lines stays one line."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_format_time(record)} {escape_controls(_format_message(self, record))}".replace("\n", "\\n")


class _JsonFormatter(logging.Formatter):
    """An object on a line: time, level, event, run, message, logger."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {"time": _format_time(record), "level": record.levelname.lower()}
        fields |= {name: value for name in ("event", "run") if (value := getattr(record, name, None)) is not None}
        return json.dumps(fields | {"message": _format_message(self, record), "logger": record.name})


def _format_message(form: logging.Formatter, record: logging.LogRecord) -> str:
    trace = f"\n{form.formatException(record.exc_info)}" if record.exc_info else ""
    return f"{record.getMessage()}{trace}"


def _format_time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@click.command("worker")
@click.option("--queue", default="default", show_default=True, metavar="NAME", help="Which runs to take.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Runs at once."
)
@click.option(
    "--grace",
    callback=duration,
    default="20s",
    show_default=True,
    metavar="TIME",
    help="Time for runs to end after SIGTERM.",
)
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
@click.option("--any-folder", is_flag=True, help="Start in / or a home folder too: flows may read what is below.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@debug_option
@add_telemetry_options
@store_option
def command(log_format: LogFormat, quiet: bool, **options: Any) -> int:
    """Execute the runs of a queue. At SIGTERM or Ctrl-C nothing new begins; runs that do not end within the
    grace are interrupted, and put back for another worker.

    A run that waits for a person holds no slot. What a worker leaves that dies is taken up by another. The code that
    flows call is that of the project of the working folder, and keys are those of this environment; a run for which
    something is not here is left to other workers.
    """
    with worker_log(log_format, quiet=quiet):
        try:
            return _work(**options)
        except FlowEngineError as error:
            if log_format == "text":
                raise
            log_notice(WorkerNotice(str(error), "error"))
            return exit_code(error)


def _work(
    queue: str,
    concurrency: int,
    grace: float,
    takeovers: int,
    until_idle: bool,
    health_port: int | None,
    health_host: str,
    any_folder: bool,
    store: str | None,
    telemetry: TelemetryOptions,
) -> int:
    if not any_folder:
        _refuse_wide_folder(find_project().root)
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(store))
        stack.enter_context(telemetry.sending(journal, lambda text: log_notice(WorkerNotice(text, "telemetry"))))
        from flowengine.runtime.queue import queue_store  # It says so where its extra is missing.

        place = queue_store(journal)
        from flowengine.runtime.queue import Pace, work

        settings: dict[str, Any] = {"queue": queue, "concurrency": concurrency, "takeovers": takeovers}
        log_notice(WorkerNotice(f"working on queue '{queue}', {concurrency} at once", "started"))
        if health_port is not None:
            settings["health"] = stack.enter_context(_listen(health_host, health_port))
        project = find_project()
        if project.schedules and not until_idle:
            from flowengine.runtime.schedules import WorkerSchedules  # Few projects have schedules.

            settings["scheduled"] = WorkerSchedules(project.schedules, project.root)
            names = ", ".join(each.name for each in project.schedules)
            log_notice(WorkerNotice(f"serves the schedules {names}", "started"))
        from flowengine.web.service import DayBudgets, book_run  # They know all of runs; `--help` does without.

        budgets = DayBudgets(journal)

        async def book(events: Sequence[Event]) -> None:
            await anyio.to_thread.run_sync(book_run, budgets, events)

        settings |= {"pace": Pace(grace=grace), "environ": load_environment(), "stopped": book}

        async def work_watched() -> None:
            with watch_loop_if_debugging(lambda text: log_notice(WorkerNotice(text, "loop_held"))):
                await work(place, tell=log_notice, wait=not until_idle, **settings)

        anyio.run(work_watched)
    return 0


def _refuse_wide_folder(root: Path) -> None:
    """Refuse a folder that holds a machine or a person's files: who submits runs may read what is below it."""
    wide = {Path("/"), Path("/root"), Path.home()}
    if root.resolve() in {each.resolve() for each in wide}:
        raise FlowEngineError(
            f"a worker started in {root} would let submitted flows read the files below it: start it in a folder of "
            f"the flows' own documents (WORKDIR of a container), or say --any-folder"
        )


def _listen(host: str, port: int) -> socket.socket:
    with needing_extra("ui", "--health-port"):
        from flowengine.runtime.queue import listen
    listening = listen(host, port)
    address, bound = f"[{host}]" if ":" in host else host, listening.getsockname()[1]
    log_notice(WorkerNotice(f"health and metrics on http://{address}:{bound}", "listening"))
    return listening
