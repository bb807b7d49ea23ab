"""`flowengine serve` serves flows over HTTP; `flowengine keys` makes, lists and removes the keys that programs need."""

from __future__ import annotations

import logging
import re
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from flowengine.cli.commands.worker import LogFormat, worker_log
from flowengine.cli.debugging import debug_option, watch_loop_if_debugging
from flowengine.cli.ending import exit_code
from flowengine.cli.options import (
    DURABILITIES,
    FiniteRange,
    TelemetryOptions,
    add_telemetry_options,
    choose_store,
    duration,
    format_store,
    keeps,
    needing_extra,
    open_journal,
    store_option,
)
from flowengine.cli.terminal import Results, complain, format_table
from flowengine.engine import Durability, JournalStore
from flowengine.errors import FlowEngineError
from flowengine.flow import Flow
from flowengine.flowfile.project import Project, find_project
from flowengine.models import load_environment, read_environment
from flowengine.web.gate import LOOPBACK, is_loopback

if TYPE_CHECKING:
    from flowengine.web.gate import ApiKey

_WITHOUT_HEAD: Final = 2_000
"""Connections that have not sent the head of a request yet; the oldest beyond them is cut off."""
_FILES: Final = 65_536
_LOG: Final = logging.getLogger("flowengine.serving")


def _read_origins(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    return [read_origin(each) for each in values]


def read_origin(value: str) -> str:
    """A site as browsers name it, which is compared letter by letter.

    >>> read_origin("https://App.Example.com/")
    'https://app.example.com'
    """
    site = value.strip().lower().removesuffix("/")
    if not re.fullmatch(r"https?://[^\s/?#@,*]+", site):
        raise click.BadParameter(f"{value!r:.80}: write it as https://app.example.com")
    return site


def _read_names(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    for each in values:
        if re.fullmatch(r"[^\s/@:]+:[0-9]+", each):
            raise click.BadParameter(f"{each!r:.80}: leave the port out")
        if not re.fullmatch(r"\*|[\w.-]+|[0-9A-Fa-f.]*(:[0-9A-Fa-f.]*){2,}", each):
            raise click.BadParameter(f"{each!r:.80}: write a name alone, as api.example.com")
    return [each.lower() for each in values]


@click.command("serve")
@click.argument("flows", metavar="FLOW|FOLDER...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, metavar="PORT",
              help="Where to listen; 0 takes any free one.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Where to listen: 0.0.0.0 for other machines.")  # fmt: skip
@click.option("--allow-host", "names", metavar="NAME", multiple=True, callback=_read_names,
              help="A host name that it answers to; * is any.")  # fmt: skip
@click.option("--allow-origin", "origins", metavar="URL", multiple=True, callback=_read_origins,
              help="A web origin whose pages may send requests.")  # fmt: skip
@click.option("--no-keys", is_flag=True, help="Require no key; only for addresses of this machine.")
@click.option("--runs", "at_once", type=click.IntRange(min=1), default=16, show_default=True, metavar="N",
              help="Maximum number of runs at once.")  # fmt: skip
@click.option("--waiting", type=click.IntRange(min=0), default=1_000, show_default=True, metavar="N",
              help="Runs that may wait for their turn; more are answered with 429.")  # fmt: skip
@click.option(
    "--grace",
    callback=duration,
    default="20s",
    show_default=True,
    metavar="TIME",
    help="Time for runs to end after SIGTERM.",
)
@click.option("--queue", default="default", show_default=True, metavar="NAME", help="Queue for runs on PostgreSQL.")
@click.option("--request-timeout", type=FiniteRange(0, min_open=True), default=20.0, show_default=True,
              metavar="SECONDS", help="How long the head of a request may take to arrive, and its body.")  # fmt: skip
@click.option("--max-body", type=click.IntRange(min=1), default=4_000_000, show_default=True, metavar="BYTES",
              help="Maximum size of a request's body.")  # fmt: skip
@click.option("--mcp-patience", callback=duration, default="50s", show_default=True, metavar="TIME",
              help="After this time, a call of an MCP tool returns the id of its run, which continues.")  # fmt: skip
@click.option("--mcp-on-cancel", type=click.Choice(["cancel", "detach"]), default="cancel", show_default=True,
              help="What becomes of the run of a call of an MCP tool that is cancelled.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="Lines on stderr: as text, or an object of JSON each.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@debug_option
@add_telemetry_options
@store_option
@click.option("--durability", type=click.Choice(DURABILITIES), default="full", show_default=True,
              help="What the record of runs survives, as for `run`.")  # fmt: skip
def command(flows: tuple[str, ...], host: str, log_format: LogFormat, quiet: bool, **options: Any) -> int:
    """Serve the flows in FLOW files or below FOLDERs over HTTP: POST /flows/NAME takes inputs and gives outputs.

    Programs need a key: `flowengine keys add NAME`. /openapi.json describes each flow. With a store on PostgreSQL
    runs go into its queue, for `flowengine worker`; else they go on here, and what is left at SIGTERM or by a crash
    goes on at the next start.
    """
    with worker_log(log_format, quiet=quiet, logger=_LOG):
        try:
            return _serve(flows, host=host, log_format=log_format, quiet=quiet, **options)
        except FlowEngineError as error:
            if log_format == "text":
                raise
            _LOG.error(str(error))
            return exit_code(error)


def _serve(
    flows: tuple[str, ...],
    port: int,
    host: str,
    names: tuple[str, ...],
    origins: tuple[str, ...],
    no_keys: bool,
    at_once: int,
    waiting: int,
    grace: float,
    queue: str,
    request_timeout: float,
    max_body: int,
    mcp_patience: float,
    mcp_on_cancel: Literal["cancel", "detach"],
    log_format: LogFormat,
    quiet: bool,
    store: str | None,
    durability: Durability,
    telemetry: TelemetryOptions,
) -> int:
    is_here = is_loopback(host)
    if no_keys and not is_here:
        raise click.UsageError(f"--no-keys goes with this machine's own addresses, and {host} can be reached by others")
    say = _LOG.info if log_format == "json" else complain
    with needing_extra("serve", "`flowengine serve`"):
        from flowengine.runtime import Admission
        from flowengine.web import ConnectionLimits, address_of, listen, make_serving_app, serve
    _raise_file_limit()
    results = Results()
    project = find_project(flows[0])
    links = [] if project.notify is None else [project.notify.host]  # By this name people come with links.
    hosts = (*LOOPBACK, *([] if is_here else [host, socket.gethostname().lower()]), *map(str.lower, (*names, *links)))
    with open_journal(store, durability) as journal, telemetry.sending(journal, _LOG.warning):
        with results.alone():
            app = make_serving_app(
                journal,
                flows,
                needs_key=not no_keys,
                hosts=None if "*" in names else hosts,
                any_address=not is_here,
                origins=origins,
                admission=Admission(at_once, waiting),
                grace=grace,
                queue=queue,
                environ=load_environment(),
                project=project,
                max_body=max_body,
                mcp_patience=mcp_patience,
                mcp_on_cancel=mcp_on_cancel,
            )
        service = app.state.serving.service
        listening = listen(host, port)
        address = address_of(host, listening.getsockname()[1])

        def announce() -> None:
            results.line(address)
            if not quiet:
                _announce(service.flows, format_store(store), address, service.is_queued, no_keys, say)
                _announce_budgets(journal, service.flows, project, say)

        with listening, results.alone():
            limits = ConnectionLimits(request_timeout, _WITHOUT_HEAD)
            serve(app, listening, announce, limits, service.drain, watch=partial(watch_loop_if_debugging, say))
    if not quiet:
        say("stopped")
    return 0


def _raise_file_limit() -> None:
    """Each connection takes a descriptor, and many systems give 1,024 to a process that does not ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _announce(
    flows: Mapping[str, Flow],
    store: str,
    address: str,
    is_queued: bool,
    no_keys: bool,
    say: Callable[[str], object],
) -> None:
    say(f"serves {', '.join(sorted(flows)) or 'no flow'}; runs are kept in {store}; Ctrl-C ends it")
    if not keeps(store):
        say("notice: runs are lost when it ends; --store names a place where they are kept")
    if is_queued:
        say("runs go into the queue: `flowengine worker` goes on with them")
    if no_keys:
        say("notice: it requires no key")
    from flowengine.web.service import nodes_with_shared_memory  # `keys` serves nothing.

    shared = [f"{name}: {path}" for name, flow in sorted(flows.items()) for path in nodes_with_shared_memory(flow)]
    if shared:
        say(f"notice: one memory for all who call ({', '.join(shared)}); `scope_id` of `memory` says whose it is")
    say(f"try: curl {address}/flows" + ("" if no_keys else ' -H "Authorization: Bearer KEY"'))


def _announce_budgets(
    journal: JournalStore, flows: Mapping[str, Flow], project: Project, say: Callable[[str], object]
) -> None:
    """Say which models keys with a budget may not ask, before a caller hears of it."""
    budgeted = [key.caller.name for key in _ring(journal).list() if key.caller.budget_usd_day is not None]
    if not budgeted:
        return
    from flowengine.web.service import models_without_price

    environ = read_environment(project.root, load_environment())
    unpriced = sorted({each for flow in flows.values() for each in models_without_price(flow, project, environ)})
    if unpriced:
        say(
            f"notice: {', '.join(budgeted)} may not ask {', '.join(unpriced)}: the price is not known, and a day's "
            f"budget binds; say it in [prices] of the project file"
        )


# --- `flowengine keys`


@click.group("keys")
def keys_command() -> None:
    """The keys by which programs call served flows. A store keeps them hashed, beside its runs."""


@keys_command.command("add")
@click.argument("name")
@click.option("--flows", metavar="NAME,NAME", help="Flows that it may use.  [default: all]")
@click.option("--budget-usd-day", type=FiniteRange(0, min_open=True), metavar="USD",
              help="Maximum cost of its runs per day (UTC), in USD.")  # fmt: skip
@click.option(
    "--requests-per-minute", type=click.IntRange(min=1), metavar="N", help="Maximum number of requests per minute."
)
@store_option
def add_key(
    name: str, flows: str | None, budget_usd_day: float | None, requests_per_minute: int | None, store: str | None
) -> int:
    """Create a key for NAME and print it once, as the last word."""
    allowed_flows = None if flows is None else [each.strip() for each in flows.split(",") if each.strip()]
    if allowed_flows == []:
        raise click.UsageError("--flows names no flow")
    results = Results()
    with open_journal(_choose_lasting_store(store)) as journal:
        key = _ring(journal).add(
            name, flows=allowed_flows, budget_usd_day=budget_usd_day, requests_per_minute=requests_per_minute
        )
    complain(f"the key of '{name}', which is told this once; send it as `Authorization: Bearer KEY`:")
    results.line(key)
    return 0


@keys_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
@store_option
def list_keys(as_json: bool, store: str | None) -> int:
    """List the keys, with what they may do and what they have spent today."""
    results = Results()
    with open_journal(_choose_lasting_store(store)) as journal:
        keys = _ring(journal).list()
        from flowengine.web.service import DayBudgets  # As above.

        spent = {key.caller.name: DayBudgets(journal).read_spending(key.caller.name) for key in keys}
    if as_json:
        results.value([_to_object(key, *spent[key.caller.name]) for key in keys])
        return 0
    if not keys:
        complain("no keys: `flowengine keys add NAME` makes one")
    rows = [
        [
            key.caller.name,
            key.id,
            datetime.fromtimestamp(key.added, UTC).date().isoformat(),
            "all" if key.caller.flows is None else ",".join(key.caller.flows),
            _format_budget(key.caller.budget_usd_day, *spent[key.caller.name]),
            "" if key.caller.requests_per_minute is None else f"{key.caller.requests_per_minute}/min",
        ]
        for key in keys
    ]
    results.lines(format_table([["NAME", "ID", "ADDED", "FLOWS", "BUDGET", "RATE"], *rows] if rows else []))
    return 0


def _to_object(key: ApiKey, spent: float, reserved: float) -> Mapping[str, Any]:
    about = {**key.caller._asdict(), "id": key.id, "added": datetime.fromtimestamp(key.added, UTC).isoformat()}
    return {**about, "spent_usd_today": spent, "reserved_usd_today": reserved}


def _format_budget(budget: float | None, spent: float, reserved: float) -> str:
    if budget is None:
        return ""
    reservation = f" + {_format_usd(reserved)} reserved" if reserved else ""
    return f"{_format_usd(spent)}{reservation} of {_format_usd(budget)} USD today"


def _format_usd(amount: float) -> str:
    """Dollars to the millionth, as calls cost.

    >>> _format_usd(5.4e-05), _format_usd(5.0), _format_usd(0)
    ('0.000054', '5', '0')
    """
    return f"{amount:,.6f}".rstrip("0").rstrip(".")


@keys_command.command("remove")
@click.argument("name")
@store_option
def remove_key(name: str, store: str | None) -> int:
    """Remove the key of NAME."""
    with open_journal(_choose_lasting_store(store)) as journal:
        _ring(journal).remove(name)
    complain(f"the key of '{name}' is no more")
    return 0


def _choose_lasting_store(store: str | None) -> str:
    address = choose_store(store)
    if not keeps(address):
        raise click.UsageError("a key is kept in a store: --store names a file or a database")
    return address


def _ring(journal: Any) -> Any:
    from flowengine.web.gate import KeyRing  # Commands are imported for their help, too.

    return KeyRing(journal)
