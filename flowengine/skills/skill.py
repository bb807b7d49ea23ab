"""A skill as everything else knows it: level 1, and where the rest is. Frozen data; nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from flowengine.errors import Diagnostic

__all__ = ["MAX_DESCRIPTION", "MAX_NAME", "LoadedText", "Skill", "Stamp"]

MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_024


class Stamp(NamedTuple):
    """A file's version: what differs where it was changed."""

    changed: int
    """Nanoseconds."""
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class Skill:
    """What is known of a skill without loading it."""

    name: str
    """By which models ask for it; no two skills of a store have the same."""
    description: str
    """One line of at most 1,024 characters, whatever the file holds."""
    folder: Path
    file: Path
    """Its SKILL.md."""
    stamp: Stamp
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
