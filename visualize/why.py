"""Says in words why a node ran or did not, which way led on from it, and what that means for each edge.

It reads the fold of a run, and so what was recorded when it was decided: no flow file, no expression is looked at
again. Of runs that were recorded before decisions were, it says what the nodes' ends and routes tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from flowengine.core import CAUSE_TEXTS, Decided
from flowengine.engine import ON_ERROR
from visualize.edge_states import edge_state
from visualize.progress import NodeRow, Progress


class NodeName(NamedTuple):
    """A node that the words speak of."""

    path: str
    text: str


class CodeText(str):
    """A part of the words that is a piece of the flow, or a value."""

    __slots__ = ()


Words: TypeAlias = Sequence["str | CodeText | NodeName"]
"""One sentence, in parts."""

_MAX_NAMED: Final = 8


def format_words(words: Words) -> str:
    """The sentence as plain text.

    >>> format_words(["after ", NodeName("a", "a"), ": ", CodeText("x > 1")])
    'after a: x > 1'
    """
    return "".join(part.text if isinstance(part, NodeName) else part for part in words)


def explain_node(progress: Progress, row: NodeRow) -> Iterator[Words]:
    """Explains a node's status, from its predecessors to the routes that it took."""
    gates = [each for each in row.decided if each.what in ("join", "when")]
    if row.status == "pending":
        yield from _explain_waiting(progress, row)
        return
    if not any(each.what == "join" for each in gates) and (row.has_run or row.cause == "condition_false"):
        yield _explain_start(progress, row)
    elif not gates and row.cause is not None:
        yield _explain_skip(progress, row)
    for each in row.decided:
        yield from explain_decision(each, row.spot.unit)
    origin = _failure_before(progress, row) if row.cause == "upstream_failed" else None
    if origin is not None and origin.error is not None:
        yield ["It began with ", _name(origin), ", which failed: ", origin.error.message]
    elif row.cause == "error":
        yield ["It failed, and its ", CodeText("on_error: skip"), " makes it a skipped node"]


def explain_edges(progress: Progress, row: NodeRow) -> Iterator[Words]:
    """Each way that leads on from the node, and whether it was taken."""
    for _, after, labels in _edges(progress, row, outward=True):
        way = ["To ", _name(after), *([" by ", CodeText(" or ".join(labels))] if labels else []), ": "]
        yield [*way, *_explain_edge(row, after, labels)]


def _explain_edge(before: NodeRow, after: NodeRow, labels: Sequence[str]) -> Words:
    state = edge_state(before, after, labels)
    if state == "undecided":
        return [f"not decided yet ({before.status} → {after.status})"]
    route = None if before.result is None else before.result.route
    if state == "taken":
        if before.status == "failed":
            return ["taken, since the node failed and ", _name(after), " handles that"]
        return ["taken"] if not labels else ["taken: the route is ", CodeText(str(route))]
    if before.status != "succeeded" and not (before.status == "failed" and ON_ERROR in labels):
        return [f"not taken, since the node {_describe_standing(before)}"]
    if before.status == "succeeded" and set(labels) == {ON_ERROR}:
        return ["not taken, since the node did not fail"]
    if labels and before.status == "succeeded" and route not in labels:
        return ["not taken: the route is ", CodeText("none" if route is None else route)]
    return ["not taken, since ", _name(after), f" {_describe_standing(after)}"]


# --- what came before a node


def _explain_start(progress: Progress, row: NodeRow) -> Words:
    edges = _edges(progress, row, outward=False)
    verb = "It runs" if row.has_run else "It was reached"
    if not edges:
        return [f"{verb} first in the flow" if row.spot.container is None else f"{verb} first of its container"]
    for before, _, labels in edges:
        if before.status == "failed" and ON_ERROR in labels:
            return ["It handles the failure of ", _name(before)]
        if before.result is not None and before.result.route in labels:
            return [f"{verb}, since ", _name(before), " took ", CodeText(str(before.result.route))]
    names = _list_names([before for before, _, _ in edges])
    return [f"{verb} after ", *names, f", which {'all ' * (len(edges) > 1)}succeeded"]


def _explain_waiting(progress: Progress, row: NodeRow) -> Iterator[Words]:
    open_before = [before for before, _, _ in _edges(progress, row, outward=False) if before.ended is None]
    if open_before:
        yield ["It waits for ", *_list_names(open_before, standing=True)]


def _explain_skip(progress: Progress, row: NodeRow) -> Words:
    """Explains a skip in a run whose journal says no more than the cause."""
    edges = _edges(progress, row, outward=False)
    if row.cause == "not_selected":
        routers = [each for each, _, labels in edges if labels and each.result is not None]
        if routers:
            route = cast("str", routers[0].result.route if routers[0].result is not None else None)
            return ["It does not run: ", _name(routers[0]), " took ", CodeText(str(route))]
    standing = [before for before, _, _ in edges if before.status in ("failed", "skipped", "cancelled")]
    rest = [", after ", *_list_names(standing, standing=True)] if standing else []
    return [f"It does not run: {CAUSE_TEXTS[row.cause] if row.cause else ''}", *rest]


def _failure_before(progress: Progress, row: NodeRow) -> NodeRow | None:
    """The nearest node before this one that failed, through all that was skipped because of it."""
    visited, todo = {row.id}, [row]
    while todo:
        each = todo.pop(0)
        for before, _, _ in _edges(progress, each, outward=False):
            if before.error is not None and before.status in ("failed", "skipped"):
                return before
            if before.id not in visited and before.status == "skipped":
                visited.add(before.id)
                todo.append(before)
    return None


# --- what was decided


def explain_decision(decided: Decided, unit: str = "") -> Iterator[Words]:
    """Explains a decision with its values. `unit`: the path prefix of the nodes beside it."""
    if decided.what == "join":
        yield _explain_join(decided, unit)
    elif decided.what in _TITLES:
        for test in decided.tests:
            yield [*_explain_test(_TITLES[decided.what], test), *_outcome(decided)]
    elif decided.what == "cases":
        for number, test in enumerate(decided.tests, 1):
            yield _explain_test(f"case {number} ({test.get('label', '')})", test)
        yield ["It took ", CodeText(decided.answer or "no case")]
    else:
        others = [each for each in decided.among if each != decided.answer]
        yield ["The answer was ", CodeText(decided.answer), *_list_others(others)]


_TITLES: Final = {"when": "when", "if": "if", "until": "until", "enough": "until", "evaluation": "passes if"}
_CAUSES: Final[Mapping[str, str]] = {
    "not_selected": "no route that leads here was taken",
    "upstream_failed": "a node before it failed",
    "upstream_skipped": "too few of the nodes before it succeeded",
    "cancelled": "the run was being stopped",
}


def _explain_join(decided: Decided, unit: str) -> Words:
    parents: list[str | NodeName] = []
    for name, fate in decided.parents.items():
        parents += [", " if parents else "", NodeName(f"{unit}{name}", name), f" ({fate.replace('_', ' ')})"]
    more = f", and {decided.more:,} more" if decided.more else ""
    verdict = (
        "It runs" if decided.answer == "run" else f"It does not run: {_CAUSES.get(decided.answer, decided.answer)}"
    )
    return [f"{verdict}. ", CodeText(f"join: {decided.rule}"), " of ", *(parents or ["nothing"]), more]


def _explain_test(title: str, test: Mapping[str, object]) -> Words:
    values = cast("Mapping[str, str]", test.get("values") or {})
    words: list[str] = [f"{title} was {'true' if test.get('answer') else 'false'}"]
    if test.get("expression"):
        words += [": ", CodeText(str(test["expression"]))]
    for number, (name, value) in enumerate(values.items()):
        words += [", " if number else ", where ", CodeText(name), " = ", CodeText(value)]
    return words


def _outcome(decided: Decided) -> Words:
    if decided.what == "when":
        return [", so it runs" if decided.answer == "true" else ", so it does not run"]
    if decided.what == "until":
        return [", so it ended with this round" if decided.answer == "true" else ", so another round followed"]
    if decided.what == "enough":
        return [", so it had enough"]
    return [", so it took ", CodeText(decided.answer)]


def _list_others(labels: Sequence[str]) -> Words:
    if not labels:
        return []
    more = f" and {len(labels) - _MAX_NAMED:,} more" if len(labels) > _MAX_NAMED else ""
    return [", and could have been ", CodeText(", ".join(labels[:_MAX_NAMED])), more]


# --- the nodes round one


def edges_from(progress: Progress, row: NodeRow) -> list[tuple[str, Sequence[str]]]:
    """The ways on from a node: the id of the node that each leads to, and the labels that open it."""
    return [(_name(after).text, labels) for _, after, labels in _edges(progress, row, outward=True)]


def rows_before(progress: Progress, row: NodeRow) -> list[NodeRow]:
    """The nodes that lead to one."""
    return list({before.id: before for before, _, _ in _edges(progress, row, outward=False)}.values())


def _edges(progress: Progress, row: NodeRow, *, outward: bool) -> list[tuple[NodeRow, NodeRow, Sequence[str]]]:
    """The edges from or to a node: source, target, labels."""
    unit = row.spot.unit
    name = row.id[len(unit) :]
    edges: list[tuple[NodeRow, NodeRow, Sequence[str]]] = []
    for source, target, labels in progress.skeleton.level_of(row.spot.site).edges_at.get(name, ()):
        if (source if outward else target) == name:
            before, after = progress.nodes.get(unit + source), progress.nodes.get(unit + target)
            if before is not None and after is not None:
                edges.append((before, after, labels))
    return edges


def _name(row: NodeRow) -> NodeName:
    return NodeName(row.id, row.id[len(row.spot.unit) :])


def _list_names(rows: Iterable[NodeRow], *, standing: bool = False) -> list[str | NodeName]:
    words: list[str | NodeName] = []
    every = list(rows)
    for row in every[:_MAX_NAMED]:
        words += [", " if words else "", _name(row), f" ({_describe_standing(row)})" if standing else ""]
    more = len(every) - _MAX_NAMED
    return [*words, f" and {more:,} more"] if more > 0 else words


def _describe_standing(row: NodeRow) -> str:
    cause = "" if row.cause is None else f" ({CAUSE_TEXTS[row.cause]})"
    return f"{'was ' if row.status in ('skipped', 'cancelled') else ''}{row.status}{cause}"
