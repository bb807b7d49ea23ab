"""Turns actions that run one after the other, with jumps, into nodes of a graph and loops.

What is to run next is a list of exits: nodes that are done, or labels of nodes that choose. A jump forward adds its
exits to those before its target; a jump back makes the actions between into a loop, whose rounds end by a key of the
state that says where to go on. It knows no kind of action but those that jump or repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from flowengine.importers.flow_text import join_tests, plain_words, quote, status_test
from flowengine.importers.form import FlowStep, SourcePlace
from flowengine.importers.import_names import Names

_NEXT, _END, _BREAK = "next", "end", "break"
ENDS: Final = frozenset({"EndWorkflow", "EndConversation", "CancelWorkflow", "CancelAllDialogs", "EndDialog"})
_DEEPEST: Final = 40


@dataclass
class Action:
    """One action of the source."""

    kind: str
    data: Mapping[str, Any]
    origin: SourcePlace
    id: str
    blocks: dict[str, list[Action]] = field(default_factory=dict[str, "list[Action]"])
    """The actions inside it, by the way that leads to them."""

    @property
    def title(self) -> str:
        """The action's name in the ledger."""
        return f"{plain_words(self.kind, 60) or 'action'} '{plain_words(self.id, 60)}'"

    @property
    def target(self) -> str:
        """The target of a jump."""
        return str(self.data.get("actionId") or "") if self.kind == "GotoAction" else ""

    def jumps(self) -> set[str]:
        """The targets of all jumps in it."""
        targets = {self.target} if self.target else set[str]()
        for block in self.blocks.values():
            for each in block:
                targets |= each.jumps()
        return targets


class Exit(NamedTuple):
    """A predecessor: a node, or one label of it."""

    step: FlowStep
    label: str = ""


Exits = list[Exit]


def form_loops(actions: list[Action]) -> list[Action]:
    """The actions, with those that are jumped back over as loops."""
    places = {each.id: at for at, each in enumerate(actions)}
    spans: dict[int, int] = {}
    for at, each in enumerate(actions):
        for target in each.jumps():
            begin = places.get(target)
            if begin is not None and begin <= at and not (begin == at and each.target == target):
                spans[begin] = max(spans.get(begin, at), at)
    result: list[Action] = []
    at = 0
    while at < len(actions):
        if at not in spans:
            each = actions[at]
            each.blocks = {name: form_loops(block) for name, block in each.blocks.items()}
            result.append(each)
            at += 1
            continue
        end = spans[at]
        while any(begin <= end < last for begin, last in spans.items() if begin > at):
            end = max(last for begin, last in spans.items() if at < begin <= end)
        first, *rest = actions[at : end + 1]
        first.blocks = {name: form_loops(block) for name, block in first.blocks.items()}
        inner = [first, *form_loops(rest)]
        result.append(Action("#goto", {}, first.origin, first.id, {"actions": inner}))
        at = end + 1
    return result


class ActionLevel:
    """The nodes of the flow, or of one loop, while they are being made."""

    def __init__(
        self,
        names: Names,
        states: dict[str, dict[str, Any]],
        convert: Callable[[Action, ActionLevel, Exits | None], Exits | None],
        parent: ActionLevel | None = None,
        key: str = "",
        own: str = "",
    ) -> None:
        """`key`: the state that says where a round leads; `own`: the action that a jump starts the loop again at."""
        self.names = names
        self.states = states
        self.parent = parent
        self.steps: list[FlowStep] = []
        self.jumps: dict[str, None] = {}
        """Targets of rounds other than the next round."""
        self.returns = False
        """Whether a jump leads to the next round."""
        self._convert = convert
        self._key = key
        self._own = own
        self._waiting: dict[str, list[Exit]] = {}
        self._targets: set[str] = set()

    # --- One action after the other

    def run(self, actions: Sequence[Action], before: Exits | None) -> Exits | None:
        """Make the nodes of some actions; gives what runs before the next one. None: nothing has run yet."""
        exits = before
        for each in actions:
            self._targets.discard(each.id)
            if waiting := self._waiting.pop(each.id, []):
                exits = [*(exits or []), *waiting]
            exits = self._convert(each, self, exits)
        return exits

    def expect(self, actions: Sequence[Action], depth: int = 0) -> None:
        """Note which actions of this level can still be jumped to."""
        for each in actions:
            self._targets.add(each.id)
            if each.kind not in {"#goto", "Foreach", "While", "RepeatUntil"} and depth < _DEEPEST:
                for block in each.blocks.values():
                    self.expect(block, depth + 1)

    def add(self, step: FlowStep, exits: Exits | None) -> Exits:
        """Put a node behind what runs before it."""
        if exits:
            _connect(step, exits)
        self.steps.append(step)
        return [Exit(step)]

    def give(self, id: str, value: Any, origin: SourcePlace, sets: Mapping[str, Any]) -> FlowStep:
        """A node that gives a value and writes state."""
        step = FlowStep(self.names.id(id), origin=origin).give(value)
        if sets:
            step.keys["set"] = dict(sets)
        return step

    # --- Jumps

    def go(self, target: str, exits: Exits | None, action: Action) -> bool:
        """Lead some exits to a target; False where that cannot be said."""
        if self._own and target == self._own:
            self._mark(_NEXT, exits, action)
            self.returns = True
            return True
        if target in self._targets:
            if exits is None:
                exits = self.add(self.give(action.id or "go", "go", action.origin, {}), None)
            self._waiting.setdefault(target, []).extend(exits)
            return True
        if self.parent is not None and self._may_leave(target):
            self._mark(target, exits, action)
            self.jumps[target] = None
            return True
        return False

    def end(self, exits: Exits | None, action: Action) -> None:
        """End the whole flow behind some exits."""
        if self.parent is not None:
            self._mark(_END, exits, action)
            self.jumps[_END] = None
        elif exits is None:
            self.add(self.give(action.id, "done", action.origin, {}), exits)

    def leave_round(self, exits: Exits | None, action: Action, *, whole: bool) -> bool:
        """End the round, or the whole loop."""
        if self.parent is None:
            return False
        self._mark(_BREAK if whole else "continue", exits, action)
        if whole:
            self.jumps[_BREAK] = None
        return True

    def _may_leave(self, target: str) -> bool:
        level = self.parent
        while level is not None:
            if target == level._own or target in level._targets:
                return True
            level = level.parent
        return False

    def _mark(self, where: str, exits: Exits | None, action: Action) -> None:
        self.add(self.give(action.id or where, where, action.origin, {self._key: "{{ output }}"}), exits)

    # --- Loops

    def loop(
        self,
        action: Action,
        exits: Exits | None,
        *,
        own: str = "",
        sets: Mapping[str, Any] | None = None,
        until: str = "",
        rounds: int = 100,
    ) -> Exits:
        """Make a loop of the actions inside one; `sets` is written at the start of a round."""
        id = self.names.id(f"{action.id}_loop" if own else action.id, "loop")
        key = self.names.id(f"{id}_next")
        inner = ActionLevel(self.names, self.states, self._convert, self, key, own)
        inner.expect(action.blocks["actions"])
        inner._targets.discard(own)
        first = inner.give(f"{id}_round", "{{ round.index }}", action.origin, sets or {})
        inner.run(action.blocks["actions"], inner.add(first, None))
        step = FlowStep(id, "loop", action.origin)
        uses_key = own or inner.returns or inner.jumps or any(key in each.keys.get("set", {}) for each in inner.steps)
        if uses_key:
            self.states[key] = {"type": "string", "default": "", "merge": "replace"}
            first.keys.setdefault("set", {})[key] = ""
        tests = [f'shared_state.{key} != "{_NEXT}"'] if own else [until] if until else []
        if not own and inner.jumps:
            names = ", ".join(quote(each) for each in inner.jumps)
            tests.append(f"shared_state.{key} in [{names}]")
        if not first.keys.get("set") and len(inner.steps) > 1:
            inner.steps.remove(first)
            for each in inner.steps:
                each.needs = [need for need in each.needs if need != first.id]
        step.keys |= {"max_iterations": rounds, "until": join_tests(tests) if tests else ""}
        step.body = inner.steps
        out = self.add(step, exits)
        return self._after_loop(action, inner, key, out)

    def _after_loop(self, action: Action, inner: ActionLevel, key: str, out: list[Exit]) -> Exits:
        """Go on where the last round led."""
        targets = [each for each in inner.jumps if each != _BREAK]
        if not targets:
            return out
        choice = FlowStep(self.names.id(f"after_{action.id}"), "condition", action.origin)
        labels = {each: self.names.id(f"to_{each}") for each in targets}
        choice.add_cases([(labels[each], f"shared_state.{key} == {quote(each)}") for each in targets])
        self.add(choice, out)
        for each in targets:
            if each == _END:
                self.end([Exit(choice, labels[each])], Action("EndWorkflow", {}, action.origin, f"end_{action.id}"))
            else:
                jump = Action("GotoAction", {}, action.origin, f"go_to_{each}")
                self.go(each, [Exit(choice, labels[each])], jump)
        return [Exit(choice, "else")]


def _connect(step: FlowStep, exits: list[Exit]) -> None:
    labelled = [each for each in exits if each.label]
    if len(labelled) == len(exits) and not any(each.step.leads(each.label) for each in labelled):
        for each in labelled:
            each.step.lead(each.label, step.id)
        return
    step.needs = list(dict.fromkeys(each.step.id for each in exits))
    if labelled:
        tests = (each.step.test_of(each.label) if each.label else status_test(each.step.id) for each in exits)
        step.when = " or ".join(dict.fromkeys(tests))
