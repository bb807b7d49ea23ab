"""Options that `run` and `resume` share, and the limits that come of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import click
from pydantic_core import PydanticCustomError

from flowengine.cli.store import DURABILITIES, store_option
from flowengine.cli.watch import Reporting
from flowengine.nodes.limits import FlowLimits
from flowengine.spec.fields import seconds

__all__ = ["RUN_ID", "duration", "limits_of", "reporting_of", "running_options"]

RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

F = TypeVar("F", bound=Callable[..., Any])


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


_OPTIONS: Final = (
    click.option("--model", metavar="NAME", help="Use this model instead of every model that the flow names."),
    store_option,
    click.option("--json", "as_json", is_flag=True, help="Print the run as one JSON object."),
    click.option("--events", is_flag=True, help="Print each event as a line of JSON while it happens."),
    click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Nodes in flight at once."),
    click.option("--timeout", callback=duration, metavar="TIME", help="Limit of the whole run: 30s, 10m, 2h."),
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


def reporting_of(as_json: bool, events: bool, quiet: bool) -> Reporting:
    if as_json and events:
        raise click.UsageError("--json and --events exclude each other")
    return Reporting(as_json, events, quiet)


def limits_of(flow: FlowLimits, concurrency: int | None, timeout: float | None) -> FlowLimits:
    """The flow's own limits, with those that were given in their place."""
    given = {name: value for name, value in (("concurrency", concurrency), ("timeout", timeout)) if value is not None}
    return replace(flow, **given)
