"""Which runs a command means: those that are named, and those that its filters find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from time import time
from typing import Any, NamedTuple

import click

from flowengine.cli.options import duration, label_option
from flowengine.engine.ports import JournalStore
from flowengine.journal.run_query import STATUS_WORDS, RunQuery
from flowengine.runners.queue_view import words_of

__all__ = ["Chosen", "Selection", "filter_options", "selection"]

Command = Callable[..., int]


class Chosen(NamedTuple):
    """What a selection comes to in a store."""

    runs: Mapping[str, str]
    """Run → how it stands, in a word: the named ones first, then the newest."""
    named: frozenset[str]


class Selection(NamedTuple):
    """Runs by name, by filters, or both."""

    references: tuple[str, ...]
    query: RunQuery

    @property
    def has_filters(self) -> bool:
        return self.query != RunQuery()

    def choose(self, store: JournalStore) -> Chosen:
        """The runs; a `click.UsageError` where nothing was said of which."""
        if not self.references and not self.has_filters:
            raise click.UsageError("name a run, or give --flow, --status, --label or --older-than")
        named = [store.find(each) for each in self.references]
        infos = store.list()
        words = words_of(store, infos)
        found = self.query.select(infos, words) if self.has_filters else []
        return Chosen({each: words[each] for each in (*named, *(info.run_id for info in found))}, frozenset(named))


def filter_options(function: Command) -> Command:
    """`--flow`, `--status`, `--label` and `--older-than`, as the argument `query`."""

    @click.option("--flow", default="", metavar="NAME", help="Only runs of this flow.")
    @click.option(
        "--status",
        type=click.Choice(STATUS_WORDS),
        metavar="STATUS",
        help=f"Only those that are {', '.join(STATUS_WORDS[:-1])} or {STATUS_WORDS[-1]}.",
    )
    @label_option("Only runs with this label; given several times, with all of them.")
    @click.option(
        "--older-than", callback=duration, metavar="TIME", help="Only runs that began earlier: 30m, 12h, 30d."
    )
    @wraps(function)
    def command(
        flow: str, status: str | None, labels: Mapping[str, str], older_than: float | None, **others: Any
    ) -> int:
        before = None if older_than is None else time() - older_than
        return function(query=RunQuery(flow, status or "", labels, started_before=before), **others)

    return command


def selection(function: Command) -> Command:
    """RUNs by name and by `filter_options`, as the argument `selected`."""

    @click.argument("references", metavar="[RUN]...", nargs=-1)
    @filter_options
    @wraps(function)
    def command(references: tuple[str, ...], query: RunQuery, **others: Any) -> int:
        return function(selected=Selection(references, query), **others)

    return command
