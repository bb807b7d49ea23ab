"""Options that `run` and `resume` share, and the limits that come of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from pydantic_core import PydanticCustomError

from flowengine.cli.store import DURABILITIES, store_option
from flowengine.cli.watch import Reporting
from flowengine.errors import InputError
from flowengine.journal.labels import parse_labels
from flowengine.spec.fields import seconds

__all__ = [
    "OPTION_OF",
    "RUN_ID",
    "duration",
    "label_option",
    "reporting_of",
    "run_id",
    "running_options",
    "settings_given",
    "spending_options",
]

RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

F = TypeVar("F", bound=Callable[..., Any])


def run_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An id that a run may have."""
    if value is not None and not RUN_ID.fullmatch(value):
        raise click.BadParameter(f"{value!r} must be 1 to 64 letters, digits, _ and -")
    return value


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """`30s`, `10m`, `500ms`, `7d`, or a number of seconds."""
    if value is None:
        return None
    try:
        if re.fullmatch(r"\d{1,5}d", value):
            return float(value[:-1]) * 86_400
        found = float(seconds(f"{value}s" if value[-1:].isdigit() else value))
    except PydanticCustomError:
        raise click.BadParameter(f"{value!r} is no duration: write 30s, 10m, 2h or 500ms") from None
    if found <= 0:
        raise click.BadParameter("a duration must be longer than nothing")
    return found


def _labels(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Mapping[str, str]:
    try:
        return parse_labels(values)
    except InputError as error:
        raise click.BadParameter(str(error)) from None


def label_option(help: str) -> Callable[[F], F]:
    """`--label NAME=VALUE`, several times."""
    return click.option("--label", "labels", multiple=True, callback=_labels, metavar="NAME=VALUE", help=help)


_SPENDING: Final = (
    click.option(
        "--max-cost",
        type=click.FloatRange(min=0, min_open=True),
        metavar="USD",
        help="Limit of what its models may cost.",
    ),
    click.option("--max-calls", type=click.IntRange(min=1), metavar="N", help="Limit of its calls of models."),
    click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Limit of its tokens, in and out."),
)
"""Limits of a whole run, what it has spent before included."""
OPTION_OF: Final[Mapping[str, str]] = {
    "cost_usd": "--max-cost",
    "model_calls": "--max-calls",
    "tokens": "--max-tokens",
}
"""Limit → the option that chooses it."""


_OPTIONS: Final = (
    click.option("--model", metavar="NAME", help="Use this model instead of every model that the flow names."),
    store_option,
    click.option("--json", "as_json", is_flag=True, help="Print the run as one JSON object."),
    click.option("--events", is_flag=True, help="Print each event as a line of JSON while it happens."),
    click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Nodes in flight at once."),
    click.option("--timeout", callback=duration, metavar="TIME", help="Limit of the whole run: 30s, 10m, 2h."),
    *_SPENDING,
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
    click.option(
        "--durability",
        type=click.Choice(DURABILITIES),
        default="full",
        show_default=True,
        help="What a record survives: a power cut, the death of the process, or neither.",
    ),
)


def running_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def spending_options(function: F) -> F:
    for option in reversed(_SPENDING):
        function = option(function)
    return function


def reporting_of(as_json: bool, events: bool, quiet: bool) -> Reporting:
    if as_json and events:
        raise click.UsageError("--json and --events exclude each other")
    return Reporting(as_json, events, quiet)


def settings_given(
    *,
    model: str | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    max_cost: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
) -> Mapping[str, Any]:
    """What was chosen for a run on the command line, as its journal keeps it.

    >>> settings_given(model="offline", max_cost=2.0)
    {'model': 'offline', 'cost_usd': 2.0}
    """
    given = {
        "model": model,
        "concurrency": concurrency,
        "timeout": timeout,
        "cost_usd": max_cost,
        "model_calls": max_calls,
        "tokens": max_tokens,
    }
    return {name: value for name, value in given.items() if value is not None}
