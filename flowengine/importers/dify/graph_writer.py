"""Writes the levels of a graph of Dify as steps: each node's step, under which conditions it runs, what a run gives."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from flowengine.importers.dify.app_parts import EMPTY, state_type
from flowengine.importers.dify.graph_levels import DifyNode, GraphEdge
from flowengine.importers.dify.known_keys import KNOWN_OF_NODE
from flowengine.importers.dify.node_converters import NodeConverters
from flowengine.importers.dify.selectors import UnknownValueError, Value, escape_values, words_of
from flowengine.importers.flow_text import join_tests, plain_words, status_test, to_tag
from flowengine.importers.form import FlowStep, ImportLedger
from flowengine.importers.import_names import FieldNames
from flowengine.importers.source_tree import as_maps

_CHOICES: Final = frozenset({"condition", "routing", "approval"})


class GraphWriter:
    """Writes the levels of a graph as steps."""

    def __init__(self, parts: NodeConverters, ledger: ImportLedger) -> None:
        self._parts = parts
        self._graph = parts.graph
        self._ledger = ledger
        self._steps: dict[str, FlowStep] = {}
        self._reports: dict[str, tuple[list[str], str, str]] = {}
        """Node → changes, why it is lost, what is to do by hand."""
        self._forks: Counter[tuple[str, str]] = Counter()
        """Node and label → how many nodes it leads to."""
        self._starts: dict[str, FlowStep] = {}
        """Loop → the step that sets its variables."""

    def write(self) -> None:
        graph, parts = self._graph, self._parts
        for place in graph.places.values():
            if not place.is_start and place.type != "end" and graph.runs(place) and self._parent_runs(place):
                place.id = parts.names.id(_name_of(place), "node")
        edges = (each for every in graph.targets.values() for each in every)
        self._forks = Counter((each.source, each.handle) for each in edges if graph.places[each.target].id)
        for place in graph.places.values():
            if place.type == "iteration" and place.id:
                parts.item_names[place.source] = parts.names.id(f"{place.id}_item")
            if place.type == "loop" and place.id:
                self._declare_loop(place)
        parts.flow.steps = self._level(None)
        self._write_outputs()
        for place in graph.places.values():
            self._tell(place)
        if not parts.flow.steps:
            parts.flow.steps.append(FlowStep(parts.names.id("done")).give("done"))

    def _parent_runs(self, place: DifyNode) -> bool:
        return all(self._graph.runs(self._graph.places[each]) for each in self._graph.containers_of(place))

    def _level(self, parent: str | None) -> list[FlowStep]:
        steps: list[FlowStep] = []
        places = [each for each in self._graph.level(parent) if each.id]
        for place in places:
            self._parts.by_hand = ""
            step, why = self._parts.convert(place)
            self._steps[place.source] = step
            step.origin = place.origin
            if (title := plain_words(place.title, 120)) and title != place.id and title != place.source:
                step.keys["description"] = title
            self._reports[place.source] = (list(self._parts.notes), why, self._parts.by_hand)
            if place.type in {"iteration", "loop"} and not why:
                step.body = self._level(place.source)
                steps += self._finish_container(place, step)
            steps.append(step)
        for place in places:
            self._connect(place, self._steps[place.source])
        return steps

    # --- Containers

    def _finish_container(self, place: DifyNode, step: FlowStep) -> list[FlowStep]:
        """Adds what a container needs beside its body; returns the steps before it."""
        inside = [each for each in self._graph.level(place.source) if each.id]
        notes, _, by_hand = self._reports[place.source]
        if not step.body:
            step.body.append(FlowStep(self._parts.names.id(f"{place.id}_step")).give("done"))
        if place.type == "iteration":
            self._finish_iteration(place, step, inside, notes)
            return []
        tests: list[str] = []
        for each in as_maps(place.data.get("break_conditions")):
            end = inside[-1] if inside else place
            try:
                tests.append(self._parts.selectors.compare(each, end))
            except UnknownValueError as error:
                notes.append(f"a condition to end the loop is left out: {error}")
        word = "or" if place.data.get("logical_operator") == "or" else "and"
        conditions = [join_tests(tests, word)] if tests else []
        conditions += [status_test(each.id) for each in inside if each.type == "loop-end"]
        if conditions:
            step.keys["until"] = join_tests(conditions)
        self._reports[place.source] = (notes, "", by_hand)
        return self._start_loop(place, step)

    def _finish_iteration(self, place: DifyNode, step: FlowStep, inside: list[DifyNode], notes: list[str]) -> None:
        selector = words_of(place.data.get("output_selector"))
        end = DifyNode("\0end", "end", {}, place.origin, place.source)
        end.edges = [GraphEdge(each.source, end.source, "", place.origin) for each in inside]
        try:
            inner = self._graph.places.get(selector[0]) if selector else None
            if inner is None or inner.parent != place.source or not inner.id:
                raise UnknownValueError("what each item gives")
            value = self._parts.outputs(inner, selector[1:])
            if not self._graph.is_certain(inner):
                value = value._replace(absent_without=inner.id)
            step.keys["result"] = value.printed
        except (UnknownValueError, IndexError):
            notes.append("each item gives nothing, since the output of the iteration is not known")
            step.keys["result"] = ""

    def _declare_loop(self, place: DifyNode) -> None:
        for each in as_maps(place.data.get("loop_variables")):
            name, kind = str(each.get("label") or each.get("variable") or ""), str(each.get("var_type") or "string")
            key = self._parts.names.id(f"{place.id}_{name}")
            self._parts.flow.shared_state[key] = {
                "type": state_type(kind),
                "merge": "replace",
            }
            self._parts.loop_states[place.source, name] = key

    def _start_loop(self, place: DifyNode, step: FlowStep) -> list[FlowStep]:
        """The step that sets a loop's variables."""
        values: dict[str, Any] = {}
        for each in as_maps(place.data.get("loop_variables")):
            key = self._parts.loop_states[place.source, str(each.get("label") or each.get("variable") or "")]
            raw = each.get("value")
            if each.get("value_type") == "variable":
                values[key] = self._parts.to_template(words_of(raw), place)
            else:
                values[key] = _constant(raw, str(self._parts.flow.shared_state[key]["type"]))
        if not values:
            return []
        first = FlowStep(self._parts.names.id(f"{place.id}_start"), origin=place.origin).give(values)
        first.keys["set"] = {key: to_tag(f"output.{key}") for key in values}
        self._starts[place.source] = first
        return [first]

    # --- Edges

    def _connect(self, place: DifyNode, step: FlowStep) -> None:
        """Say under which conditions a node runs."""
        entry = self._starts.get(place.source, step)
        if entry is not step:
            step.needs = [entry.id]
        live = [each for each in place.edges if self._runs(each.source)]
        if not live or any(self._graph.places[each.source].is_start for each in live):
            return
        references = {self._graph.places[each].id for each in self._parts.selectors.references.get(place.source, ())}
        routes = [each for each in live if each.handle]
        plain = [each for each in live if not each.handle]
        if not plain and all(self._is_only_target(each) for each in routes):
            for each in routes:
                self._lead(each, entry.id)
            return
        sources = list(dict.fromkeys(self._graph.places[each.source].id for each in live))
        entry.needs = [*entry.needs, *(each for each in sources if entry is not step or each not in references)]
        if routes or (not self._graph.is_certain(place) and references - set(sources)):
            tests = list(dict.fromkeys(self._edge_condition(each) for each in live))
            bracketed = [f"({each})" if " or " in each and len(tests) > 1 else each for each in tests]
            entry.when = " or ".join(bracketed)

    def _runs(self, source: str) -> bool:
        place = self._graph.places[source]
        return self._graph.runs(place) and (place.is_start or bool(place.id))

    def _is_only_target(self, edge: GraphEdge) -> bool:
        return self._forks[edge.source, edge.handle] == 1 and self._graph.places[edge.target].type != "end"

    def _lead(self, edge: GraphEdge, target: str) -> None:
        """Make a label of a node lead to a target."""
        place = self._graph.places[edge.source]
        step = self._steps[edge.source]
        label = self._parts.labels(place).get(edge.handle)
        if step.kind in _CHOICES and label is not None:
            step.lead(label, target)
        elif edge.handle == "fail-branch":
            step.keys["on_error"] = {"then": target}

    def _edge_condition(self, edge: GraphEdge) -> str:
        """The expression that says whether an edge was taken."""
        place = self._graph.places[edge.source]
        label = self._parts.labels(place).get(edge.handle) if edge.handle else None
        step = self._steps[edge.source]
        if label is not None and step.kind in _CHOICES:
            return step.test_of(label)
        if edge.handle == "fail-branch":
            step.keys.setdefault("on_error", "skip")
        return status_test(place.id, "!=" if edge.handle == "fail-branch" else "==")

    # --- What a run gives

    def _write_outputs(self) -> None:
        graph, flow, parts = self._graph, self._parts.flow, self._parts
        answers = [each for each in graph.level(None) if each.type == "answer" and each.id]
        if answers:
            values = [Value(f"nodes.{each.id}.output", None if graph.is_certain(each) else each.id) for each in answers]
            flow.outputs["answer"] = "".join(each.printed for each in values)
        ends = [each for each in graph.level(None) if each.type == "end"]
        rows_by_id: dict[str, list[tuple[str, str]]] = {}
        outputs = FieldNames()
        ids: dict[str, str] = {}
        for place in ends:
            parts.notes = []
            edges = [each for each in place.edges if self._runs(each.source)]
            tests = [self._edge_condition(each) for each in edges if not graph.places[each.source].is_start]
            condition = " or ".join(dict.fromkeys(tests))
            for each in as_maps(place.data.get("outputs")):
                name = str(each.get("variable") or "")
                try:
                    value = parts.selectors.find(words_of(each.get("value_selector")), place)
                except UnknownValueError as error:
                    parts.note(f"the output '{name[:40]}' is left out: {error}")
                    continue
                origin = graph.places.get(words_of(each.get("value_selector"))[0])
                if len(ends) == 1 and origin is not None and origin.id and not graph.is_certain(origin):
                    value = value._replace(absent_without=origin.id)  # The end may not be reached.
                ids.setdefault(name, outputs.id(name, "output"))
                if ids[name] != name:
                    parts.note(f"the output '{name[:40]}' is called `{ids[name]}`")
                rows_by_id.setdefault(ids[name], []).append((value.with_default(), condition))
            self._reports[place.source] = (parts.notes, "", "")
        for id, rows in rows_by_id.items():
            if len(rows) == 1 and (len(ends) == 1 or not rows[0][1]):
                flow.outputs[id] = to_tag(rows[0][0])
            else:
                text = "none"
                for expression, condition in reversed(rows):
                    text = f"{expression} if {condition or 'true'} else {text if text == 'none' else f'({text})'}"
                flow.outputs[id] = to_tag(text)

    def _tell(self, place: DifyNode) -> None:
        ledger = self._ledger
        what = f"{place.type or 'node'} '{plain_words(place.title, 60)}'"
        if place.is_start:
            if place.type.startswith("trigger-"):
                by_hand = "use a webhook or a schedule of the project file"
                ledger.note_lost(what, place.origin, "a trigger starts a run", by_hand)
            elif place.type == "start":
                ledger.note_unread("start", place.data, place.origin, KNOWN_OF_NODE)
                ledger.note_mapped(what, place.origin, "the inputs of the flow")
            return
        if (not place.id and place.type != "end") or not self._graph.runs(place):
            by_hand = "lead to its step, which is to be written, unless it was left over"
            ledger.note_lost(what, place.origin, "left out, since nothing leads to it", by_hand)
            return
        notes, why, by_hand = self._reports.get(place.source, ([], "", ""))
        if not why:
            ledger.note_unread(place.type, place.data, place.origin, KNOWN_OF_NODE)
        if place.type == "answer" and place.parent is not None:
            notes = [*notes, "its text is the step's output, and no part of the answer while the iteration is at work"]
        if why:
            why = why if why.startswith("there is") else f"it needs {why}"
            ledger.note_lost(what, place.origin, why, f"write the function of the step `{place.id}` in stubs.py")
        else:
            note = f"the step `{place.id}`" if place.id else "outputs of the flow"
            ledger.note_done(what, place.origin, "; ".join(notes), by_hand, note)


def _constant(raw: Any, kind: str) -> Any:
    """A constant of a loop's variable, which the editor may have written as text."""
    if isinstance(raw, str) and kind != "string":
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raw = None
    return escape_values(raw) if raw is not None else EMPTY.get(kind, "")


def _name_of(place: DifyNode) -> str:
    """Returns a node's name: its title, or its type if the title has few ASCII letters."""
    title = str(place.data.get("title") or "")
    letters = [each for each in title if each.isalpha()]
    is_readable = bool(letters) and sum(each.isascii() for each in letters) * 2 >= len(letters)
    return title if is_readable else place.type.replace("-", "_") or "node"
