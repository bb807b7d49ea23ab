"""What a test claims about a run; a claim that does not hold says what happened instead, and why."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine.context import SkipCause
from flowengine.runners.run import Run
from flowengine.testing.path import Step, fate, path_difference

__all__ = ["assert_path", "assert_skipped"]


def assert_path(run: Run, expected: Sequence[Step]) -> None:
    """These nodes finished, in this order, and no others. A set stands for nodes that finish in any order.

    >>> from flowengine import Flow, FunctionNode, NodeResult
    >>> async def work(context):
    ...     return NodeResult(output=1)
    >>> run = Flow("both", {"a": FunctionNode(work), "b": FunctionNode(work, needs=["a"])}).run_sync()
    >>> assert_path(run, ["a", "b"])
    """
    __tracebackhide__ = True
    difference = path_difference(run, expected)
    if difference:
        raise AssertionError(f"the run took another path\n{difference}")


def assert_skipped(run: Run, node: str, cause: SkipCause | None = None) -> None:
    """The node was skipped; with `cause`, for that reason."""
    __tracebackhide__ = True
    part = run.nodes.get(node)
    if part is None or part.status != "skipped" or cause not in (None, part.cause):
        wanted = "" if cause is None else f" ({cause})"
        raise AssertionError(f"'{node}' was to be skipped{wanted}; it {fate(run, node)}")
