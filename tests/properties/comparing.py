"""Compares what a run gave with what its flow means."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, cast

from pydantic import BaseModel

from flowengine import EvaluationResult, LLMResult, RoutingResult
from flowengine.core.records import Reused
from flowengine.engine.events import Event, NodeFailed, NodeFinished, NodeRecorded, NodeSkipped
from flowengine.runtime.run import Run
from tests.properties.oracle import Meaning
from tests.properties.oracle_nodes import FAILED_ITEM
from tests.properties.oracle_scope import Outcome
from tests.properties.random_flows import STATE

__all__ = ["Observed", "differences", "observe", "plain"]


class Observed(NamedTuple):
    """What a run gave, in plain values."""

    status: str
    outputs: Any
    state: Any
    nodes: Mapping[str, tuple[str, Any, str | None]]
    """Path → status, output, and why it was skipped; of what has ended."""
    failed_node: str | None
    error: str | None
    reused: frozenset[str]
    """Paths whose result was taken from an earlier run: of containers, nothing inside is on record."""


def observe(run: Run) -> Observed:
    nodes = dict(_ended(run.events))
    for name, node in run.nodes.items():
        if node.status in ("succeeded", "failed", "skipped") and node.cause != "cancelled":
            nodes[name] = (node.status, plain(node.output), node.cause)
        else:
            nodes.pop(name, None)
    state = {key: plain(run.shared_state[key]) for key in STATE} if run.status == "succeeded" else {}
    error = None if run.error is None else run.error.message
    reused = frozenset(
        each.node for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is Reused
    )
    return Observed(run.status, plain(run.outputs), state, nodes, run.failed_node, error, reused)


def _ended(events: Sequence[Event]) -> Iterator[tuple[str, tuple[str, Any, str | None]]]:
    for event in events:
        match event:
            case NodeFinished(node=node, result=result):
                yield node, ("succeeded", plain(result.output), None)
            case NodeFailed(node=node):
                yield node, ("failed", None, None)
            case NodeSkipped(node=node, cause=cause):
                yield node, ("skipped", None, cause)
            case _:
                pass


def plain(value: Any) -> Any:
    """A value made of lists, maps and scalars that says of what type it was."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, EvaluationResult):
        return {"score": value.score, "passed": value.passed}
    if isinstance(value, RoutingResult):
        return {"next_route": value.next_route}
    if isinstance(value, LLMResult):
        return {"content": plain(value.content)}
    if isinstance(value, BaseModel):
        return {"class": type(value).__name__, **{key: plain(each) for key, each in value}}
    if dataclasses.is_dataclass(value):
        fields = {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    if isinstance(value, Set):
        return {"set": sorted((plain(each) for each in cast("Set[Any]", value)), key=repr)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    return [plain(each) for each in value]


def differences(meaning: Meaning, seen: Observed) -> list[str]:
    """What is not as the flow means it, a line each."""
    if seen.status != meaning.status:
        return [f"the run {seen.status} ({seen.failed_node}: {seen.error}), and should have {meaning.status}"]
    found = [*_of_nodes(meaning, seen)]
    if meaning.status == "succeeded":
        found += _of_value("outputs", plain(meaning.outputs), seen.outputs)
        found += _of_value("shared_state", plain({key: meaning.state[key] for key in STATE}), seen.state)
    elif _top(seen.failed_node or "") not in meaning.failures:
        found.append(f"'{seen.failed_node}' failed ({seen.error}), and should not have")
    return found


def _top(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _of_nodes(meaning: Meaning, seen: Observed) -> Iterator[str]:
    free = [name for name, each in meaning.nodes.items() if each.free]
    for path, (status, output, cause) in seen.nodes.items():
        outcome = meaning.nodes.get(path)
        if outcome is None:
            yield f"{path} {status}, and should not have been there"
        elif outcome.sure or (not outcome.free and status == "succeeded" and not _is_inside(path, free)):
            yield from _of_node(path, outcome, status, output, cause)
    for path, outcome in meaning.nodes.items():
        if outcome.sure and path not in seen.nodes and not _is_inside(path, seen.reused):
            yield f"{path} is not there, and should have {outcome.status}"


def _is_inside(path: str, containers: Iterable[str]) -> bool:
    return any(path.startswith((f"{name}.", f"{name}[")) for name in containers)


def _of_node(path: str, outcome: Outcome, status: str, output: Any, cause: str | None) -> Iterator[str]:
    if outcome.cause == "error" and status == "failed":  # The record of a failure that its node answers for.
        return
    if (status, cause) != (outcome.status, outcome.cause):
        yield f"{path} {status} ({cause}), and should have {outcome.status} ({outcome.cause})"
    elif status == "succeeded":
        yield from _of_value(path, plain(outcome.output), output)


def _of_value(name: str, wanted: Any, got: Any) -> list[str]:
    return [] if _same(wanted, got) else [f"{name} is {got!r}, and should be {wanted!r}"]


def _same(wanted: Any, got: Any) -> bool:
    if wanted == FAILED_ITEM:
        return isinstance(got, str)
    if isinstance(wanted, dict) and isinstance(got, dict):
        table, other = cast("dict[Any, Any]", wanted), cast("dict[Any, Any]", got)
        return table.keys() == other.keys() and all(_same(each, other[key]) for key, each in table.items())
    if isinstance(wanted, list) and isinstance(got, list):
        row, found = cast("list[Any]", wanted), cast("list[Any]", got)
        return len(row) == len(found) and all(map(_same, row, found))
    return wanted == got and isinstance(wanted, bool) == isinstance(got, bool)
