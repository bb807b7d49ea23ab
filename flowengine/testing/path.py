"""Compares the path of a run with the expected one, and explains why a node is not on it.

It reads the run's record and runs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from difflib import ndiff
from typing import Any, Final, TypeAlias, cast

from flowengine.core import SkipCause
from flowengine.engine import Event, NodeFinished, RunStarted
from flowengine.errors import did_you_mean
from flowengine.nodes import file_path
from flowengine.runtime import Run

__all__ = ["Step", "assert_path", "assert_skipped", "describe_fate", "describe_path_difference", "names_of"]

_MAX_PATHS: Final = 3
"""Paths of one node that are told."""

Step: TypeAlias = str | Collection[str]
"""A node, or nodes that finish in any order."""


def path_of(run: Run, *, inside: bool = False) -> list[str]:
    """The nodes that finished, in that order; `inside`: those in loops, maps and subflows too."""
    finished = [event.node for event in run.events if isinstance(event, NodeFinished)]
    return finished if inside else [node for node in finished if _is_outside(node)]


def _is_outside(node: str) -> bool:
    return "." not in node


def format_path(path: Sequence[Step]) -> str:
    """A path on one line.

    >>> format_path(["split", {"b", "a"}, "merge"])
    'split → {a, b} → merge'
    """
    steps = [step if isinstance(step, str) else f"{{{', '.join(sorted(step))}}}" for step in path]
    return " → ".join(steps) or "(nothing)"


def describe_path_difference(run: Run, expected: Sequence[Step]) -> str:
    """Describes how the run's path differs from the expected one, and why; empty if it does not.

    Nodes inside others count where one of them is expected.
    """
    names = [each for step in expected for each in names_of(step)]
    path = path_of(run, inside=not all(map(_is_outside, names)))
    arranged = _arrange(path, expected)
    if path == arranged:
        return ""
    lines = [f"expected: {format_path(expected)}", f"     ran: {format_path(path)}"]
    lines += [f"  {line}" for line in ndiff(arranged, path) if line[0] in "-+"]
    missing = dict.fromkeys(each for each in names if each not in path)
    lines += [f"'{each}' {describe_fate(run, each)}" for each in missing]
    return "\n".join([*lines, *_describe_failure(run, missing)])


def describe_fate(run: Run, node: str) -> str:
    """Describes a node's status and its reason, to follow the node's name."""
    if node not in run.nodes:
        paths = [each for event in run.events if file_path(each := getattr(event, "node", None) or "") == node]
        if paths:
            return f"is inside of another node, and came as {', '.join([*dict.fromkeys(paths)][:_MAX_PATHS])}: name one"
        return f"is no node of the flow{did_you_mean(node, run.nodes)}"
    part = run.nodes[node]
    if part.status == "failed":
        return f"failed: {part.error}"
    if part.status == "skipped":
        return f"was skipped ({part.cause}){_explain_skip(run.events, node, part.cause)}"
    return {"pending": "did not begin", "succeeded": "ran"}.get(part.status, f"is {part.status}")


def names_of(step: Step) -> list[str]:
    return [step] if isinstance(step, str) else list(step)


def _arrange(path: Sequence[str], expected: Sequence[Step]) -> list[str]:
    """The expected nodes, those in any order put in the order in which they ran."""
    order = {node: number for number, node in enumerate(path)}
    return [each for step in expected for each in sorted(names_of(step), key=lambda node: order.get(node, len(order)))]


def _explain_skip(events: Sequence[Event], node: str, cause: str | None) -> str:
    """Names the decision that skipped the node."""
    if cause != "not_selected":
        return ""
    routes = {event.node: event.result.route for event in events if isinstance(event, NodeFinished)}
    choices = [f"'{source}' chose '{routes[source]}'" for source in _find_choosers(events, node) if routes.get(source)]
    return f": {', '.join(choices)}" if choices else ""


def _find_choosers(events: Sequence[Event], node: str) -> Iterator[str]:
    """The nodes with a route to this one."""
    started = events[0] if events else None
    if not isinstance(started, RunStarted):
        return
    for source, target, labels in cast("Sequence[tuple[str, str, Any]]", started.graph.get("edges", ())):
        if target == node and labels:
            yield source


def _describe_failure(run: Run, nodes: Collection[str]) -> list[str]:
    """Describes what ended a failed run, unless already reported."""
    if run.error is None or run.failed_node in nodes:
        return []
    where = "" if run.failed_node is None else f" in '{run.failed_node}'"
    return [f"the run {run.status}{where}: {run.error.message}"]


# --- Assertions about a run


def assert_path(run: Run, expected: Sequence[Step]) -> None:
    """These nodes finished, in this order, and no others. A set stands for nodes that finish in any order.

    >>> from flowengine import Flow, FunctionNode, NodeResult
    >>> async def work(context):
    ...     return NodeResult(output=1)
    >>> run = Flow("both", {"a": FunctionNode(work), "b": FunctionNode(work, needs=["a"])}).run_sync()
    >>> assert_path(run, ["a", "b"])
    """
    __tracebackhide__ = True
    difference = describe_path_difference(run, expected)
    if difference:
        raise AssertionError(f"the run took another path\n{difference}")


def assert_skipped(run: Run, node: str, cause: SkipCause | None = None) -> None:
    """The node was skipped; with `cause`, for that reason."""
    __tracebackhide__ = True
    part = run.nodes.get(node)
    if part is None or part.status != "skipped" or cause not in (None, part.cause):
        reason = "" if cause is None else f" ({cause})"
        raise AssertionError(f"'{node}' was to be skipped{reason}; it {describe_fate(run, node)}")
