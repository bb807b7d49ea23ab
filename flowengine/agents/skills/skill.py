"""Describes a skill as all other modules know it: level 1, where the rest is, and what may be irregular about it.

Frozen data; nothing here reads a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from flowengine.errors import Diagnostic

# --- Irregularities of a skill


class Irregularity(NamedTuple):
    """One kind of it."""

    title: str
    is_violation: bool = False
    """The specification forbids it."""
    is_fatal: bool = False
    """There is nothing that could be read."""


IRREGULARITIES: Final[Mapping[str, Irregularity]] = {
    # --- SK1xx: the file
    "SK101": Irregularity("a byte order mark"),
    "SK102": Irregularity("lines that end in CR LF"),
    "SK103": Irregularity("not UTF-8", is_violation=True),
    "SK104": Irregularity("no final newline"),
    "SK105": Irregularity("not named SKILL.md"),
    "SK106": Irregularity("cannot be read", is_violation=True, is_fatal=True),
    "SK107": Irregularity("too large", is_violation=True, is_fatal=True),
    "SK108": Irregularity("an empty body"),
    "SK109": Irregularity("a long body"),
    # --- SK2xx: the frontmatter
    "SK201": Irregularity("no frontmatter", is_violation=True),
    "SK202": Irregularity("frontmatter without an end", is_violation=True),
    "SK203": Irregularity("frontmatter that is not YAML", is_violation=True),
    "SK204": Irregularity("a colon in a value that has no quotes", is_violation=True),
    "SK205": Irregularity("--- inside a value"),
    "SK206": Irregularity("tags, anchors or nesting in the frontmatter", is_violation=True),
    "SK207": Irregularity("a key that is given twice", is_violation=True),
    "SK208": Irregularity("an unknown key", is_violation=True),
    "SK209": Irregularity("a value of the wrong kind", is_violation=True),
    "SK210": Irregularity("a text that some readers take for something else"),
    "SK211": Irregularity("a value that is too long", is_violation=True),
    "SK212": Irregularity("metadata that is no text", is_violation=True),
    # --- SK3xx: name and description
    "SK301": Irregularity("no name", is_violation=True),
    "SK302": Irregularity("a name with capital letters", is_violation=True),
    "SK303": Irregularity("a name with other characters", is_violation=True),
    "SK304": Irregularity("hyphens at an end of the name, or in a row", is_violation=True),
    "SK305": Irregularity("a name that is too long", is_violation=True),
    "SK306": Irregularity("a name unlike its folder", is_violation=True),
    "SK307": Irregularity("a name that another skill has", is_violation=True),
    "SK308": Irregularity("a name beyond ASCII"),
    "SK309": Irregularity("no description", is_violation=True),
    "SK310": Irregularity("a description that is too long", is_violation=True),
    # --- SK4xx: folders and links
    "SK401": Irregularity("a folder without SKILL.md"),
    "SK402": Irregularity("a link out of the root", is_violation=True, is_fatal=True),
    "SK403": Irregularity("a link out of the skill's folder"),
    "SK404": Irregularity("more than is looked through", is_fatal=True),
    "SK405": Irregularity("a skill inside a skill"),
    "SK406": Irregularity("a reference to a file that is not there"),
    "SK407": Irregularity("a script that cannot be run"),
}


def make_irregularity(
    code: str, message: str, file: Path | None, line: int | None = None, *, strict: bool = False, hint: str = ""
) -> Diagnostic:
    """One irregularity of a skill. It is an error where it keeps the skill from being read, and a warning else.

    >>> print(make_irregularity("SK102", "the lines end in CR LF", Path("a/SKILL.md"), 1))
    a/SKILL.md:1: warning SK102 the lines end in CR LF
    """
    kind = IRREGULARITIES[code]
    severity = "error" if kind.is_fatal or (strict and kind.is_violation) else "warning"
    place = None if file is None else os.fsencode(file).decode(errors="backslashreplace")
    return Diagnostic(code, message, place, line, hint=hint, severity=severity)


MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_024


class SkillStamp(NamedTuple):
    """A file's version: what differs where it was changed."""

    changed: int
    """Nanoseconds."""
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class Skill:
    """The facts about a skill that are known before it is loaded."""

    name: str
    """The name by which models ask for it; no two skills of a store have the same."""
    description: str
    """One line of at most 1,024 characters, whatever the file holds."""
    folder: Path
    file: Path
    """Its SKILL.md."""
    stamp: SkillStamp
    body_tokens: int
    """Estimated; the real count comes with the body."""
    has_files: bool = False
    """There is more in the folder than SKILL.md."""
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] | None = None
    allowed_tools: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Nothing about it is an error; without `strict` few things are."""
        return all(each.severity != "error" for each in self.diagnostics)


class LoadedText(NamedTuple):
    """A text that was loaded, and what that took."""

    text: str
    tokens: int
    seconds: float
    memory: int
    """Bytes that it holds."""
