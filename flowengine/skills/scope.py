"""What the agents of one run have loaded: kept for as long as the run, shared between them, told once.

It knows texts and what loading them took. It reads no file and asks no model.
"""

from __future__ import annotations

from collections.abc import Hashable

from flowengine.context import Note
from flowengine.records import Notice, SkillLoad
from flowengine.run_scope import RunScope
from flowengine.skills.outline import Outline, outline_of
from flowengine.skills.skill import LoadedText

__all__ = ["SkillScope"]


class SkillScope:
    """Of one run, or of one agent that stands alone."""

    def __init__(self) -> None:
        self._held: dict[Hashable, LoadedText] = {}
        self._outlines: dict[Hashable, tuple[str, Outline]] = {}
        self._noticed: set[str] = set()

    @classmethod
    def of(cls, run: RunScope | None) -> SkillScope:
        """The one scope of a run; outside a run a new one."""
        return cls() if run is None else run.once(cls, cls)

    async def take(self, key: Hashable, loaded: LoadedText, skill: str, level: int, note: Note | None) -> None:
        """Keep what was loaded. It is told where this run had not loaded it, or not in this version."""
        held = self._held.get(key)
        if held is not None and held.text == loaded.text:
            return
        self._held[key] = loaded
        if note is not None:
            await note(SkillLoad(skill, level, loaded.tokens, loaded.seconds, loaded.memory))

    async def notice(self, text: str, note: Note | None) -> None:
        """Tell something once a run."""
        if note is not None and text not in self._noticed:
            self._noticed.add(text)
            await note(Notice(text))

    def outline(self, key: Hashable, text: str) -> Outline:
        """The outline of a text, made once."""
        known = self._outlines.get(key)
        if known is None or known[0] != text:
            known = (text, outline_of(text))
            self._outlines[key] = known
        return known[1]
