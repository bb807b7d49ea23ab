"""`flowengine mcp` serves flows as MCP tools over stdin and stdout, for a client that starts it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

import anyio
import click

from flowengine.cli.environment import find_account
from flowengine.cli.options import DURABILITIES, duration, format_store, open_journal, store_option
from flowengine.cli.terminal import complain
from flowengine.engine import Durability, JournalStore
from flowengine.flowfile.project import project_of
from flowengine.models import load_environment
from flowengine.version import install_hint, missing_modules

_GRACE: Final = 1.0
"""Seconds that runs may take to end once the client has closed its end: it kills who stays."""
_INTERRUPTED_CODE: Final = 130
"""Exit code."""


@click.command("mcp")
@click.argument("flows", metavar="[FLOW|FOLDER]...", nargs=-1, type=click.Path(exists=True))
@click.option("--patience", callback=duration, default="50s", show_default=True, metavar="TIME",
              help="After this time, a call returns the id of its run, which continues.")  # fmt: skip
@click.option("--on-cancel", type=click.Choice(["cancel", "detach"]), default="cancel", show_default=True,
              help="What becomes of the run of a call that the client cancels.")  # fmt: skip
@store_option
@click.option(
    "--durability", type=click.Choice(DURABILITIES), default="full", show_default=True,
    help="What the record of runs survives, as for `run`.",
)  # fmt: skip
def command(flows: tuple[str, ...], patience: float, on_cancel: str, store: str | None, durability: Durability) -> int:
    """Serve the flows in FLOW files or below FOLDERs as MCP tools, until the client closes stdin.

    Without any, the flows are those below the project of the working folder. stdout is the protocol's alone. An
    MCP client is told of it as `{"command": "flowengine", "args": ["mcp", "flows/"]}`.
    """
    if missing_modules("mcp"):
        raise click.UsageError(f"`flowengine mcp` needs mcp: {install_hint('mcp')}")
    if sys.stdin is not None and sys.stdin.isatty():
        complain("an MCP client starts this command and speaks to it over stdin; Ctrl-C ends it")
    places = list(flows) or [os.path.relpath(project_of(None)[0].root)]
    with open_journal(store, durability) as journal:
        complain(f"runs of {format_store(store)}")
        anyio.run(_serve, journal, places, patience, on_cancel)
    return 0


async def _serve(store: JournalStore, flows: list[str], patience: float, on_cancel: str) -> None:
    from flowengine.web.mcp import McpSettings, make_mcp_server, serve_stdio
    from flowengine.web.service import FlowService  # Needs its extra.

    settings = McpSettings(patience, "detach" if on_cancel == "detach" else "cancel", find_account())
    flow_service = FlowService(store, flows, environ=load_environment(), grace=_GRACE)
    flow_service.check_models()
    async with flow_service as service, anyio.create_task_group() as tasks:

        async def end_at_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                await anext(aiter(signals))
            await service.drain()
            store.close()
            os._exit(_INTERRUPTED_CODE)  # The thread that reads stdin cannot be woken.

        tasks.start_soon(end_at_signal)
        if not service.flows:
            complain(f"notice: there is no flow below {', '.join(flows)}")
        await serve_stdio(make_mcp_server(service, settings))
        tasks.cancel_scope.cancel()
