"""Converts the actions that write variables: set, append, reset, parse, edit a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from flowengine.importers.agent_framework.action_flow import Action, ActionLevel, Exits
from flowengine.importers.agent_framework.power_fx import FxError
from flowengine.importers.agent_framework.workflow_values import WorkflowValues, inner
from flowengine.importers.flow_text import plain_words, to_tag
from flowengine.importers.form import FlowStep
from flowengine.importers.source_tree import as_map, as_maps

_SETTERS: Final = frozenset({"SetVariable", "SetValue", "SetTextVariable", "SetMultipleVariables", "AppendValue"})


class VariableActions(WorkflowValues):
    """The actions by the names of their kinds."""

    def _set(self, action: Action, level: ActionLevel, exits: Exits | None, values: Mapping[str, Any]) -> Exits:
        """Write values to the state: by the node before, where that is free to do it, else by a node."""
        last = exits[0].step if exits and len(exits) == 1 and not exits[0].label else None
        text = str(values)
        if last is not None and last is level.steps[-1] and last.kind in {"agent", "function"} and not last.when:
            sets: dict[str, Any] = last.keys.get("set", {})
            is_free = not any(re.search(rf"shared_state\.{key}\b", text) or key in values for key in sets)
            if is_free and not last.id.endswith("_round") and action.kind in _SETTERS and "output" not in text:
                last.keys["set"] = {**sets, **values}
                return exits or []
        return level.add(FlowStep(self._names.id(action.id), origin=action.origin).write_state(values), exits)

    def _do_set_variable(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        key = self._variable(data.get("variable") or data.get("path"))
        return self._set(action, level, exits, {key: self._value(data.get("value"))})

    _do_set_value = _do_set_variable

    def _do_set_text_variable(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        return self._set(
            action, level, exits, {self._variable(action.data.get("variable")): self._text(action.data.get("value"))}
        )

    def _do_set_multiple_variables(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits | None:
        rows = as_maps(action.data.get("assignments") or action.data.get("variables"))
        keys = [self._variable(each.get("variable") or each.get("path")) for each in rows]
        values = [self._value(each.get("value")) for each in rows]
        out = exits
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            part = Action("SetVariable", rows[at], action.origin, action.id if at == 0 else f"{action.id}_{at + 1}")
            out = self._set(part, level, out, {key: value})
        return out

    def _do_append_value(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        key = self._variable(action.data.get("path") or action.data.get("variable"))
        value = inner(self._value(action.data.get("value")))
        return self._set(action, level, exits, {key: to_tag(f"(shared_state.{key} | default([], true)) + [{value}]")})

    def _do_reset_variable(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        key = self._variable(action.data.get("variable"))
        return self._set(action, level, exits, {key: self._flow.shared_state[key]["default"]})

    def _do_clear_all_variables(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        keys = [key for variable, key in self._states.items() if variable[0] == "Local"]
        if not keys:
            return self._set(action, level, exits, {self._state(("Local", "cleared")): ""})
        return self._set(action, level, exits, {key: self._flow.shared_state[key]["default"] for key in keys})

    def _do_parse_value(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        key = self._variable(action.data.get("variable"))
        kind = action.data.get("valueType")
        name = str(as_map(kind).get("kind") or kind or "Record")
        value = inner(self._value(action.data.get("value")))
        expression = {
            "String": f"{value} | string",
            "Number": f"{value} | string | from_json",
            "Boolean": f'({value} | string | lower) == "true"',
        }.get(name, f"{value} if {value} is not string else ({value} | from_json)")
        return self._set(action, level, exits, {key: to_tag(expression)})

    def _do_edit_table(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        key = self._variable(data.get("itemsVariable"))
        change = data.get("changeType")
        kind = str(as_map(change).get("kind") or change or "").removesuffix("Operation").removesuffix("Item").lower()
        raw: Any = as_map(change).get("value", data.get("value"))
        table = f"(shared_state.{key} | default([], true))"
        match kind:
            case "add":
                expression = f"{table} + [{inner(self._value(raw))}]"
            case "remove":
                expression = f'{table} | reject("==", {inner(self._value(raw))}) | list'
            case "clear":
                expression = "[]"
            case "takefirst":
                expression = f"{table}[1:]"
            case "takelast":
                expression = f"{table}[:-1]"
            case _:
                raise FxError(f"the change '{plain_words(kind, 40)}' of a table")
        values = {key: to_tag(expression)}
        result = as_map(change).get("resultVariable") or data.get("resultVariable")
        if result and kind.startswith("take"):
            values[self._variable(result)] = to_tag(f"{table} | {kind.removeprefix('take')}")
        return self._set(action, level, exits, values)

    _do_edit_table_v2 = _do_edit_table
