"""Declares the options that commands share, and reads them: the store, inputs, limits, labels. It runs nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import click
from pydantic_core import PydanticCustomError

from flowengine.cli.debugging import debug_option
from flowengine.cli.terminal import complain
from flowengine.core import EMPTY, parse_json
from flowengine.engine import Durability, JournalStore
from flowengine.errors import InputError
from flowengine.flowfile.schema import seconds
from flowengine.journal import check_run_id, open_store, parse_labels, without_password
from flowengine.nodes import InputField, parse_text
from flowengine.version import Extra, install_hint

Command = Callable[..., int]
F = TypeVar("F", bound=Callable[..., Any])

_SERVER_LIBRARIES: Final = ("starlette", "uvicorn", "prometheus_client")


@contextmanager
def needing_extra(extra: Extra, what: str) -> Generator[None]:
    """While the modules of a server are imported: where a library of the extra is missing, it is told what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _SERVER_LIBRARIES:
            raise
        raise click.UsageError(f"{what} needs {error.name}: {install_hint(extra)}") from None


# --- The chosen store

DEFAULT: Final = os.path.join(".flowengine", "runs.db")
DURABILITIES: Final = ("full", "process", "memory")
"""The levels of `flowengine.journal.sqlite.database`, which is not imported to print help."""


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        help=f"Store of the runs: a file, sqlite:///… or postgresql://…  [default: $FLOWENGINE_STORE or {DEFAULT}]",
    )(function)


def choose_store(address: str | None) -> str:
    return address or os.environ.get("FLOWENGINE_STORE") or _find_project_store() or DEFAULT


def _find_project_store() -> str | None:
    """The project's store; a relative path is relative to the project's folder."""
    from flowengine.flowfile.project import project_of  # Only where nothing nearer names the store.

    project, _ = project_of(None)
    if project.store is None:
        return None
    path = project.store.removeprefix("sqlite:///")
    is_path = path != project.store or ":" not in path
    return str(project.root / path) if is_path else project.store


def keeps(store: str) -> bool:
    """Tells whether a run can be found there after this process has ended."""
    return not store.lower().startswith("memory:")


@contextmanager
def open_journal(address: str | None, durability: Durability = "full") -> Generator[JournalStore]:
    """The chosen store, open for as long as the block lasts."""
    journal = open_store(choose_store(address), durability)
    try:
        yield journal
    finally:
        journal.close()


def add_telemetry_options(function: Command) -> Command:
    """`--otlp` and `--otlp-content`, as the argument `telemetry`."""

    @wraps(function)
    def command(*, otlp: str | None, otlp_content: bool, **others: Any) -> int:
        if otlp_content and otlp is None:
            raise click.UsageError("--otlp-content goes with --otlp URL")
        return function(telemetry=TelemetryOptions(otlp, otlp_content), **others)

    return _add_options(command, _TELEMETRY_OPTIONS)


class TelemetryOptions(NamedTuple):
    """Options for sending the spans of runs while they go on."""

    endpoint: str | None = None
    """A collector's address; None: nothing is sent."""
    content: bool = False
    """Whether prompts, answers and arguments go along, masked."""

    def sending(self, store: JournalStore, tell: Callable[[str], None]) -> AbstractContextManager[JournalStore]:
        """The store, whose runs are sent for as long as the block lasts. `tell`: hears of a collector that is lost."""
        if self.endpoint is None:
            return nullcontext(store)
        from flowengine.runtime.telemetry import sending_spans  # Few runs are sent.

        return sending_spans(store, self.endpoint, tell, content=self.content)


NOT_SENT: Final = TelemetryOptions()


def format_store(address: str | None) -> str:
    """The chosen store as it may be shown."""
    return without_password(choose_store(address))


# --- Inputs from `-i` and `--inputs`


def gather_inputs(fields: Mapping[str, InputField] | None, pairs: Sequence[str], file: str | None) -> dict[str, Any]:
    """The inputs of a command line; `-i` wins over the file.

    A value is text; where its input is declared with another type, it is JSON. `@FILE` stands for a
    file's text (`@-` for stdin), `@@` for an at sign at the start. For an input of type `file`, `@FILE` is any file of
    this machine, and a text is a path below the project's root, or an address that the project allows.

    >>> gather_inputs({"n": InputField("integer")}, ["n=3"], None)
    {'n': 3}
    """
    parsed_pairs = [_split_pair(pair) for pair in pairs]
    reads_stdin = [name for name, text in parsed_pairs if text == "@-"] + ["--inputs"] * (file == "-")
    if len(reads_stdin) > 1:
        raise InputError(f"stdin can be read once, and is asked for by {' and by '.join(reads_stdin)}")
    values = {} if file is None else _read_inputs_file(file)
    problems: list[str] = []
    names: set[str] = set()
    for name, text in parsed_pairs:
        if name in names:
            problems.append(f"input '{name}' is given twice")
        names.add(name)
        try:
            field = (fields or {}).get(name)
            is_file = field is not None and field.type == "file"
            values[name] = _name_file(text) if is_file else parse_text(name, _check_text(name, text), field)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("\n".join(problems))
    return values


def _split_pair(pair: str) -> tuple[str, str]:
    name, equals, text = pair.partition("=")
    if not equals or not name.strip():
        raise InputError(f"-i {pair!r}: expected key=value")
    return name.strip(), text


def _name_file(text: str) -> Any:
    """Returns the placeholder for an input of type `file`."""
    if text.startswith("@@") or not text.startswith("@"):
        return text.removeprefix("@")
    return sys.stdin.buffer.read() if text == "@-" else Path(text[1:])


def _check_text(name: str, text: str) -> str:
    if text.startswith("@@"):
        return text[1:]
    return _read_text(f"input '{name}'", text[1:]) if text.startswith("@") else text


def _read_text(what: str, path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{what}: cannot read '{path}': {reason}") from error


def _read_inputs_file(path: str) -> dict[str, Any]:
    text = _read_text("--inputs", path)
    try:
        values: Any = parse_json(text)
    except ValueError as error:
        raise InputError(f"--inputs: '{path}' is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"--inputs: '{path}' must hold a JSON object, found {_name_type(values)}")
    return cast("dict[str, Any]", values)


def _name_type(value: Any) -> str:
    names = {"list": "an array", "str": "a string", "bool": "a boolean", "NoneType": "null"}
    return names.get(type(value).__name__, "a number")


# --- Options


def run_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An id that a run may have."""
    try:
        return None if value is None else check_run_id(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from None


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """`30s`, `10m`, `500ms`, `7d`, or a number of seconds."""
    if value is None:
        return None
    try:
        if re.fullmatch(r"\d{1,5}d", value):
            amount = float(value[:-1]) * 86_400
        else:
            amount = float(seconds(f"{value}s" if value[-1:].isdigit() else value))
    except PydanticCustomError:
        raise click.BadParameter(f"{value!r} is no duration: write 30s, 10m, 2h or 500ms") from None
    if amount <= 0:
        raise click.BadParameter("a duration must be longer than nothing")
    return amount


def _parse_labels(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Mapping[str, str]:
    try:
        return parse_labels(values) if values else EMPTY
    except InputError as error:
        raise click.BadParameter(str(error)) from None


def label_option(help: str) -> Callable[[F], F]:
    """`--label NAME=VALUE`, several times."""
    return click.option("--label", "labels", multiple=True, callback=_parse_labels, metavar="NAME=VALUE", help=help)


class FiniteRange(click.FloatRange):
    """A number within bounds; click alone takes `nan`, which no bound holds off, and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"expected a finite number, found {value}", param, ctx)
        return number


strict_limits_option = click.option(
    "--strict-limits",
    is_flag=True,
    default=None,
    help="Where money is limited, refuse calls whose price is not known.",
)
_SPENDING_OPTIONS: Final = (
    click.option(
        "--max-cost",
        type=FiniteRange(min=0, min_open=True),
        metavar="USD",
        help="Limit of the models' cost in USD.",
    ),
    click.option("--max-calls", type=click.IntRange(min=1), metavar="N", help="Limit of model calls."),
    click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Limit of input and output tokens."),
    strict_limits_option,
)
"""Limits of a whole run, what it has spent before included."""
OPTION_OF: Final[Mapping[str, str]] = {
    "cost_usd": "--max-cost",
    "model_calls": "--max-calls",
    "tokens": "--max-tokens",
}
"""Limit → the option that chooses it."""


_RUN_OPTIONS: Final = (
    click.option("--model", metavar="NAME", help="Use this model in place of all models of the flow."),
    store_option,
    click.option("--json", "as_json", is_flag=True, help="Print the run as one JSON object."),
    click.option("--events", is_flag=True, help="Print each event as a JSON line as it happens."),
    click.option(
        "--concurrency", type=click.IntRange(min=1), metavar="N", help="Maximum number of nodes running at once."
    ),
    click.option("--timeout", callback=duration, metavar="TIME", help="Time limit of the run: 30s, 10m, 2h."),
    *_SPENDING_OPTIONS,
    click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
    debug_option,
    click.option(
        "--durability",
        type=click.Choice(DURABILITIES),
        default="full",
        show_default=True,
        help="What the journal survives: a power cut, the end of the process, or neither.",
    ),
)


_TELEMETRY_OPTIONS: Final = (
    click.option("--otlp", metavar="URL", help="Send spans to this collector while runs go on."),
    click.option(
        "--otlp-content", is_flag=True, help="With --otlp: prompts and answers too; personal data and secrets masked."
    ),
)


class Reporting(NamedTuple):
    """The parts of a run that the user wants to see."""

    json: bool = False
    """One object on stdout at the end, instead of the outputs."""
    events: bool = False
    """Each event as a line on stdout while it happens, instead of the outputs."""
    quiet: bool = False
    """Errors only on stderr."""


@dataclass(frozen=True, slots=True)
class RunningOptions:
    """The options of commands that run: where the run is kept, how it runs, and what is shown of it."""

    store: str | None
    """The value of `--store`."""
    settings: Mapping[str, Any]
    reporting: Reporting
    durability: Durability
    telemetry: TelemetryOptions = NOT_SENT

    @property
    def is_kept(self) -> bool:
        """Whether the run can be found after this process has ended."""
        return keeps(choose_store(self.store))

    @contextmanager
    def open_store(self) -> Generator[JournalStore]:
        """The store of the run, open for as long as the block lasts."""
        with open_journal(self.store, self.durability) as journal, self.telemetry.sending(journal, complain) as store:
            yield store


def add_running_options(function: Command) -> Command:
    """The options of commands that run something, as the argument `running`."""

    @wraps(function)
    def command(
        *,
        store: str | None,
        settings: Mapping[str, Any],
        durability: Durability,
        as_json: bool,
        events: bool,
        quiet: bool,
        telemetry: TelemetryOptions,
        **others: Any,
    ) -> int:
        if as_json and events:
            raise click.UsageError("--json and --events exclude each other")
        running = RunningOptions(store, settings, Reporting(as_json, events, quiet), durability, telemetry)
        return function(running=running, **others)

    return _add_options(collect_settings(add_telemetry_options(command)), _RUN_OPTIONS)


def _add_options(function: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        function = option(function)
    return function


def add_spending_options(function: Command) -> Command:
    return _add_options(function, _SPENDING_OPTIONS)


def collect_settings(function: Command) -> Command:
    """Gives a command what was chosen by --model and limits as `settings`, as the journal stores them."""

    @wraps(function)
    def command(**arguments: Any) -> int:
        values = {setting: arguments.pop(name) for name, setting in _SETTINGS.items()}
        settings = {setting: value for setting, value in values.items() if value is not None}
        return function(settings=settings, **arguments)

    return command


_SETTINGS: Final = {
    "model": "model",
    "concurrency": "concurrency",
    "timeout": "timeout",
    "max_cost": "cost_usd",
    "max_calls": "model_calls",
    "max_tokens": "tokens",
    "strict_limits": "needs_prices",
}
"""Parameter of a command → the setting that it chooses."""


# --- Rows of data


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOptions:
    """The options of `flowengine run --data` beside a flow and its inputs."""

    data: str
    output: str | None
    mapping: tuple[str, ...]
    retry_failed: bool
    fresh: bool
    allow_changed: bool
    batch: bool
    deadline: float | None


_ROWS_OPTIONS: Final = (
    click.option("--data", metavar="FILE", help="Run once for each row: .jsonl, or .csv with inputs as columns."),
    click.option("-o", "--output", metavar="FILE", help="With --data: file for the results, .jsonl or .csv."),
    click.option(
        "--map", "mapping", multiple=True, metavar="COLUMN=INPUT", help="With --data: the input for a column."
    ),
    click.option("--retry-failed", is_flag=True, help="With --data: resume failed rows."),
    click.option("--fresh", is_flag=True, help="With --data: run finished rows again."),
    click.option("--allow-changed", is_flag=True, help="With --data: continue although the flow was edited."),
    click.option("--batch", is_flag=True, help="With --data: use the vendors' batch APIs, at half the price."),
    click.option(
        "--deadline", callback=duration, metavar="TIME", help="With --batch: after this time, make calls directly."
    ),
)
_OTHER_NAMES: Final = {"output": "-o", "mapping": "--map"}
"""Field of `RowsOptions` → its option, where that has another name."""


def add_rows_options(function: Command) -> Command:
    """The options of runs over rows, as the argument `rows`: None without --data, which all others need."""

    @wraps(function)
    def command(**arguments: Any) -> int:
        values = {each.name: arguments.pop(each.name) for each in fields(RowsOptions)}
        if values["data"] is not None:
            return function(rows=RowsOptions(**values), **arguments)
        for name, value in values.items():
            if value:
                option = _OTHER_NAMES.get(name) or f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{option} goes with --data")
        return function(rows=None, **arguments)

    return _add_options(command, _ROWS_OPTIONS)
