"""What unfinished nodes recorded, and what of it counts when they are entered again.

Pure bookkeeping over records; what a record is good for is the node's matter. The rules:

1. What an attempt recorded before it was interrupted is the next one's: it goes on from there.
2. A `Retry` ends an attempt that failed; the next one starts from nothing but the count of failures.
3. A node that failed for good starts from nothing, and with all its attempts.
4. Deeds outlive both: what became of a call to an `external` tool is never forgotten before its node
   has finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowengine.records import EffectDecided, Retry, RoundEnded, ToolCall

__all__ = ["Attempts"]


class Attempts:
    """Node path → records, oldest first.

    >>> from flowengine.records import Notice
    >>> attempts = Attempts()
    >>> attempts.add("draft", Notice("first try"))
    >>> attempts.add("draft", Retry(1, "no JSON", 1.0))
    >>> attempts.of("draft")
    [Retry(attempt=1, error='no JSON', delay=1.0)]
    """

    def __init__(self) -> None:
        self._records: dict[str, list[Any]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def of(self, node: str) -> Sequence[Any]:
        return self._records.get(node, ())

    def add(self, node: str, record: Any) -> None:
        records = self._records.setdefault(node, [])
        if type(record) is Retry:
            records[:] = [each for each in records if type(each) is Retry or _is_deed(each)]
        records.append(record)

    def replace(self, node: str, records: Sequence[Any]) -> None:
        """These are all that counts of a node that is entered again."""
        self._records[node] = list(records)

    def fail(self, node: str) -> None:
        """The node failed for good."""
        deeds = [each for each in self._records.pop(node, ()) if _is_deed(each)]
        if deeds:
            self._records[node] = deeds

    def forget_rounds(self, loop: str, first: int) -> None:
        """What a loop recorded of a round, and of those after it, counts no more."""
        if loop in self._records:
            kept = [each for each in self._records[loop] if type(each) is not RoundEnded or each.number < first]
            self._records[loop] = kept

    def finish(self, node: str) -> None:
        self._records.pop(node, None)


def _is_deed(record: Any) -> bool:
    return type(record) is EffectDecided or (type(record) is ToolCall and record.effect == "external")
