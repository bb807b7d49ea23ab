"""Reads which runs a command means: by name, by filters, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from flowengine.cli.commands.runs_list import add_filter_options
from flowengine.engine.ports import JournalStore
from flowengine.journal.run_lookup import RunQuery
from flowengine.runners.run_listing import RunLister

__all__ = ["Chosen", "Selection", "selection"]

Command = Callable[..., int]


class Chosen(NamedTuple):
    """The runs that a selection finds in a store."""

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

    def choose(self, store: JournalStore, limit: int | None = None) -> Chosen:
        """The runs; a `click.UsageError` where nothing was said of which. `limit`: of those that filters find."""
        has_filters = self.has_filters or limit is not None
        if not self.references and not has_filters:
            raise click.UsageError(
                "name a run, or give --flow, --status, --label, --since, --until, --older-than, --ended-since, "
                "--search, --mark, --session or --waits-for"
            )
        named = [store.find(each) for each in self.references]
        lister = RunLister(store)
        found = lister.page(self.query, limit, patience=_PATIENCE).lines if has_filters else ()
        words = {line.info.run_id: line.word for line in (*lister.list_named(named), *found)}
        return Chosen(words, frozenset(named))


_PATIENCE: Final = 600.0
"""Seconds for which runs of an older store are read for a search."""


def selection(function: Command) -> Command:
    """RUNs by name and by `add_filter_options`, as the argument `selected`."""

    @click.argument("references", metavar="[RUN]...", nargs=-1)
    @add_filter_options
    @wraps(function)
    def command(references: tuple[str, ...], query: RunQuery, **others: Any) -> int:
        return function(selected=Selection(references, query), **others)

    return command
