"""Checks of what maps and loops say about their bodies: names that are taken, variables, what an item gives.

Source of the rules: rules 7, 10 and 11 of the flow format.
"""

from __future__ import annotations

from flowengine.spec.gaps import gaps_of
from flowengine.spec.known import over_shape
from flowengine.spec.levels import Level, home_of, key_path, levels_of
from flowengine.spec.names import LOOP_OUTPUT, RESERVED, ROUND, holders_of
from flowengine.spec.references import last_of
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import LoopNodeSpec, MapNodeSpec

__all__ = ["check_bodies"]


def check_bodies(spec: FlowSpec, report: Report) -> None:
    """Ids, items and variables that hide others; variables that nobody declared; results that nobody chose."""
    gaps = gaps_of(spec)
    touched = gaps.touched()
    for level in levels_of(spec).values():
        if level.holder is None:
            continue
        _check_ids(spec, level, report)
        if isinstance(level.holder, MapNodeSpec):
            _check_item(spec, level, level.holder, report)
            _check_over(spec, level, level.holder, report)
            if level.path not in touched | gaps.gives:
                _check_result(spec, level, level.holder, report)
        else:
            _check_variables(spec, level, level.holder, report)
            if level.path not in gaps.variables:
                _check_carry(level, level.holder, report)


def _check_ids(spec: FlowSpec, level: Level, report: Report) -> None:
    for name in level.nodes:
        if home_of(spec, level.path[:-1], name) is not None:
            text = f"a node outside is called '{name}' too, and the body could not read it; rename one of them"
            report.at_key("FE220", text, key_path((*level.path, name)))


def _check_item(spec: FlowSpec, level: Level, holder: MapNodeSpec, report: Report) -> None:
    at = (*key_path(level.path), "as")
    if holder.as_ in RESERVED:
        report.at_value("FE220", f"'{holder.as_}' means something else in templates; call the item otherwise", at)
    for outer in holders_of(spec, level.path)[1:]:
        if isinstance(outer.holder, MapNodeSpec) and outer.holder.as_ == holder.as_:
            text = f"'{holder.as_}' is the item of '{outer.path[-1]}', round this map; give this one another name"
            report.at_key("FE220", text, at, " with `as`" if "as_" not in holder.model_fields_set else "")


def _check_over(spec: FlowSpec, level: Level, holder: MapNodeSpec, report: Report) -> None:
    shape = over_shape(spec, level.path[:-1], holder.over)
    kind = shape.get("type") if shape is not None else None
    if isinstance(kind, str) and kind != "array":
        text = f"a map goes over a list, and '{holder.over.strip()}' is of type {kind}"
        report.at_value("FE311", text, (*key_path(level.path), "over"))


def _check_result(spec: FlowSpec, level: Level, holder: MapNodeSpec, report: Report) -> None:
    last = last_of(spec, level.path)
    if holder.result is None and len(last) > 1:
        names = ", ".join(f"'{name}'" for name in last)
        text = f"the body ends with several nodes ({names}); say with `result` what an item gives"
        report.at_key("FE222", text, key_path(level.path), f": {{{{ nodes.{last[-1]}.output }}}}")


def _check_variables(spec: FlowSpec, level: Level, holder: LoopNodeSpec, report: Report) -> None:
    at = key_path(level.path)
    for name in holder.initial:
        if name in (*ROUND, *LOOP_OUTPUT):
            report.at_key("FE220", f"'{name}' is the loop's own; call the variable otherwise", (*at, "initial", name))
        for outer in holders_of(spec, level.path)[1:]:
            if isinstance(outer.holder, LoopNodeSpec) and name in outer.holder.initial:
                text = f"'{outer.path[-1]}', round this loop, has a variable '{name}' too; rename one of them"
                report.at_key("FE220", text, (*at, "initial", name))


def _check_carry(level: Level, holder: LoopNodeSpec, report: Report) -> None:
    at = (*key_path(level.path), "carry")
    for name in holder.carry:
        if name not in holder.initial:
            hint = report.nearest(name, holder.initial) or "; give it a first value in `initial`"
            report.at_key("FE221", f"the first round has no variable '{name}'", (*at, name), hint)
