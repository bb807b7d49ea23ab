"""`flowengine memory` lists, shows and removes what runs leave for later ones: sessions, and what agents remember.

Records of runs are not its matter: `flowengine runs` shows and removes those.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import click

from flowengine.cli.options import open_journal, store_option
from flowengine.cli.terminal import Results, complain, format_table
from flowengine.core import to_json_value
from flowengine.engine import JournalStore
from flowengine.errors import did_you_mean
from flowengine.journal import run_index_of

if TYPE_CHECKING:
    from flowengine.agents.memory import SQLDatabase
    from flowengine.agents.memory.scopes import MemoryScope

_SESSION: Final = "session"
_CONTEXT: Final = "context:"
"""How the data of a typed context are named in a session."""
_KINDS: Final = (_SESSION, "workspace", "channel", "thread")


class _Memory(NamedTuple):
    """Something that is remembered under a name."""

    kind: str
    name: str
    entries: int
    last: str = ""


class _Places:
    """The store of the runs, and the database of the memories; None where there is none."""

    def __init__(self, store: JournalStore, memories: SQLDatabase | None) -> None:
        self._store, self._memories = store, memories

    def list(self) -> Sequence[_Memory]:
        sessions = sorted(run_index_of(self._store).read_kept(_SESSION).items())
        scopes = [_Memory(_SESSION, name, len(entry.get("conversation", ()))) for name, entry in sessions]
        if self._memories is not None:
            from flowengine.agents.memory.scopes import list_scopes

            scopes += [
                _Memory(each.scope.value, each.scope_id, each.entries, each.last.date().isoformat())
                for each in anyio.run(list_scopes, self._memories)
            ]
        return scopes

    def read(self, scope: _Memory) -> Iterable[Mapping[str, Any]]:
        if scope.kind == _SESSION or self._memories is None:
            whole: Mapping[str, Any] = to_json_value(self._store.recall(_SESSION, scope.name))
            return [{key.lstrip("="): value for key, value in whole.items()}]
        from flowengine.agents.memory.scopes import read_scope

        return anyio.run(read_scope, self._memories, _scope_of(scope), scope.name)

    def remove(self, scope: _Memory) -> None:
        if scope.kind == _SESSION or self._memories is None:
            self._store.revise(_SESSION, scope.name, lambda _: None)
            return
        from flowengine.agents.memory.scopes import remove_scope

        anyio.run(remove_scope, self._memories, _scope_of(scope), scope.name)

    def check_context(self, scope: _Memory, context: str) -> None:
        """`UsageError` where a session keeps no such typed context."""
        whole: Mapping[str, Any] = self._store.recall(_SESSION, scope.name) or {}
        contexts = [name.removeprefix(_CONTEXT) for name in whole if name.startswith(_CONTEXT)]
        if context not in contexts:
            near = did_you_mean(context, contexts)
            raise click.UsageError(f"session '{scope.name}' keeps no typed context '{context}'{near}")

    def remove_context(self, scope: _Memory, context: str) -> None:
        """Take the data of one typed context out of a session: its next run begins with the context's own."""

        def leave_out(before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
            return before and {name: value for name, value in before.items() if name != _CONTEXT + context}

        self._store.revise(_SESSION, scope.name, leave_out)


def _scope_of(scope: _Memory) -> MemoryScope:
    from flowengine.agents.memory.scopes import MemoryScope

    return MemoryScope(scope.kind)


@click.group("memory")
def command() -> None:
    """What runs leave for later ones: sessions of the store (`run --session NAME`), and what agents remember
    (`memory`, `long_term_memory`) of workspaces, channels and threads.

    Runs are removed by `flowengine runs rm`, which leaves this.
    """


def _places(function: Any) -> Any:
    memory = click.option(
        "--memory",
        metavar="FILE",
        help="Memories of agents: a SQLite file, or postgresql://…  [default: .flowengine/memory.db of the project]",
    )
    kind = click.option("--kind", type=click.Choice(_KINDS), help="Only sessions, or only scopes of this kind.")
    return kind(memory(store_option(function)))


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_places
def list_kept(as_json: bool, kind: str | None, memory: str | None, store: str | None) -> int:
    """List sessions and scopes, how much is kept of each, and since when nothing was added."""
    results = Results()
    with open_journal(store) as journal:
        scopes = _choose(_open(journal, memory).list(), (), kind)
    if as_json:
        results.value([each._asdict() for each in scopes])
    elif scopes:
        rows = [[each.kind, each.name, str(each.entries), each.last] for each in scopes]
        results.lines(format_table([["KIND", "NAME", "ENTRIES", "LAST"], *rows], right=[2]))
    else:
        complain("nothing is remembered")
    return 0


@command.command("show")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_places
def show_kept(names: tuple[str, ...], kind: str | None, memory: str | None, store: str | None) -> int:
    """Print everything that is remembered under these NAMEs, an object of JSON on each line: for an export of one
    person's data, say."""
    results = Results()
    with open_journal(store) as journal:
        places = _open(journal, memory)
        for each in _choose(places.list(), names, kind):
            for entry in places.read(each):
                results.json(json.dumps({"kind": each.kind, "name": each.name, **entry}, ensure_ascii=False))
    return 0


@command.command("rm")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--context", metavar="ID", help="Of sessions only the data of this typed context.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@_places
def remove_kept(
    names: tuple[str, ...], context: str | None, dry_run: bool, kind: str | None, memory: str | None, store: str | None
) -> int:
    """Remove for good what is remembered under these NAMEs. A run that began before still has what it began with."""
    if context is not None and kind not in (None, _SESSION):
        raise click.UsageError(f"--context is one of a session's, and a {kind} has none")
    with open_journal(store) as journal:
        places = _open(journal, memory)
        scopes = _choose(places.list(), names, kind if context is None else _SESSION)
        if context is not None:
            _remove_context(places, scopes, context, dry_run=dry_run)
            return 0
        for each in scopes:
            if not dry_run:
                places.remove(each)
            verb = "would remove" if dry_run else "removed"
            complain(f"{verb} {each.kind} '{each.name}': {each.entries} {'entry' if each.entries == 1 else 'entries'}")
    return 0


def _remove_context(places: _Places, sessions: Sequence[_Memory], context: str, *, dry_run: bool) -> None:
    for each in sessions:
        places.check_context(each, context)
    for each in sessions:
        if not dry_run:
            places.remove_context(each, context)
        complain(f"{'would remove' if dry_run else 'removed'} context '{context}' of session '{each.name}'")


def _open(store: JournalStore, memory: str | None) -> _Places:
    from flowengine.flowfile.project import find_project

    path = memory or str(find_project().root / ".flowengine" / "memory.db")
    is_file = ":" not in path
    if is_file and not Path(path).exists():
        if memory is not None:
            raise click.UsageError(f"there is no memory at {path}")
        return _Places(store, None)
    from flowengine.agents.memory import open_memory

    return _Places(store, open_memory(path))


def _choose(scopes: Sequence[_Memory], names: Sequence[str], kind: str | None) -> Sequence[_Memory]:
    of_kind = [each for each in scopes if kind in (None, each.kind)]
    existing = {each.name for each in of_kind}
    for name in names:
        if name not in existing:
            what = "session or scope" if kind is None else kind
            raise click.UsageError(f"nothing is remembered under '{name}' as a {what}{did_you_mean(name, existing)}")
    return [each for each in of_kind if not names or each.name in names]
