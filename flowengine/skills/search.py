"""Finds skills by what they are for: their names and descriptions, in a retriever.

It knows level 1 only, so asking costs no body. The index follows the skills: what changed is indexed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowengine.retrieval.fts import FtsRetriever
from flowengine.retrieval.retriever import Document, Retriever
from flowengine.skills.skill import Skill

__all__ = ["SkillIndex", "searchable"]


class SkillIndex:
    """The skills of one store."""

    def __init__(self, retriever: Retriever | None = None) -> None:
        """`retriever`: one of one's own, for a meaning that words do not show; by default an index in memory."""
        self._retriever: Retriever = FtsRetriever() if retriever is None else retriever
        self._indexed: Mapping[str, str] = {}

    async def ranked(self, skills: Sequence[Skill], query: str, limit: int = 5) -> list[Skill]:
        """The skills that fit best, best first; none where nothing fits."""
        by_name = {each.name: each for each in skills}
        await self._follow({each.name: searchable(each) for each in skills})
        hits = await self._retriever.search(query, limit)
        return [by_name[hit.id] for hit in hits if hit.id in by_name]

    async def _follow(self, texts: Mapping[str, str]) -> None:
        known = self._indexed
        if gone := [name for name in known if name not in texts]:
            await self._retriever.remove(gone)
        if new := [Document(name, text) for name, text in texts.items() if known.get(name) != text]:
            await self._retriever.add(new)
        self._indexed = texts


def searchable(skill: Skill) -> str:
    """What of a skill is searched: its name, read as words as well, and what its author says of it."""
    metadata = skill.metadata or {}
    told = (metadata[key] for key in ("keywords", "tags", "category") if key in metadata)
    return "\n".join([skill.name, skill.name.replace("-", " "), skill.description, *told])
