"""Reads which runs a command means: by name, by filters, or both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import wraps
from time import time
from typing import Any, Final, NamedTuple

import click

from flowengine.cli.environment import find_user
from flowengine.cli.options import duration, label_option
from flowengine.engine import JournalStore
from flowengine.journal import STATUS_WORDS, RunQuery
from flowengine.runtime import RunLister

Command = Callable[..., int]
PATIENCE: Final = 600.0
"""Seconds for which runs of an older store are read for a search."""

# --- By filters


def since(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A day (`2026-03-01`, `today`, `yesterday`) or how long ago (`12h`, `7d`), as Unix seconds."""
    if value is None:
        return None
    if value in _DAYS_AGO or re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        try:
            return _begin_of(_day_of(value))
        except (ValueError, OverflowError, OSError):
            raise click.BadParameter(f"{value!r} is no day") from None
    if value[:1].isalpha():
        raise click.BadParameter(
            f"{value!r} is no day and no duration: write today, yesterday or 2026-03-01, or how long ago, as 12h or 7d"
        )
    ago = duration(ctx, param, value)
    return None if ago is None else time() - ago


_DAYS_AGO: Final = {"today": 0, "yesterday": 1}


def _day_of(text: str) -> date:
    ago = _DAYS_AGO.get(text)
    return date.fromisoformat(text) if ago is None else date.today() - timedelta(days=ago)


def _begin_of(day: date) -> float:
    return datetime(day.year, day.month, day.day).astimezone().timestamp()


def until(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The end of a day (`2026-03-01`, `today`, `yesterday`), as Unix seconds."""
    if value is None:
        return None
    try:
        return _begin_of(_day_of(value) + timedelta(days=1))
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{value!r} is no day: write today, yesterday or 2026-03-01") from None


def add_filter_options(function: Command) -> Command:
    """The options that say which runs are meant, as the argument `query`."""

    @click.option("--flow", default="", metavar="NAME", help="Only runs of this flow.")
    @click.option(
        "--status",
        type=click.Choice(STATUS_WORDS),
        metavar="STATUS",
        help=f"Only those that are {', '.join(STATUS_WORDS[:-1])} or {STATUS_WORDS[-1]}.",
    )
    @label_option("Only runs with this label; given several times, with all of them.")
    @click.option(
        "--since",
        callback=since,
        metavar="TIME",
        help="Only runs that began since: 30m, 12h, 7d, today, yesterday, 2026-03-01.",
    )
    @click.option(
        "--older-than", callback=duration, metavar="TIME", help="Only runs that began earlier: 30m, 12h, 30d."
    )
    @click.option(
        "--until", callback=until, metavar="DAY", help="Only runs that began on this day or before: today, 2026-03-01."
    )
    @click.option(
        "--ended-since", callback=since, metavar="TIME", help="Only runs that stopped since: 30m, 12h, 7d, today."
    )
    @click.option(
        "--search",
        default="",
        metavar="WORDS",
        help='Only runs with these words in inputs, outputs, errors, id, flow, file or labels; "in quotes": in a row.',
    )
    @click.option("--mark", default="", metavar="NAME", help="Only runs with this mark.")
    @click.option("--session", default="", metavar="NAME", help="Only runs of this session.")
    @click.option(
        "--waits-for",
        metavar="WHO",
        help="Only runs that wait for an answer that WHO may give; me: this machine's user.",
    )
    @wraps(function)
    def command(
        flow: str,
        status: str | None,
        labels: Mapping[str, str],
        since: float | None,
        older_than: float | None,
        until: float | None,
        ended_since: float | None,
        search: str,
        mark: str,
        session: str,
        waits_for: str | None,
        **others: Any,
    ) -> int:
        ends = [each for each in (until, None if older_than is None else time() - older_than) if each is not None]
        who = find_user() if waits_for == "me" else waits_for
        query = RunQuery(
            flow, status or "", labels, since, min(ends, default=None), search.strip(), mark, who, ended_since,
            session.strip(),
        )  # fmt: skip
        return function(query=query, **others)

    return command


# --- By name, by filters, or both


class SelectedRuns(NamedTuple):
    """The runs that a selection finds in a store."""

    runs: Mapping[str, str]
    """Run → how it stands, in a word: the named ones first, then the newest."""
    named_ids: frozenset[str]


class Selection(NamedTuple):
    """Runs by name, by filters, or both."""

    references: tuple[str, ...]
    query: RunQuery

    @property
    def has_filters(self) -> bool:
        return self.query != RunQuery()

    def choose(self, store: JournalStore, limit: int | None = None) -> SelectedRuns:
        """The runs; a `click.UsageError` where nothing was said of which. `limit`: of those that filters find."""
        has_filters = self.has_filters or limit is not None
        if not self.references and not has_filters:
            raise click.UsageError(
                "name a run, or give --flow, --status, --label, --since, --until, --older-than, --ended-since, "
                "--search, --mark, --session or --waits-for"
            )
        run_ids = [store.find(each) for each in self.references]
        lister = RunLister(store)
        lines = lister.page(self.query, limit, patience=PATIENCE).lines if has_filters else ()
        words = {line.info.run_id: line.word for line in (*lister.list_named(run_ids), *lines)}
        return SelectedRuns(words, frozenset(run_ids))


def selection(function: Command) -> Command:
    """RUNs by name and by `add_filter_options`, as the argument `selected`."""

    @click.argument("references", metavar="[RUN]...", nargs=-1)
    @add_filter_options
    @wraps(function)
    def command(references: tuple[str, ...], query: RunQuery, **others: Any) -> int:
        return function(selected=Selection(references, query), **others)

    return command
