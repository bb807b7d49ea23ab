"""`flowengine ui` shows the runs of a store in a browser, live, with the flows that can be started there."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from functools import partial

import click

from flowengine.cli.debugging import debug_option, watch_loop_if_debugging
from flowengine.cli.environment import find_user
from flowengine.cli.options import (
    DURABILITIES,
    FiniteRange,
    format_store,
    needing_extra,
    open_journal,
    store_option,
)
from flowengine.cli.terminal import Results, complain
from flowengine.engine import Durability
from flowengine.flowfile.project import project_of
from flowengine.journal import without_password
from flowengine.models import load_environment, read_environment
from flowengine.web.gate import LOOPBACK, is_loopback, make_token


@click.command("ui")
@click.argument("flows", metavar="[FLOW|FOLDER]...", nargs=-1, type=click.Path(exists=True))
@click.option("--port", type=click.IntRange(0, 65_535), default=8700, show_default=True, metavar="PORT",
              help="Where to listen; 0 takes any free one.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Where to listen; others than this machine's own need --token.")  # fmt: skip
@click.option("--token", envvar="FLOWENGINE_UI_TOKEN", metavar="TEXT", help="Access token.  [default: "
              "$FLOWENGINE_UI_TOKEN or one drawn at random]")  # fmt: skip
@click.option("--allow-host", "names", metavar="NAME", multiple=True, help="A host name that it answers to.")
@click.option("--request-timeout", type=FiniteRange(0, min_open=True), default=20.0, show_default=True,
              metavar="SECONDS", help="How long the head of a request may take to arrive, and its body.")  # fmt: skip
@click.option("--read-only", is_flag=True, help="Refuse to start, answer or change anything.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@debug_option
@store_option
@click.option(
    "--durability", type=click.Choice(DURABILITIES), default="full", show_default=True,
    help="What the record of runs started here survives, as for `run`.",
)  # fmt: skip
def command(
    flows: tuple[str, ...],
    port: int,
    host: str,
    token: str | None,
    names: tuple[str, ...],
    request_timeout: float,
    read_only: bool,
    no_open: bool,
    store: str | None,
    durability: Durability,
) -> int:
    """Show the runs of the store in a browser, and the flows in FLOW files or below FOLDERs.

    Without any, the flows are those below the project of the working folder. Runs of other processes are shown live
    too. Flows are started, and runs are resumed, forked, answered and cancelled there, unless it is --read-only; over
    HTTP as /api/openapi.json describes it.
    """
    is_here = is_loopback(host)
    if not is_here and not token:
        raise click.UsageError(f"to listen on {host}, where others can reach it, it needs --token")
    if token and len(token) < 16:
        raise click.UsageError("--token must have 16 characters or more")
    secret = token or make_token()
    with needing_extra("ui", "`flowengine ui`"):
        from flowengine.web import ConnectionLimits, address_of, listen, make_app, serve
    listening = listen(host, port)
    address = f"{address_of(host, listening.getsockname()[1])}/?token={secret}"
    results, project = Results(), project_of(None)[0]
    links = [] if project.notify is None else [project.notify.host]  # By this name people come with links.
    with listening, results.alone(), open_journal(store, durability) as journal:
        app = make_app(
            journal,
            flows or [os.path.relpath(project.root)],
            secret,
            hosts=(
                *LOOPBACK,
                *([] if is_here else [host, socket.gethostname().lower()]),
                *map(str.lower, (*names, *links)),
            ),
            any_address=not is_here,
            environ=read_environment(project.root, load_environment()),
            by=find_user(),
            options=["--store", without_password(store)] if store else [],
            read_only=read_only,
        )
        limits = ConnectionLimits(seconds=request_timeout)
        announce = partial(_announce, results, address, format_store(store), is_here, no_open)
        serve(app, listening, announce, limits, watch=watch_loop_if_debugging)
    complain("stopped")
    return 0


def _announce(results: Results, address: str, store: str, is_here: bool, no_open: bool) -> None:
    results.line(address)
    complain(f"runs of {store}; Ctrl-C ends it")
    if not is_here:
        complain("notice: the token and all runs travel as plain text; put a proxy with TLS before it")
    if not no_open and results.on_terminal and sys.stdin is not None and sys.stdin.isatty():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
