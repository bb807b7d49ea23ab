"""Holds what a project allows of files: where they may come from, their sizes and media types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileRules", "RefusedFileError"]


class RefusedFileError(ValueError):
    """A file that is not taken; the message says why. Whoever asked for it says where."""


@dataclass(frozen=True)
class FileRules:
    """The table `[files]` of a project file."""

    root: Path | None = None
    """The folder below which the paths lie that texts name; None: the working folder."""
    max_file: int = 20 * 2**20
    """Bytes of one file."""
    max_run: int = 200 * 2**20
    """Bytes of all files of a run, equal ones counted once."""
    media_types: tuple[str, ...] = ("*/*",)
    """What files may be, by their contents."""
    allow_urls: tuple[str, ...] = ()
    """Beginnings of the addresses that files may be fetched from (`address_rules`)."""
