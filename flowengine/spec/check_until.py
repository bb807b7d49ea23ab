"""Warnings about loops that can only end exhausted: nothing that `until` reads changes from round to round.

A round begins with the state that the loop saw, so what its body writes, gives and carries is all that changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import Level, key_path, levels_of
from flowengine.spec.names import ENGINE_KEYS, ROUND
from flowengine.spec.references import Use, reads_of
from flowengine.spec.report import Report
from flowengine.spec.runs import writes_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import LoopNodeSpec

__all__ = ["warn_of_endless_loop"]


def warn_of_endless_loop(spec: FlowSpec, level: Level, report: Report) -> None:
    """A loop whose `until` says the same after each round. Without one, a loop has a fixed number of rounds."""
    holder = level.holder
    if not isinstance(holder, LoopNodeSpec) or holder.until is None:
        return
    at = (*key_path(level.path), "until")
    uses = [use for use in reads_of(spec).at_end.get(level.path, ()) if use.text.path == at]
    if not any(_changes(spec, level, holder, use) for use in uses) and _is_known(spec, level, report):
        text = "nothing that `until` reads changes from round to round, so it ends the first round or none"
        report.at_value("FE907", text, at)


def _is_known(spec: FlowSpec, level: Level, report: Report) -> bool:
    """Whether there is no mistake in the loop, be it that what `until` reads or what the body does is not as meant."""
    gaps, name = gaps_of(spec), ".".join(level.path)
    if level.path in gaps.touched() or level.path in gaps.waits | gaps.gives | gaps.variables:
        return False
    wrong = (f"{each.node}." for each in report.found if each.severity == "error")
    return not any(node.startswith(f"{name}.") for node in wrong)


def _changes(spec: FlowSpec, level: Level, holder: LoopNodeSpec, use: Use) -> bool:
    root, *fields = use.reference.path
    judge = _BY_ROOT.get(root)
    return judge is not None and (not fields or judge(spec, level, holder, fields[0]))


def _of_body(spec: FlowSpec, level: Level, holder: LoopNodeSpec, name: str) -> bool:
    return name in level.nodes


def _variable(spec: FlowSpec, level: Level, holder: LoopNodeSpec, name: str) -> bool:
    return name in ROUND or (name in holder.carry and not _is_same(holder.carry[name], name))


def _is_same(carried: Any, name: str) -> bool:
    """Whether a variable is carried as it is."""
    return isinstance(carried, str) and re.fullmatch(rf"{{{{\s*round\.{name}\s*}}}}", carried.strip()) is not None


def _state(spec: FlowSpec, level: Level, holder: LoopNodeSpec, key: str) -> bool:
    """Written by the body: by `set`, by code, which may write any key, or by the engine."""
    types = _types_inside(spec, level)
    if key in ENGINE_KEYS:
        return bool(types & {"agent", "loop"})
    return "function" in types or any(
        key in writes_of(node, (*level.path, name)) for name, node in holder.nodes.items()
    )


def _result(spec: FlowSpec, level: Level, holder: LoopNodeSpec, name: str) -> bool:
    return bool(_types_inside(spec, level) & {"agent", "routing", "evaluation"})


def _types_inside(spec: FlowSpec, level: Level) -> set[str]:
    depth, levels = len(level.path), levels_of(spec).values()
    return {node.type for each in levels if each.path[:depth] == level.path for node in each.nodes.values()}


_BY_ROOT: Final[Mapping[str, Callable[[FlowSpec, Level, LoopNodeSpec, str], bool]]] = {
    "nodes": _of_body,
    "prev_outputs": _of_body,
    "round": _variable,
    "shared_state": _state,
    "routing_result": _result,
    "evaluation_result": _result,
}
