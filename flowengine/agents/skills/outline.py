"""Splits a long text by its headings into numbered sections of bounded size, to be read one at a time. Pure.

It knows Markdown's `#` headings and fences and nothing else of it. A text without headings, or a section that is too
long for one reading, is parted between paragraphs; so whatever the text is, all of it can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from flowengine.models import count_tokens

LONG_TEXT: Final = 5_000
"""Tokens from which a text is given section by section."""
_PART_TOKENS: Final = 2_500
"""Tokens of a section's part, about."""
_MAX_LINES: Final = 60
"""Lines of an outline, above which it leaves the deeper levels out."""
_MAX_TITLE: Final = 120
"""Characters of a title in an outline."""

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(slots=True)
class Section:
    """A heading, the text up to the next one, and the sections below it."""

    title: str
    level: int
    text: str
    """The text with its heading, without what is below."""
    number: str = ""
    tokens: int = 0
    """Tokens of the text with all that is below."""
    sections: list[Section] = field(default_factory=list["Section"])

    @property
    def whole(self) -> str:
        return "".join([self.text, *(each.whole for each in self.sections)])


class Outline:
    """The sections of a text.

    >>> outline = make_outline("# Guide\\nHello.\\n## First\\nOne.\\n## Second\\nTwo.\\n")
    >>> [(each.number, each.title) for each in outline.sections]
    [('1', 'First'), ('2', 'Second')]
    >>> outline.find("second").text
    '## Second\\nTwo.\\n'
    """

    def __init__(self, beginning: str, sections: Sequence[Section]) -> None:
        self.beginning = beginning
        """The text before the first section."""
        self.sections = tuple(sections)

    def find(self, reference: str) -> Section | None:
        """Finds a section by number (`2`, `2.1`), or by title, whatever its case and marks."""
        sections = list(_walk_sections(self.sections))
        number = reference.strip().strip(".#§ ")
        by_number = next((each for each in sections if each.number == number), None)
        if by_number is not None:
            return by_number
        title = _normalize_title(re.sub(r"^[0-9.]+\s+", "", reference.strip()))
        return next((each for each in sections if title and _normalize_title(each.title) == title), None)

    def lines(self, below: Sequence[Section] | None = None) -> list[str]:
        """One line a section: number, title, tokens. The deepest levels are left out where there are too many."""
        everything = list(_walk_sections(self.sections if below is None else below))
        deepest = max((each.number.count(".") for each in everything), default=0)
        while deepest and sum(each.number.count(".") <= deepest for each in everything) > _MAX_LINES:
            deepest -= 1
        sections = [each for each in everything if each.number.count(".") <= deepest]
        lines = [f"{each.number} {each.title:.{_MAX_TITLE}} ({each.tokens})" for each in sections[: 2 * _MAX_LINES]]
        return [*lines, f"… {len(sections) - len(lines)}"] if len(sections) > len(lines) else lines


def make_outline(text: str) -> Outline:
    """The outline. A single heading above all others is the text's title, and what follows it its beginning."""
    beginning, sections = _build_tree(text)
    if len(sections) == 1 and sections[0].sections:
        beginning, sections = beginning + sections[0].text, sections[0].sections
    beginning, parts = _split_beginning(beginning)
    sections = [*parts, *sections]
    for section in _walk_sections(sections):
        # A section whose own text is too long keeps its beginning; the rest becomes sections below it.
        section.text, section.sections[:0] = _split_beginning(section.text)
    _number_sections(sections, "")
    return Outline(beginning, sections)


def _build_tree(text: str) -> tuple[str, list[Section]]:
    """Returns the text before the first heading, and the tree of headings."""
    lines: list[str] = []
    branches: list[tuple[Section | None, list[str]]] = [(None, lines)]
    top: list[Section] = []
    path: list[Section] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        fence = _fence_after(line, fence)
        heading = None if fence else _HEADING.match(line.rstrip("\n"))
        if heading is None:
            lines.append(line)
            continue
        title = heading[2].rstrip(" \t").rstrip("#").strip()
        section, lines = Section(title or "…", len(heading[1]), ""), [line]
        branches.append((section, lines))
        while path and path[-1].level >= section.level:
            path.pop()
        (path[-1].sections if path else top).append(section)
        path.append(section)
    for section, own in branches:
        if section is not None:
            section.text = "".join(own)
    return "".join(branches[0][1]), top


def _fence_after(line: str, fence: str) -> str:
    """The fence that is open after this line."""
    match = _FENCE.match(line)
    if match is None:
        return fence
    if not fence:
        return match[1]
    closes = match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line.strip().strip(fence[0])
    return "" if closes else fence


def _split_beginning(text: str) -> tuple[str, list[Section]]:
    """The text, or the first part of one that is too long, and the others as sections."""
    if count_tokens(text) <= LONG_TEXT:
        return text, []
    first, *others = _split_text(text)
    return first, [Section(f"[{number}/{len(others) + 1}]", 7, part) for number, part in enumerate(others, 2)]


def _split_text(text: str) -> Iterator[str]:
    """Pieces of at most some size, cut between paragraphs, else between lines, else anywhere."""
    part, size = "", 0
    for piece in _split_pieces(text):
        tokens = count_tokens(piece)
        if part and size + tokens > _PART_TOKENS:
            yield part
            part, size = "", 0
        part, size = part + piece, size + tokens
    yield part


def _split_pieces(text: str) -> Iterator[str]:
    for paragraph in re.split(r"(?<=\n\n)", text):
        if count_tokens(paragraph) <= _PART_TOKENS:
            yield paragraph
            continue
        for line in paragraph.splitlines(keepends=True):
            yield from (line[start : start + _PART_TOKENS] for start in range(0, len(line), _PART_TOKENS))


def _number_sections(sections: Sequence[Section], above: str) -> int:
    total = 0
    for count, section in enumerate(sections, 1):
        section.number = f"{above}{count}"
        section.tokens = count_tokens(section.text) + _number_sections(section.sections, f"{section.number}.")
        total += section.tokens
    return total


def _walk_sections(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _walk_sections(section.sections)


def _normalize_title(title: str) -> str:
    return " ".join(re.sub(r"[`*_#]", "", title).casefold().split())
