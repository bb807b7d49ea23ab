"""Carries what one run leaves to the next one of the same session. Source of the rule: row C7 of the requirements.

A session is loaded once, when a run starts, and then is part of the run's record; it is written once, at a
successful end. Runs of one session that overlap each add what was said in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowengine.core.run_scope import Fence
from flowengine.core.values import freeze
from flowengine.engine.events import RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.engine.view import FinalContext
from flowengine.engine.walk import Walk
from flowengine.errors import InputError, refuse_other_kind
from flowengine.nodes.compiled_flow import CompiledFlow

__all__ = ["check_session_name", "leave_behind", "load_session"]

LONGEST: Final = 1000
"""Interactions of a conversation that are kept, the newest."""
_KIND: Final = "session"
_SAVED: Final = "=runs"
"""Beside what is kept: the runs that it is from, the newest."""
_OF_ONE_RUN: Final = ("skills", "memory")
"""What no later run of the session begins with: memories are kept in their own place."""


def check_session_name(name: str) -> str:
    """Give the name back as it is, or raise `InputError` where no session can have it.

    >>> check_session_name(" ")
    Traceback (most recent call last):
    flowengine.errors.InputError: a session is named by 1 to 200 characters, not ' '
    """
    refuse_other_kind(name, str, "a session's name is text", InputError)
    is_text = "\0" not in name and name == name.encode(errors="replace").decode()  # As every store can keep it.
    if not (name.strip() and len(name) <= 200 and is_text):
        raise InputError(f"a session is named by 1 to 200 characters, not {name!r:.80}")
    return name


def load_session(store: JournalStore, session: str) -> Mapping[str, Any]:
    """Returns the stored session; empty for a new one."""
    found = dict(store.recall(_KIND, check_session_name(session)) or {})
    found.pop(_SAVED, None)
    return freeze(found)


async def leave_behind(
    plan: CompiledFlow, store: JournalStore, started: RunStarted, walk: Walk, fence: Fence | None
) -> None:
    """Keep what a run leaves that has succeeded: its memories, and what its session goes on with.

    It may be done again, when the run was interrupted before its end was on record: all of it is kept once. `fence`
    is asked first, so that nothing is left of a run that another goes on with.
    """
    session = started.settings.get("session")
    kept = FinalContext(walk).runtime.kept
    if "memory" not in kept and session is None:
        return
    if fence is not None:
        await fence()
    if "memory" in kept:
        from flowengine.context_providers.kept_memories import keep_for_good
        from flowengine.nodes.agent import providers_of  # Few flows remember anything for good.

        await keep_for_good(kept, providers_of(plan.all_nodes.values()))
    if session is not None:
        _save(store, session, started, kept)


def _save(store: JournalStore, session: str, started: RunStarted, all_kept: Mapping[str, Any]) -> None:
    kept, began_with = dict(all_kept), started.kept
    for name in _OF_ONE_RUN:
        kept.pop(name, None)
    said = kept.pop("conversation", [])[len(began_with.get("conversation", ())) :]

    def add(before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        saved = (before or {}).get(_SAVED, ())
        if started.run_id in saved:
            return before
        now = {**(before or {}), **kept, _SAVED: [*saved, started.run_id][-LONGEST:]}
        conversation = [*now.get("conversation", ()), *said]
        return {**now, "conversation": conversation[-LONGEST:]} if conversation else now

    store.revise(_KIND, session, add)
