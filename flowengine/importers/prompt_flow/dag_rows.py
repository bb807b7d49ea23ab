"""Tells what a reference of a Prompt flow is in the flow of one row, and makes the flow over all rows.

Nodes with `aggregation`, and those that read what they give, stand in the second one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowengine.core import is_map
from flowengine.importers.flow_text import quote, quote_value, to_tag
from flowengine.importers.form import FlowStep, ImportedFlow
from flowengine.importers.prompt_flow.dag_source import PromptFlowSource
from flowengine.importers.prompt_flow.dag_values import NodeReference, is_json_format, read_reference
from flowengine.importers.source_tree import as_map


class RowReader(PromptFlowSource):
    """Reads references, and the nodes that see all rows."""

    ids: dict[str, str]
    """Node → its id here."""
    inputs: dict[str, str]
    """Input → its name here."""

    # Of the flow that is being made:
    sources: set[str]
    optional: frozenset[str]
    aggregated: frozenset[str]
    json_nodes: set[str]
    batch: list[FlowStep]
    own_outputs: dict[str, str]
    """The outputs of a row's flow: its own, and those that the nodes over all rows take."""

    def _is_known(self, reference: NodeReference) -> bool:
        if reference.source == "inputs":
            return bool(reference.steps) and str(reference.steps[0]) in self.inputs
        return reference.source in self.sources

    def expression(self, reference: NodeReference) -> str:
        """Translates a reference for the flow of one row."""
        if reference.source == "inputs":
            first, *rest = reference.steps or ("",)
            name = self.inputs.get(str(first), "")
            return NodeReference("inputs", tuple(rest)).text(f"inputs.{name}") if name else "none"
        if reference.source not in self.sources:
            return "none"
        text = reference.text(f"nodes.{self.ids[reference.source]}.output")
        is_optional = reference.source in self.optional
        if reference.source in self.json_nodes and not reference.steps:
            return f"({text} | tojson if {text} is defined else none)" if is_optional else f"{text} | tojson"
        return f"{text} | default(none)" if is_optional else text

    def _find_aggregated(self, nodes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """The nodes that see all rows, and those that read what they give."""
        names = {str(node.get("name")) for node in nodes if node.get("aggregation") or node.get("reduce")}
        return _spread(names, nodes, lambda sources, names: bool(sources & names))

    def _batch_expression(self, reference: NodeReference) -> str:
        """Translates a reference for the flow over all rows."""
        if reference.source in self.aggregated:
            return reference.text(f"nodes.{self.ids[reference.source]}.output")
        if reference.source == "inputs":
            first, *rest = reference.steps
            attribute = ".".join([self.inputs.get(str(first), "x"), *map(str, rest)])
            return f"inputs.rows | map(attribute={quote(attribute)}) | list"
        if reference.source not in self.sources:
            return "none"
        return f'nodes.rows.output | map(attribute="{self._take(reference)}") | list'

    def _take(self, reference: NodeReference) -> str:
        """The output of a row's flow that gives a value; a new one where none of this name does."""
        text = to_tag(self.expression(reference))
        parts = (self.ids[reference.source], *reference.steps)
        base = "_".join(re.sub(r"\W", "_", str(each), flags=re.ASCII).lower() for each in parts)
        name, number = base, 1
        while self.own_outputs.get(name, text) != text:
            number += 1
            name = f"{base}_{number}"
        self.own_outputs[name] = text
        return name

    def _add_batch(self, main: ImportedFlow) -> None:
        if not self.batch:
            return
        flow = ImportedFlow(self.flow_names.id(f"{self.name}_batch"), main.origin)
        flow.description = f"All rows of {main.name}, and what is computed of them together."
        flow.inputs = {"rows": {"type": "array", "description": f"One object a row: the inputs of {main.name}."}}
        flow.samples = {"rows": [{name: _sample(spec) for name, spec in main.inputs.items()}]}
        arguments = {
            name: to_tag(f"row.{name} | default({quote_value(spec['default'])})")
            if "default" in spec
            else to_tag(f"row.{name}")
            for name, spec in main.inputs.items()
        }
        if main.steps:
            one = FlowStep("one", "subflow", main.origin, arguments=arguments, keys={"flow": f"./{main.name}.yaml"})
            keys = {"over": "inputs.rows", "as": "row"}
            flow.steps.append(FlowStep("rows", "map", main.origin, keys=keys, body=[one]))
        flow.steps += self.batch
        flow.outputs = {each.id: to_tag(f"nodes.{each.id}.output") for each in self.batch}
        self.project.flows.append(flow)


def answers_json(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "llm" and is_json_format(as_map(node.get("inputs")).get("response_format"))


def _references(node: Mapping[str, Any]) -> list[NodeReference]:
    values = [*as_map(node.get("inputs")).values(), as_map(node.get("activate")).get("when")]
    return [reference for each in values if (reference := read_reference(each)) is not None]


def find_optional(nodes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The nodes that may be bypassed: by their own condition, or since all that they read was."""
    names = {str(node.get("name")) for node in nodes if is_map(node.get("activate"))}
    return _spread(names, nodes, lambda sources, names: bool(sources) and sources <= names)


def _spread(
    names: set[str], nodes: Sequence[Mapping[str, Any]], holds: Callable[[set[str], set[str]], bool]
) -> frozenset[str]:
    """The nodes found, and all others of which the same holds, by what they read of other nodes."""
    read = [(str(node.get("name")), {each.source for each in _references(node)} - {"inputs"}) for node in nodes]
    while more := {name for name, sources in read if holds(sources, names)} - names:
        names = names | more
    return frozenset(names)


def _sample(spec: Mapping[str, Any]) -> Any:
    if "default" in spec:
        return spec["default"]
    values: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": ["sample"], "object": {}}
    return values.get(str(spec.get("type")), "sample")
