"""Adds up what a flow can take at most over all rows of a file of data, for `flowengine plan --data`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

from flowengine.cli.terminal import format_dollars
from flowengine.core import dumps
from flowengine.evals import DataFile
from flowengine.flowfile.estimate import FlowBound, Most, Waves, batch_data
from flowengine.models import KnownModel

_MEASURED: Final = 400
"""Rows that are measured one by one; of more, those of about the same length are taken for the longest of them."""


class RowsBound(NamedTuple):
    """The maximum cost of all rows."""

    rows: int
    refused: int
    """Rows that do not fit the flow's inputs, and take nothing."""
    measured: int
    bound: FlowBound
    """The bound of all rows together: their calls, tokens and cost add up, and their waves go on at the same time."""

    def to_data(self, vendors: Mapping[str, KnownModel], *, batch: bool) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "refused": self.refused,
            "measured": self.measured,
            "at_most": self.bound.most.to_data(),
            "at_most_if_unanswered": self.bound.billed.to_data(),
            **({"batch": batch_data(self.bound, vendors)} if batch else {}),
        }

    def lines(self, format_bound: Callable[[Most], str]) -> Iterator[str]:
        """Yields lines for people: what all rows cost together, at most."""
        yield f"all {self.rows:,} row{'s' * (self.rows != 1)}, at most: {format_bound(self.bound.most)}"
        if self.rows > self.refused:
            cost = self.bound.most.cost_usd
            each = None if cost is None else cost / (self.rows - self.refused)
            yield f"a row, at most: {format_dollars(each) or 'a cost without a known bound'} on average"
        if self.refused:
            yield f"note: {self.refused:,} of them do not fit the flow's inputs, and take nothing"
        if self.measured < self.rows - self.refused:
            yield f"note: {self.measured:,} rows were measured; others of about their length are taken for as long"


def bound_rows(data: DataFile, bound_of_inputs: Callable[[Mapping[str, Any]], FlowBound]) -> RowsBound:
    """Bound every row, the longest of each group where there are many."""
    sizes = [(len(dumps(row.inputs)), row.number) for row in data.rows() if row.problem is None]
    counts = dict(_groups(sorted(sizes, reverse=True)))
    bounds = [
        (bound_of_inputs(row.inputs), counts[row.number])
        for row in data.rows()
        if row.problem is None and row.number in counts
    ]
    refused = data.total - len(sizes)
    if not bounds:
        whole = bound_of_inputs({})
        return RowsBound(data.total, refused, 0, whole._replace(most=Most(), billed=Most(), waves=Waves(0, 0)))
    most = reduce(Most.and_, [bound.most.times(count) for bound, count in bounds])
    billed = reduce(Most.and_, [bound.billed.times(count) for bound, count in bounds])
    usual = max(bound.waves.usual or 0 for bound, _ in bounds)
    at_most = [bound.waves.most for bound, _ in bounds]
    longest = None if None in at_most else max(each for each in at_most if each is not None)
    whole = bounds[0][0]._replace(most=most, billed=billed, waves=Waves(usual, longest))
    return RowsBound(data.total, refused, len(bounds), whole)


def _groups(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Row to measure → how many rows it stands for; the longest first, `sizes` being in that order.

    >>> list(_groups([(9, 1), (5, 2)]))
    [(1, 1), (2, 1)]
    """
    step = -(-len(sizes) // _MEASURED) or 1
    for begin in range(0, len(sizes), step):
        group = sizes[begin : begin + step]
        yield group[0][1], len(group)
