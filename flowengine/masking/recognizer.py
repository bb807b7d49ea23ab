"""What finds values in a text: the seam that built-in patterns, users' own and Presidio share.

It knows regular expressions with a check behind them. It knows no kind of data and masks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

__all__ = ["Pattern", "Recognizer", "Span"]


class Span(NamedTuple):
    """One value's place in a text."""

    start: int
    end: int
    kind: str
    """What it is: upper-case ASCII letters, digits and `_`; it stands in the token."""


class Recognizer(Protocol):
    """Something that finds values. It is given a text of bounded length and may be slow."""

    def find(self, text: str) -> Iterator[Span]:
        """The values of a text, in any order; they may overlap."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    r"""Values that a regular expression finds, and that stand up to a check.

    Where the expression has a group called `value`, that is the value; the rest is context. Do not use `\b` and `\w`:
    Japanese and Chinese letters count as letters to them, so a value that touches one would be missed.

    >>> employee = Pattern("EMPLOYEE", re.compile("E-[0-9]{5}"))
    >>> list(employee.find("社員E-00123です"))
    [Span(start=2, end=9, kind='EMPLOYEE')]
    """

    kind: str
    regex: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] | None = None
    """Whether what was found is one: a checksum, a range, what stands before it."""

    def find(self, text: str) -> Iterator[Span]:
        group: int | str = "value" if "value" in self.regex.groupindex else 0
        start = 0
        while found := self.regex.search(text, start):
            if found.end() > found.start() and (self.check is None or self.check(found)):
                yield Span(*found.span(group), self.kind)
                start = found.end()
            else:  # One that stands up may begin inside what did not.
                start = found.start() + 1
