"""The nearest known name, for as long as that costs little.

A file with ten thousand misspelt names among ten thousand nodes gets ten thousand diagnostics, but not a
hundred million comparisons: once a file's allowance is spent, the hints stay away.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from flowengine.errors import did_you_mean

__all__ = ["Nearest"]

_COMPARISONS: Final = 50_000
_LONGEST: Final = 80


class Nearest:
    """The hints of one file.

    >>> Nearest()("publsh", ["publish", "improve"])
    "; did you mean 'publish'?"
    """

    def __init__(self) -> None:
        self._left = _COMPARISONS

    def __call__(self, name: str, known: Collection[str]) -> str:
        self._left -= len(known)
        return did_you_mean(name, known) if self._left >= 0 and len(name) <= _LONGEST else ""

    def of(self, name: str, known: Collection[str]) -> str | None:
        """The nearest name itself."""
        hint = self(name, known)
        return hint.split("'")[1] if hint else None
