"""Reads a declarative workflow: its inputs, its actions one after the other, the ways between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from flowengine.importers.agent_framework.action_flow import ENDS, Action, ActionLevel, Exit, Exits, form_loops
from flowengine.importers.agent_framework.power_fx import FxError
from flowengine.importers.agent_framework.tool_actions import ToolActions
from flowengine.importers.agent_framework.workflow_values import MOST_NESTED, inner
from flowengine.importers.flow_text import plain_words, to_tag
from flowengine.importers.form import Element, FlowStep, ImportedProject, Stub
from flowengine.importers.import_names import Names
from flowengine.importers.option_values import whole_number
from flowengine.importers.read_keys import watch
from flowengine.importers.source_tree import SourceError, as_list, as_map, as_maps

_MOST_ACTIONS: Final = 2_000
_OTHERWISE: Final = ("elseActions", "else", "defaultActions", "default")
_BLOCKS: Final = ("actions", "then", *_OTHERWISE)
_KNOWN: Final = frozenset(
    {
        *("kind", "id", "displayName", "conditions.displayName", "content.type", "prompt.kind"),
        *(*_BLOCKS, "conditions.actions", "cases.actions"),
    }
)
"""Keys of actions that are read with the levels, or are for editors alone."""


class WorkflowReader(ToolActions):
    """One workflow on its way into the form."""

    def read(self) -> ImportedProject:
        path: tuple[str | int, ...] = ("actions",)
        for key in ("trigger", "beginDialog"):
            if as_map(self._data.get(key)):
                path = (key, "actions") if as_list(as_map(self._data[key]).get("actions")) else path
                self._ledger.note_mapped(
                    f"trigger {plain_words(as_map(self._data[key]).get('kind'), 60)}", self._source.origin(key), "a run"
                )
        self._read_inputs()
        rows: Any = self._source.data  # Not watched yet: formulas are studied before actions are converted.
        for key in path:
            rows = as_map(rows).get(str(key))
        self._count = 0
        actions = self._actions(as_list(rows), path, 0)
        self._study(actions)
        level = ActionLevel(self._names, self._flow.shared_state, self._convert)
        formed = form_loops(actions)
        level.expect(formed)
        level.run(formed, None)
        self._flow.steps = level.steps
        if not level.steps:
            level.add(level.give("done", "done", self._source.origin(*path), {}), None)
        self._finish()
        self._ledger.note_unread("the workflow", self._data, self._source.origin("kind"), _KNOWN)
        return self.project

    # --- What there is

    def _read_inputs(self) -> None:
        for name, each in as_map(self._data.get("inputs")).items():
            row = as_map(each)
            kind = str(row.get("type") or "string")
            kind = kind if kind in {"string", "number", "integer", "boolean", "array", "object"} else "string"
            field: dict[str, Any] = {"type": kind}
            if row.get("description"):
                field["description"] = plain_words(row["description"])
            if "default" in row:
                field["default"] = row["default"]
            id = self._input_names.id(name, "input")
            self._input_ids[str(name).lower()] = id
            self._flow.inputs[id] = field
            what, origin = f"input '{plain_words(name, 60)}'", self._source.origin("inputs", str(name))
            self._ledger.note_unread("inputs", row, origin, _KNOWN)
            self._ledger.note_done(what, origin, f"it is called `{id}`" if id != name else "")

    def _actions(self, rows: Sequence[Any], path: tuple[str | int, ...], depth: int) -> list[Action]:
        actions: list[Action] = []
        for at, each in enumerate(map(as_map, rows)):
            self._count += 1
            if self._count > _MOST_ACTIONS or depth > MOST_NESTED:
                raise SourceError(
                    f"{self._source.file}: more than {_MOST_ACTIONS:,} actions, or {MOST_NESTED} in one another"
                )
            kind = str(each.get("kind") or "")
            kind = _KINDS.get(kind.lower(), kind)
            place = (*path, at)
            action = Action(
                kind, each, self._source.origin(*place), str(each.get("id") or f"{kind or 'action'}_{self._count}")
            )
            for key in _BLOCKS:
                if as_list(each.get(key)):
                    action.blocks[key] = self._actions(as_list(each[key]), (*place, key), depth + 1)
            for key in ("conditions", "cases"):
                for number, case in enumerate(as_maps(each.get(key))):
                    action.blocks[f"{key}:{number}"] = self._actions(
                        as_list(case.get("actions")), (*place, key, number, "actions"), depth + 1
                    )
            actions.append(action)
        return actions

    # --- Actions

    def _convert(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits | None:
        """The nodes of one action, and what runs before the next."""
        if action.kind == "#goto":
            rounds = whole_number(self._data.get("maxTurns"), 1, 10000) or 100
            return level.loop(action, exits, own=action.id, rounds=rounds)
        what = action.title
        if exits == []:
            by_hand = "do it by a step of your own, unless it was left over"
            self._ledger.note_lost(what, action.origin, "left out, since nothing leads to it", by_hand)
            self._drop(action)
            return []
        watched = action.data = watch(action.data)
        if action.kind in ENDS:
            level.end(exits, action)
            self._ledger.note_mapped(what, action.origin, "the end of the flow")
            return []
        around = (self._changes, self._by_hand)
        self._changes, self._by_hand = [], ""
        count = len(level.steps)
        before = {key: dict(each) for key, each in self._flow.shared_state.items()}
        at = len(self._ledger.elements)
        convert = getattr(self, f"_do_{_snake(action.kind)}", None)
        try:
            if convert is None:
                raise FxError(f"there is no counterpart to '{plain_words(action.kind, 60)}'")
            out: Exits | None = convert(action, level, exits)
            note = f"the step `{level.steps[count].id}`" if len(level.steps) > count else "no step of its own"
            outcome = "changed" if self._changes or self._by_hand else "mapped"
            element = Element(what, action.origin, outcome, "; ".join(self._changes) or note, self._by_hand)
            self._ledger.elements.insert(at, element)
            self._ledger.note_unread(plain_words(action.kind, 60), watched, action.origin, _KNOWN)
            return out
        except FxError as error:
            del level.steps[count:]
            self._flow.shared_state |= before
            self._drop(action)
            self._ledger.note_lost(what, action.origin, _why(str(error)), "do it by a step of your own")
            step = FlowStep(self._names.id(action.id), "function", action.origin)
            step.call, step.sample = f"stubs:{self._stub_names.id(action.id, 'step')}", ""
            self.project.stubs.append(Stub(step.call, (), f"{action.kind}: {error}", action.origin))
            return level.add(step, exits)
        finally:
            self._changes, self._by_hand = around

    def _drop(self, action: Action) -> None:
        """Tell of the actions inside one that is left out."""
        reports = {(each.what, each.origin) for each in self._ledger.elements}
        for block in action.blocks.values():
            for each in block:
                if (each.title, each.origin) not in reports:
                    why = "the action that it is in is left out"
                    self._ledger.note_lost(each.title, each.origin, why, "do it by a step of your own")
                self._drop(each)

    # --- Choices, jumps, loops

    def _do_condition_group(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        rows = as_maps(action.data.get("conditions") or action.data.get("cases"))
        key = "conditions" if action.data.get("conditions") else "cases"
        tests = [
            (f"{key}:{at}", str(each.get("id") or ""), self._condition(each.get("condition")))
            for at, each in enumerate(rows)
        ]
        return self._choose(action, level, exits, tests)

    def _do_if(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        block = "then" if "then" in action.blocks else "actions"
        return self._choose(action, level, exits, [(block, "", self._condition(action.data.get("condition")))])

    def _do_switch(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        value = inner(self._value(action.data.get("value")))
        rows = as_maps(action.data.get("cases"))
        matches = [inner(self._value(each.get("match", each.get("value")))) for each in rows]
        ids = [str(each.get("id") or "") for each in rows]
        tests = [(f"cases:{at}", ids[at], f"{value} == {match}") for at, match in enumerate(matches)]
        return self._choose(action, level, exits, tests)

    def _choose(
        self, action: Action, level: ActionLevel, exits: Exits | None, tests: Sequence[tuple[str, str, str]]
    ) -> Exits:
        """A condition. `tests`: the block that runs, its id, and the expression that says so."""
        if not tests:
            raise FxError("a choice without conditions")
        step = FlowStep(self._names.id(action.id), origin=action.origin)
        names = Names({"else"})
        labels = ["then"] if len(tests) == 1 else [names.id(id, "case") for _, id, _ in tests]
        step.choose([(label, test) for label, (_, _, test) in zip(labels, tests, strict=True)])
        level.add(step, exits)
        otherwise = next((key for key in _OTHERWISE if key in action.blocks), "")
        out: list[Exit] = []
        for label, block in zip([*labels, "else"], [*(block for block, _, _ in tests), otherwise], strict=True):
            out += level.run(action.blocks.get(block, []), [Exit(step, label)]) or []
        return out

    def _do_goto_action(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        if not level.go(action.target, exits, action):
            self._ledger.note_lost(
                "jump",
                action.origin,
                f"'{plain_words(action.target, 60)}' is not where a loop or a way forward could lead",
                "draw it as a loop",
            )
            level.end(exits, action)
        return []

    def _do_break_loop(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        if not level.leave_round(exits, action, whole=action.kind == "BreakLoop"):
            raise FxError("it stands in no loop")
        return []

    _do_continue_loop = _do_break_loop

    def _do_foreach(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        items = inner(self._value(data.get("items") or data.get("source") or data.get("itemsSource")))
        item = to_tag(f"{items}[round.index]")
        parts = {"value": item, "itemName": item, "index": "{{ round.index }}"}
        sets = {self._variable(data[key]): value for key, value in parts.items() if data.get(key)}
        test = self._test(f"{action.id}_any", f"({items} | length) > 0", action, level, exits)
        action.blocks.setdefault("actions", action.blocks.get("then", []))
        out = level.loop(
            action, [Exit(test, "then")], sets=sets, until=f"round.index + 1 >= ({items} | length)", rounds=1000
        )
        return [*out, Exit(test, "else")]

    def _test(self, name: str, test: str, action: Action, level: ActionLevel, exits: Exits | None) -> FlowStep:
        """The choice before a loop, which may have no round."""
        step = FlowStep(self._names.id(name), "condition", action.origin, keys={"if": test})
        level.add(step, exits)
        return step

    def _do_while(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        again = self._condition(action.data.get("condition"))
        test = self._test(f"{action.id}_first", again, action, level, exits)
        action.blocks.setdefault("actions", [])
        out = level.loop(action, [Exit(test, "then")], until=f"not ({again})", rounds=1000)
        return [*out, Exit(test, "else")]

    def _do_repeat_until(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        done = self._condition(action.data.get("condition") or action.data.get("until"))
        action.blocks.setdefault("actions", [])
        return level.loop(action, exits, until=done, rounds=1000)

    # --- At the end

    def _finish(self) -> None:
        """Give the last message a first value, where it is a key of the state."""
        key = self._states.get(("System", "LastMessage"))
        if key is not None:
            self._take_message()
            first = FlowStep(self._names.id("begin"), origin=self._source.origin("kind"))
            first.write_state({key: "{{ inputs.message }}"})
            targets = {each for step in self._flow.steps for each in step.targets()}
            for step in self._flow.steps:
                if not step.needs and step.id not in targets:
                    step.needs = [first.id]
            self._flow.steps.insert(0, first)
        for step in self._flow.every_step():
            for name, value in list(step.keys.get("set", {}).items()):
                if name not in self._flow.shared_state:
                    self._flow.shared_state[name] = {"default": "", "merge": "replace"}
                    step.keys["set"][name] = value


def _why(text: str) -> str:
    return text if text.startswith(("there is", "it stands")) else f"it needs {text}"


def _snake(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower() if kind.isidentifier() else ""


_DONE: Final = (each.removeprefix("_do_") for each in dir(WorkflowReader) if each.startswith("_do_"))
_KINDS: Final = {
    each.lower(): each
    for each in (*ENDS, "GotoAction", *("".join(map(str.capitalize, name.split("_"))) for name in _DONE))
}
"""Kind of an action in small letters → as it is written; the source takes either."""
