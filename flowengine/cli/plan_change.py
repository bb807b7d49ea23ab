"""Shows what a change of a flow does to its worst case: as lines, as Markdown for a pull request, and as data.

What a flow file says is text of somebody else's: in Markdown its values stand in code spans, which render nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flowengine.cli.terminal import format_count, format_dollars, format_table
from flowengine.flowfile.estimate import BoundChange, Most, NodeChange, difference

_NO_BOUND: Final = "?"
_ELSEWHERE: Final = "its models' prices or bounds, or what it reads"


def list_change(flow: str, against: str, change: BoundChange) -> Iterator[str]:
    """Yields the change as lines for people."""
    yield f"{flow}, at most: {_describe_whole(against, change)}"
    if change.nodes:
        yield ""
        rows = [["NODE", "BEFORE", "AFTER", "CHANGE", "WHY"]]
        rows += [[each.path, *_amounts(each), "; ".join(_causes(each))] for each in change.nodes]
        yield from format_table(rows, right=range(1, 4))


def change_as_markdown(flow: str, against: str, change: BoundChange) -> Iterator[str]:
    """Yields lines for a pull request: a heading, the cost of the flow at most, and a table of the nodes behind it."""
    yield f"### {_code(flow)}"
    yield ""
    yield f"At most: **{_format_dollars(_describe_whole(_code(against), change))}**"
    if change.nodes:
        yield ""
        yield "| node | before | after | change | why |"
        yield "|---|--:|--:|--:|---|"
        for each in change.nodes:
            causes = each.causes and tuple(map(_code, each.causes))
            why = "<br>".join(causes or _causes(each))
            yield f"| {_code(each.path)} | {_format_dollars(' | '.join(_amounts(each)))} | {why} |"


def change_as_data(flow: str, against: str, commit: str, change: BoundChange) -> dict[str, Any]:
    """Returns the change as data for scripts; null where no bound is known, or there was nothing to compare with."""
    return {
        "flow": flow,
        "against": against,
        "commit": commit,
        "before": change.before and change.before.to_data(),
        "after": change.after.to_data(),
        "more_usd": change.more_usd,
        "nodes": [
            {
                "node": each.path,
                "kind": each.kind,
                "before": each.before and each.before.to_data(),
                "after": each.after and each.after.to_data(),
                "causes": list(each.causes),
            }
            for each in change.nodes
        ],
    }


def _describe_whole(against: str, change: BoundChange) -> str:
    before, after = change.before, change.after
    calls = f"{format_count(after.calls)} model call{'s' * (after.calls != 1)}, {format_count(after.tokens)} tokens"
    if before is None:
        return f"{_dollars(after)}, {calls}; {against} has no such flow"
    if before[:3] == after[:3]:
        return f"{_dollars(after)}, {calls}, as at {against}"
    more = _format_signed(change.more_usd)
    more = f" ({more})" if more else ""
    return (
        f"{_dollars(before)} → {_dollars(after)}{more}, {format_count(before.calls)} → {format_count(after.calls)} "
        f"model calls, {format_count(before.tokens)} → {format_count(after.tokens)} tokens, since {against}"
    )


def _amounts(node: NodeChange) -> tuple[str, str, str]:
    before, after = node.before or Most(), node.after or Most()
    change = _format_signed(difference(before.cost_usd, after.cost_usd))
    if not change and None not in (before.tokens, after.tokens) and before.tokens != after.tokens:
        change = f"{(after.tokens or 0) - (before.tokens or 0):+,} tokens"
    return ("–" if node.before is None else _dollars(before), "–" if node.after is None else _dollars(after), change)


def _causes(node: NodeChange) -> tuple[str, ...]:
    if node.before is None:
        return ("the node is new",)
    if node.after is None:
        return ("the node is gone",)
    return node.causes or (_ELSEWHERE,)


def _dollars(most: Most) -> str:
    return format_dollars(most.cost_usd) or _NO_BOUND


def _format_signed(amount: float | None) -> str:
    if not amount:
        return ""
    return f"{'+' if amount > 0 else '−'}{format_dollars(abs(amount))}"


def _format_dollars(text: str) -> str:
    """Dollars that begin no formula."""
    return text.replace("$", "\\$")


def _code(text: str) -> str:
    """A code span of one line, also in a table.

    >>> _code("a|b`c")
    "`a\\\\|b'c`"
    """
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
