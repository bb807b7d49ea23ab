"""Converts the nodes of a Dify workflow, a function a type. Each gives a step of ours, or raises that it cannot.

What a function notes with `self.note` is a change; an `UnknownValueError` makes the node a stub that is filled by hand.
Nothing here knows how nodes are connected. Choices, containers and questions to people are here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowengine.importers.dify.graph_levels import DifyNode
from flowengine.importers.dify.model_nodes import ModelNodes
from flowengine.importers.dify.request_nodes import RequestNodes
from flowengine.importers.dify.selectors import UnknownValueError, words_of
from flowengine.importers.dify.value_nodes import ValueNodes
from flowengine.importers.flow_text import join_tests, plain_words
from flowengine.importers.form import FlowStep
from flowengine.importers.option_values import whole_number
from flowengine.importers.source_tree import as_map, as_maps


class NodeConverters(ModelNodes, ValueNodes, RequestNodes):
    """The functions by the names of their types, and what they need of the app."""

    def convert(self, place: DifyNode) -> tuple[FlowStep, str]:
        """The step of a node, and why it is a stub; empty where it is none."""
        step = FlowStep(place.id, "function", place.origin)
        self.notes: list[str] = []
        why = f"there is no counterpart to '{place.type}'"
        name = place.type.replace("-", "_") if "_" not in place.type else ""
        converter = getattr(self, f"_do_{name}", None)
        if converter is not None:
            try:
                converter(place, step)
                self._add_retry(place, step)
                if place.data.get("error_strategy") == "default-value":
                    self.note("where it fails, the run fails, and goes on with no default value")
                return step, ""
            except UnknownValueError as error:
                why = str(error)
        self.notes.clear()
        return self.stub(place, why), why

    def _do_if_else(self, place: DifyNode, step: FlowStep) -> None:
        tests = [self._conditions(each, place) for each in self.cases(place)]
        if not tests:
            raise UnknownValueError("cases, of which there are none")
        step.choose(list(zip(self.labels(place).values(), tests, strict=False)))

    def _conditions(self, case: Mapping[str, Any], place: DifyNode) -> str:
        tests = [self.selectors.compare(each, place) for each in as_maps(case.get("conditions"))]
        if not tests:
            raise UnknownValueError("a case without conditions")
        return join_tests(tests, "or" if case.get("logical_operator") == "or" else "and")

    def _do_human_input(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "approval"
        data = place.data
        names = (each.get("output_variable_name") or each.get("variable") for each in as_maps(data.get("inputs")))
        properties: dict[str, Any] = {str(each or ""): {"type": "string"} for each in names}
        content = str(data.get("form_content") or data.get("title") or "")
        content = re.sub(r"\{\{#\$output\.[^#]{1,100}#\}\}", "", content)
        step.keys["message"] = self.text(content, place).strip() or plain_words(place.title)
        if properties:
            step.keys["form"] = {"type": "object", "properties": properties}
        labels = self.labels(place)
        step.keys["routes"] = {label: {} for label in labels.values()} or {"go_on": {}}
        amount, unit = whole_number(data.get("timeout"), 1), str(data.get("timeout_unit") or "hour")[:1]
        if amount is not None and unit in {"h", "d", "m"} and "__timeout" in labels:
            step.keys["expires"] = f"{amount * (24 if unit == 'd' else 1)}{'m' if unit == 'm' else 'h'}"
            step.keys["on_expire"] = labels["__timeout"]
        self.schemas[place.source] = {"properties": properties}

    def _do_iteration(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "map"
        data = place.data
        step.keys["over"] = self.value(words_of(data.get("iterator_selector")), place).with_default("[]")
        step.keys["as"] = self.item_names[place.source]
        amount = whole_number(data.get("parallel_nums"), 1, 10000) or 10
        step.keys["concurrency"] = amount if data.get("is_parallel") else 1
        handling = str(data.get("error_handle_mode") or "terminated")
        if handling == "remove-abnormal-output":
            step.keys["on_item_error"] = "skip"
        elif handling == "continue-on-error":
            step.keys["on_item_error"] = "collect"
            self.note("the place of an item that failed has its error instead of nothing")

    def _do_loop(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "loop"
        data = place.data
        step.keys["max_iterations"] = min(whole_number(data.get("loop_count"), 1) or 10, 10000)
        step.keys["on_exhausted"] = "continue"

    def _do_loop_end(self, place: DifyNode, step: FlowStep) -> None:
        step.give("end")

    def _add_retry(self, place: DifyNode, step: FlowStep) -> None:
        retry = as_map(place.data.get("retry_config"))
        most = whole_number(retry.get("max_retries"), 1)
        if most is None or not retry.get("retry_enabled", retry.get("enabled")):
            return
        if step.kind == "http" and step.keys.get("method") in {"POST", "PATCH"}:
            self.note("a request that changes something is not repeated; `effect: idempotent` allows it")
        elif step.kind not in {"condition", "approval", "map", "loop"}:
            step.keys["retry"] = {
                "attempts": min(most + 1, 100),
                "backoff": "fixed",
                "initial": f"{whole_number(retry.get('retry_interval'), 1) or 100}ms",
            }
