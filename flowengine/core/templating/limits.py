"""Limits what one template may cost, and counts it with a meter.

It knows numbers and the deadline of the task that evaluates: what is counted, and by whom, is decided where
the work is done. Every operation whose cost depends on its data asks the meter first, so nothing large is
built before it is refused.

Steps are the one currency: an element touched is one step, 32 characters produced or compared are one
step, and a loop's iteration costs as many steps as its body has parts. A step takes well under a
microsecond, so the fuel of an evaluation lasts for about a tenth of a second: so long it may keep an event loop.

An evaluation never suspends, so no timeout can interrupt it. Therefore the meter reads the clock now and then,
and ends an evaluation whose task is past its deadline, whatever the count of steps says.
"""

from __future__ import annotations

from typing import Final

import anyio

from flowengine.errors import OverdueError, TemplateError

MAX_SOURCE: Final = 1_000_000
"""Characters of a template's source."""
MAX_TOKENS: Final = 20_000
"""Tokens of a template's source; text between tags is one token."""
MAX_BRACKETS: Final = 30
"""Brackets inside each other."""
MAX_DEPTH: Final = 100
"""Expressions and blocks inside each other; `a + b + c` counts as two."""

FUEL: Final = 120_000
"""Steps of one evaluation."""
UNSEEN: Final = 500
"""Steps between two readings of the clock."""
MAX_TEXT: Final = 1_000_000
"""Characters of any string that is produced."""
MAX_ITEMS: Final = 100_000
"""Items of any list that is produced."""
MAX_INT_BITS: Final = 4_000
"""Size of any integer that is produced or printed; about 1,200 digits."""
MAX_VALUE_DEPTH: Final = 60
"""Lists and mappings inside each other, where a value is printed or compared."""


class Meter:
    """The fuel of one evaluation.

    >>> meter = Meter()
    >>> meter.spend(10)
    >>> meter.left == FUEL - 10
    True
    """

    __slots__ = ("left", "pause")

    def __init__(self) -> None:
        self.left = FUEL
        self.pause = FUEL - UNSEEN
        """The fuel below which the clock is read."""

    def spend(self, steps: int) -> None:
        """Pay for work that is about to be done."""
        self.left -= steps
        if self.left < self.pause:
            self._pause()

    def _pause(self) -> None:
        if self.left < 0:
            raise TemplateError(f"the template needs more than {FUEL:,} steps")
        self.pause = max(0, self.left - UNSEEN)
        self.look()

    def look(self) -> None:
        """End the evaluation where its task is past its deadline, or is being cancelled."""
        if _is_overdue():
            raise OverdueError("the template was still at work when its time was up")

    def text(self, size: int) -> None:
        """Pay for a string of `size` characters that is about to be built."""
        if size > MAX_TEXT:
            raise TemplateError(f"the template makes a text of more than {MAX_TEXT:,} characters")
        if size > 31:
            self.spend(size >> 5)

    def items(self, count: int) -> None:
        """Pay for a list of `count` items that is about to be built or walked through."""
        if count > MAX_ITEMS:
            raise TemplateError(f"the template makes or reads a list of more than {MAX_ITEMS:,} items")
        self.spend(count)


def _is_overdue() -> bool:
    try:
        return anyio.current_time() >= anyio.current_effective_deadline()
    except RuntimeError:  # Outside of an event loop there is no deadline.
        return False
