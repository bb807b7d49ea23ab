"""Level 1: the list of skills that stands in every prompt, within a number of tokens. Pure.

Where all names with their descriptions fit, all are given. Else the names of all are, as far as they fit, and
descriptions of those that suit the task best; a tool finds the others, and the count says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from flowengine.catalogue import Catalogue
from flowengine.llm.tokens import count_tokens, estimate_tokens
from flowengine.skills.skill import Skill

__all__ = ["BUDGET", "Listing", "line", "listing_of"]

BUDGET: Final = 2_000
"""Tokens of the list where nothing else is said."""
_FOR_NAMES: Final = 0.6
"""Share of the budget that bare names may take."""


class Listing(NamedTuple):
    """The list, and whether anything had to be left out of it."""

    text: str
    tokens: int
    is_whole: bool


def line(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}" if skill.description else f"- {skill.name}"


def fits(skills: Sequence[Skill], words: Catalogue, budget: int) -> bool:
    """Whether the whole list does."""
    return _whole(skills, words, budget) is not None


def listing_of(skills: Sequence[Skill], best: Iterable[Skill], words: Catalogue, budget: int = BUDGET) -> Listing:
    """The list. `best`: the skills that suit the task, best first, for the case that not all can be described."""
    whole = _whole(skills, words, budget)
    if whole is not None:
        return whole
    names = _names(skills, words, int(budget * _FOR_NAMES))
    lines: list[str] = []
    text = ""
    for skill in best:
        tried = _some(skills, [*lines, line(skill)], names, words)
        if count_tokens(tried) > budget:
            break
        lines.append(line(skill))
        text = tried
    text = text or _some(skills, lines, names, words)
    return Listing(text, count_tokens(text), False)


def _whole(skills: Sequence[Skill], words: Catalogue, budget: int) -> Listing | None:
    text = words("catalogue.all", lines="\n".join(map(line, skills)))
    if estimate_tokens(text) > 4 * budget:  # Not worth counting.
        return None
    tokens = count_tokens(text)
    return Listing(text, tokens, True) if tokens <= budget else None


def _some(skills: Sequence[Skill], lines: Sequence[str], names: str, words: Catalogue) -> str:
    return words("catalogue.some", lines="\n".join([*lines, names]), count=len(skills)).strip()


def _names(skills: Sequence[Skill], words: Catalogue, budget: int) -> str:
    """The names as one line, as many as fit; how many are left out is said."""
    sizes = [count_tokens(f", {each.name}") for each in skills]
    held, used = 0, 20
    while held < len(skills) and used + sizes[held] <= budget:
        used += sizes[held]
        held += 1
    names = [each.name for each in skills[:held]]
    if held < len(skills):
        names.append(words("catalogue.more", count=len(skills) - held))
    return words("catalogue.names", names=", ".join(names))
