"""What a name stands for that is not there.

It knows where it was looked for and why it may be absent, nothing else. It is false, it may be asked for
more names, `or` and `| default(…)` replace it, and every use that needs a value is an error that says
what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NoReturn, final

from flowengine.errors import TemplateError, did_you_mean

__all__ = ["Missing"]

_LONGEST_PATH: Final = 200
_LONGEST_NAME: Final = 60
_NAMES_COMPARED: Final = 200


@final
class Missing:
    """A value that is not there: `path` as the author wrote it, and the reason where one is known.

    `excused`: the run has not made it (a node was skipped), so a condition takes it as false. Otherwise what
    should hold it exists and does not (a key of an output): in a condition that is an error.

    >>> bool(Missing("nodes.widen.output"))
    False
    >>> print(Missing("nodes.widen.output", "node 'widen' was skipped").error())
    nodes.widen.output is not there (node 'widen' was skipped); give it a default: | default(...)
    """

    __slots__ = ("_known", "_name", "excused", "path", "reason")

    def __init__(self, path: str, reason: str = "", known: Iterable[object] = (), *, excused: bool = False) -> None:
        self.path = path
        self.reason = reason
        self.excused = excused
        self._known = known
        self._name = path.rpartition(".")[2]

    def step(self, key: str | int) -> Missing:
        """The same absence, one step further: reading a field of what is not there."""
        tail = f".{key}" if isinstance(key, str) else f"[{key}]"
        further = Missing((self.path + tail)[:_LONGEST_PATH], self.reason, self._known, excused=self.excused)
        further._name = self._name
        return further

    def error(self) -> TemplateError:
        """The error of using it where a value is needed."""
        why = f" ({self.reason})" if self.reason else ""
        advice = self._nearest() or "; give it a default: | default(...)"
        return TemplateError(f"{self.path} is not there{why}{advice}")

    def _nearest(self) -> str:
        """The nearest name beside the one that is not there; long names would take long to compare."""
        known = [name for name in islice(self._known, _NAMES_COMPARED) if type(name) is str]
        return did_you_mean(self._name[:_LONGEST_NAME], [name for name in known if len(name) <= _LONGEST_NAME])

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> NoReturn:
        """Printed from Python it is the same error: a prompt must never say "Missing"."""
        raise self.error()

    def __iter__(self) -> NoReturn:
        raise self.error()

    def __len__(self) -> NoReturn:
        raise self.error()

    def __repr__(self) -> str:
        return f"Missing({self.path!r})"
