"""Connects the methods of a CrewAI flow: what starts, listens and routes becomes needs, `when` and loops.

Methods that wait for each other in a circle are a loop, which goes on while its routers say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from flowengine.importers.crew_ai.flow_methods import FlowMethod, FlowParts
from flowengine.importers.flow_text import to_tag
from flowengine.importers.form import FlowStep, SourcePlace, reach_from

_MOST_ROUNDS: Final = 100


class EdgeReader(FlowParts):
    """Connects the nodes of methods."""

    def _connect(self, steps: Mapping[str, FlowStep]) -> None:
        order = list(self.methods)
        circles = _find_circles({name: self._sources(name) for name in order})
        members = {name: number for number, circle in enumerate(circles) for name in circle}
        for number, circle in enumerate(circles):
            entry = min(circle, key=order.index)
            self.loops |= dict.fromkeys(circle, self.names.id(f"until_{entry}_is_done"))
            assert members[entry] == number
        for name in order:
            self._set_triggers(steps[name], self.methods[name], members)
        done: set[int] = set()
        for name in order:
            if name not in members:
                self.flow.steps.append(steps[name])
            elif members[name] not in done:
                done.add(members[name])
                self.flow.steps.append(self._make_loop(circles[members[name]], steps, order))
        sources = {each for name in order for each in self._sources(name)}
        for name in order:
            if name not in sources and name not in members:
                self.flow.outputs[self.ids[name]] = to_tag(f"nodes.{self.ids[name]}.output.result | default(none)")
        if not self.flow.outputs:
            last = self.flow.steps[-1]
            self.flow.outputs["status"] = to_tag(f"nodes.{last.id}.status")

    def _sources(self, name: str) -> list[str]:
        """The methods that a method waits for, also as routers of its labels."""
        sources: list[str] = []
        for each in self.methods[name].waits_for:
            sources += [each] if each in self.methods else self._routers_of(each)
        return sources

    def _routers_of(self, label: str) -> list[str]:
        routers = [each.name for each in self.methods.values() if each.is_router]
        matches = [each for each in routers if label in self.methods[each].labels]
        unsure = [each for each in routers if not self.methods[each].labels]
        return matches or unsure

    def _set_triggers(self, step: FlowStep, method: FlowMethod, members: Mapping[str, int]) -> None:
        terms: list[str] = []
        needs: list[str] = []
        is_all = False
        has_labels = False
        for trigger in method.triggers:
            what = f"{method.name}: {trigger.kind}({', '.join(trigger.names)})"
            place = SourcePlace(self.source.file, trigger.line)
            is_all = is_all or trigger.is_all
            outcome, note = "mapped", ""
            for each in trigger.names:
                sources = [each] if each in self.methods else self._routers_of(each)
                if not sources:
                    outcome, note = "changed", f"nothing says '{each}'"
                for source in sources:
                    if (
                        source in members
                        and members.get(method.name) == members[source]
                        and self._is_back(source, method.name)
                    ):
                        outcome, note = "changed", f"the loop {self.loops[source]} begins another round"
                        continue
                    needs.append(self._node_of(source, method.name, members))
                    if each in self.methods:
                        terms.append(f'nodes.{needs[-1]}.status == "succeeded"')
                    else:
                        has_labels = True
                        terms.append(f"{self._translate_router(source, method.name, members)} == {_quote(each)}")
            if len(trigger.names) > 1 and not trigger.is_all and outcome == "mapped":
                outcome, note = "changed", "it runs once, when all that may lead to it are settled"
            self.ledger.note_done(what, place, note)
        step.needs = list(dict.fromkeys(needs))
        if not needs and not any(each.kind == "start" for each in method.triggers):
            step.when = "false"
        elif has_labels:
            step.when = (" and " if is_all else " or ").join(dict.fromkeys(terms))
        elif is_all and len(step.needs) > 1:
            step.keys["join"] = "all"

    def _is_back(self, source: str, target: str) -> bool:
        order = list(self.methods)
        return order.index(target) <= order.index(source)

    def _node_of(self, source: str, target: str, members: Mapping[str, int]) -> str:
        """The node that stands for a method where another one waits for it."""
        inside = source in members and members.get(target) == members[source]
        return self.ids[source] if inside or source not in members else self.loops[source]

    def _translate_router(self, router: str, target: str, members: Mapping[str, int]) -> str:
        """Returns a router's result as an expression."""
        if router in members and members.get(target) != members[router]:
            return f"shared_state.{self._route_key(router)}"
        return f"nodes.{self.ids[router]}.output.result"

    def _route_key(self, router: str) -> str:
        key = f"route_of_{self.ids[router]}"
        self.flow.shared_state.setdefault(key, {"default": "", "merge": "replace"})
        return key

    def _make_loop(self, circle: Sequence[str], steps: Mapping[str, FlowStep], order: Sequence[str]) -> FlowStep:
        loop = FlowStep(self.loops[circle[0]], "loop", steps[circle[0]].origin)
        body = [steps[name] for name in order if name in circle]
        again: list[str] = []
        for name in circle:
            for each in self.methods[name].waits_for:
                routers = [] if each in self.methods else self._routers_of(each)
                back = [one for one in routers if one in circle and self._is_back(one, name)]
                again += [f"nodes.{self.ids[one]}.output.result != {_quote(each)}" for one in back]
        for name in circle:
            key = f"route_of_{self.ids[name]}"
            if key in self.flow.shared_state:
                steps[name].keys.setdefault("set", {})[key] = "{{ output.result }}"
        outer = {each for step in body for each in step.needs} - {each.id for each in body}
        for step in body:
            step.needs = [each for each in step.needs if each not in outer]
        loop.needs = sorted(outer)
        entry = body[0]
        if outer and entry.when:
            loop.when, entry.when = entry.when, None
        loop.body = body
        loop.keys = {"max_iterations": _MOST_ROUNDS, "until": " and ".join(dict.fromkeys(again)) or "true"}
        for step in body:
            if step.sample is not None and again:
                step.sample = {**step.sample, "result": self._last_word(circle)}
        return loop

    def _last_word(self, circle: Sequence[str]) -> str:
        """A label that ends the loop, for the flow test."""
        inner = {each for name in circle for each in self.methods[name].waits_for}
        labels = [each for name in circle for each in self.methods[name].labels]
        return next((each for each in labels if each not in inner), "done")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _find_circles(sources: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The methods that lead to themselves, in groups."""
    reach = {name: reach_from(sources[name], lambda at: sources.get(at, ())) for name in sources}
    groups: list[list[str]] = []
    for name in sources:
        if name in reach[name] and not any(name in group for group in groups):
            groups.append([each for each in sources if each in reach[name] and name in reach[each]])
    return groups
