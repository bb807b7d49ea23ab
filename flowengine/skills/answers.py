"""What the tools answer: texts of skills between tags, with what a model has to know round them. Pure.

A text of up to `outline.LONG` tokens is given whole. Of a longer one its beginning and its sections by number are
given, to be read one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flowengine.catalogue import Catalogue
from flowengine.skills.level_one import line
from flowengine.skills.outline import LONG, Outline, Section
from flowengine.skills.script import Limits, Outcome
from flowengine.skills.skill import Skill
from flowengine.skills.texts import fenced

__all__ = ["Answers"]

_MAX_NAMED: Final = 40
"""Files that are named with a skill's body."""


class Answers:
    """Of one locale."""

    def __init__(self, words: Catalogue) -> None:
        self._words = words

    def body(self, text: str, outline: Outline | None, files: Sequence[str]) -> str:
        """Level 2. `outline`: of a text that is too long to be given whole."""
        return "\n\n".join([*self._text("skill", "results.beginning", text, outline), *self._files(files)])

    def file(self, text: str, outline: Outline | None) -> str:
        return "\n\n".join(self._text("file", "results.file", text, outline))

    def section(self, outline: Outline, section: Section) -> str:
        """The section with all below it, or its own text and what is below it by number."""
        if section.tokens <= LONG:
            return fenced("section", section.whole)
        below = self._lines(outline.lines(section.sections))
        part = self._words("results.part", number=section.number, lines=below)
        return f"{fenced('section', section.text)}\n\n{part}"

    def sections(self, outline: Outline) -> str:
        return self._lines(outline.lines())

    def found(self, skills: Iterable[Skill]) -> str:
        lines = "\n".join(map(line, skills))
        return self._words("results.found", lines=lines) if lines else self._words("results.none")

    def output(self, outcome: Outcome, limits: Limits) -> str:
        """What a script said, and how it ended."""
        told = [(self._words("results.stdout"), "output", outcome.stdout)]
        told.append((self._words("results.stderr"), "messages", outcome.stderr))
        said = [f"{title}\n{fenced(tag, text)}" for title, tag, text in told if text.strip()]
        return "\n\n".join([self._ending(outcome, limits), *(said or [self._words("results.silent")])])

    def _ending(self, outcome: Outcome, limits: Limits) -> str:
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
            return [fenced(tag, text)]
        return [self._words(introduction), fenced(tag, outline.beginning), self._lines(outline.lines())]

    def _lines(self, lines: Sequence[str]) -> str:
        return "\n".join(lines)

    def _files(self, files: Sequence[str]) -> list[str]:
        if not files:
            return []
        names = [*files[:_MAX_NAMED]]
        if len(files) > _MAX_NAMED:
            names.append(self._words("results.lines_more", count=len(files) - _MAX_NAMED))
        return [self._words("results.files", names=", ".join(names))]
