"""What one run leaves for the next one of the same session. Source of the rule: row C7 of the requirements.

A session is loaded once, when a run starts, and then is part of the run's record; it is written once, at a
successful end. Runs of one session that overlap each add what was said in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowengine.context import EMPTY
from flowengine.engine.ports import JournalStore
from flowengine.engine.view import FinalContext
from flowengine.engine.walk import Walk
from flowengine.errors import DefinitionError
from flowengine.values import freeze

__all__ = ["load_session", "save_session"]

LONGEST: Final = 1000
"""Interactions of a conversation that are kept, the newest."""
_KIND: Final = "session"
_OF_ONE_RUN: Final = ("skills", "memory")
"""What no later run of the session begins with: memories are kept in their own place."""


def load_session(store: JournalStore, session: str | None) -> Mapping[str, Any]:
    """What the session has kept; nothing for a new one, or where there is no session."""
    if session is None:
        return EMPTY
    if not session.strip() or len(session) > 200:
        raise DefinitionError(f"a session is named by 1 to 200 characters, not {session!r:.80}")
    return freeze(store.recall(_KIND, session) or {})


def save_session(store: JournalStore, session: str, walk: Walk, began_with: Mapping[str, Any]) -> None:
    """Keep what the nodes of a run that succeeded have left."""
    kept = dict(FinalContext(walk).kept)
    for name in _OF_ONE_RUN:
        kept.pop(name, None)
    said = kept.pop("conversation", [])[len(began_with.get("conversation", ())) :]

    def add(before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        now = {**(before or {}), **kept}
        conversation = [*now.get("conversation", ()), *said]
        return ({**now, "conversation": conversation[-LONGEST:]} if conversation else now) or None

    store.revise(_KIND, session, add)
