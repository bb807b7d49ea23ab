"""Writes what the skills' tools answer: texts of skills between tags, with the notes that a model needs. Pure.

A text of up to `outline.LONG` tokens is given whole. Of a longer one its beginning and its sections by number are
given, to be read one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from flowengine.agents.skills.outline import LONG_TEXT, Outline, Section
from flowengine.agents.skills.sandbox import Outcome, ScriptLimits
from flowengine.agents.skills.skill import Skill
from flowengine.core import Messages, load_messages
from flowengine.models import count_tokens, estimate_tokens, fence


def skill_messages(locale: str) -> Messages:
    """The texts of a locale for the tools of skills; an unknown one is a `DefinitionError`."""
    return load_messages(locale, "flowengine.agents.skills")


# --- The list of skills

BUDGET: Final = 2_000
"""Tokens of the list where nothing else is said."""
_NAMES_SHARE: Final = 0.6
"""Share of the budget that bare names may take."""


class SkillListing(NamedTuple):
    """The list, and whether anything had to be left out of it."""

    text: str
    tokens: int
    is_whole: bool


def format_line(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}" if skill.description else f"- {skill.name}"


def does_fit(skills: Sequence[Skill], words: Messages, budget: int) -> bool:
    """Tells whether the whole list does."""
    return _list_all(skills, words, budget) is not None


def make_listing(skills: Sequence[Skill], best: Iterable[Skill], words: Messages, budget: int = BUDGET) -> SkillListing:
    """The list. `best`: the skills that suit the task, best first, for the case that not all can be described."""
    whole = _list_all(skills, words, budget)
    if whole is not None:
        return whole
    names = _list_names(skills, words, int(budget * _NAMES_SHARE))
    lines: list[str] = []
    tokens = count_tokens(_list_some(skills, lines, names, words))
    for skill in best:
        tokens += count_tokens(f"{format_line(skill)}\n")
        if tokens > budget:
            break
        lines.append(format_line(skill))
    while True:
        text = _list_some(skills, lines, names, words)
        tokens = count_tokens(text)
        # Counted as a whole they may be a few tokens more than the sum, so the last may go.
        if tokens <= budget or not lines:
            return SkillListing(text, tokens, False)
        lines.pop()


def _list_all(skills: Sequence[Skill], words: Messages, budget: int) -> SkillListing | None:
    text = words("catalogue.all", lines="\n".join(map(format_line, skills)))
    tokens = _count_tokens(text, 4 * budget)
    return SkillListing(text, tokens, True) if tokens <= budget else None


@lru_cache(maxsize=32)
def _count_tokens(text: str, most: int) -> int:
    """Tokens; an estimate where that is above a number. The same list is asked for at each turn of a run."""
    estimated = estimate_tokens(text)
    return estimated if estimated > most else count_tokens(text)


def _list_some(skills: Sequence[Skill], lines: Sequence[str], names: str, words: Messages) -> str:
    return words("catalogue.some", lines="\n".join([*lines, names]), count=len(skills)).strip()


def _list_names(skills: Sequence[Skill], words: Messages, budget: int) -> str:
    """The names as one line, as many as fit; how many are left out is said."""
    sizes = [count_tokens(f", {each.name}") for each in skills]
    count, used = 0, 20
    while count < len(skills) and used + sizes[count] <= budget:
        used += sizes[count]
        count += 1
    names = [each.name for each in skills[:count]]
    if count < len(skills):
        names.append(words("catalogue.more", count=len(skills) - count))
    return words("catalogue.names", names=", ".join(names))


_MAX_NAMED: Final = 40
"""Files that are named with a skill's body."""


class Answers:
    """The answers of the skill tools in one locale."""

    def __init__(self, words: Messages) -> None:
        self._words = words

    def body(self, text: str, outline: Outline | None, files: Sequence[str]) -> str:
        """Level 2. `outline`: of a text that is too long to be given whole."""
        return "\n\n".join([*self._text("skill", "results.beginning", text, outline), *self._files(files)])

    def file(self, text: str, outline: Outline | None) -> str:
        return "\n\n".join(self._text("file", "results.file", text, outline))

    def section(self, outline: Outline, section: Section) -> str:
        """The section with all below it, or its own text and what is below it by number."""
        if section.tokens <= LONG_TEXT:
            return fence("section", section.whole.strip())
        below = "\n".join(outline.lines(section.sections))
        part = self._words("results.part", number=section.number, lines=below)
        return f"{fence('section', section.text.strip())}\n\n{part}"

    def sections(self, outline: Outline) -> str:
        return "\n".join(outline.lines())

    def describe_found(self, skills: Iterable[Skill]) -> str:
        lines = "\n".join(map(format_line, skills))
        return self._words("results.found", lines=lines) if lines else self._words("results.none")

    def output(self, outcome: Outcome, limits: ScriptLimits) -> str:
        """Formats a script's output, and how it ended."""
        streams = [(self._words("results.stdout"), "output", outcome.stdout)]
        streams.append((self._words("results.stderr"), "messages", outcome.stderr))
        sections = [f"{title}\n{fence(tag, text.strip())}" for title, tag, text in streams if text.strip()]
        return "\n\n".join([self._ending(outcome, limits), *(sections or [self._words("results.silent")])])

    def _ending(self, outcome: Outcome, limits: ScriptLimits) -> str:
        if outcome.ending == "time":
            return self._words("errors.time", seconds=f"{limits.seconds:g}")
        if outcome.ending == "output":
            return self._words("results.cut_output", limit=f"{limits.output:,}")
        if outcome.ending == "memory":
            return self._words("errors.memory", limit=f"{limits.memory // 1_000_000:,}")
        if outcome.ending == "files":
            return self._words("errors.space", limit=f"{limits.files:,}")
        return self._words("results.output", code=outcome.code, seconds=f"{outcome.seconds:.1f}")

    def _text(self, tag: str, introduction: str, text: str, outline: Outline | None) -> list[str]:
        if outline is None:
            return [fence(tag, text.strip())]
        return [self._words(introduction), fence(tag, outline.beginning.strip()), self.sections(outline)]

    def _files(self, files: Sequence[str]) -> list[str]:
        if not files:
            return []
        names = [*files[:_MAX_NAMED]]
        if len(files) > _MAX_NAMED:
            names.append(self._words("results.lines_more", count=len(files) - _MAX_NAMED))
        return [self._words("results.files", names=", ".join(names))]
