"""Level 1: the list of skills that stands in every prompt, within a number of tokens. Pure.

Where all names with their descriptions fit, all are given. Else the names of all are, as far as they fit, and
descriptions of those that suit the task best; a tool finds the others, and the count says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
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
    tokens = count_tokens(_some(skills, lines, names, words))
    for skill in best:
        tokens += count_tokens(f"{line(skill)}\n")
        if tokens > budget:
            break
        lines.append(line(skill))
    return _within(skills, lines, names, words, budget)


def _within(skills: Sequence[Skill], lines: list[str], names: str, words: Catalogue, budget: int) -> Listing:
    """The parts as one text. Counted as a whole they may be a few tokens more than the sum, so the last may go."""
    while True:
        text = _some(skills, lines, names, words)
        tokens = count_tokens(text)
        if tokens <= budget or not lines:
            return Listing(text, tokens, False)
        lines.pop()


def _whole(skills: Sequence[Skill], words: Catalogue, budget: int) -> Listing | None:
    text = words("catalogue.all", lines="\n".join(map(line, skills)))
    tokens = _counted(text, 4 * budget)
    return Listing(text, tokens, True) if tokens <= budget else None


@lru_cache(maxsize=32)
def _counted(text: str, most: int) -> int:
    """Tokens; an estimate where that is above a number. The same list is asked for at each turn of a run."""
    estimated = estimate_tokens(text)
    return estimated if estimated > most else count_tokens(text)


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
