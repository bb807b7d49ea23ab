"""Reads Prompt flow: `flow.dag.yaml` with its Python, its Jinja templates and its data.

- `llm` nodes become agents: the roles of the template are the system message and the prompt, parameters of the call are
  settings, the connection is the environment's. `prompt` nodes give their text. `python` nodes call the function of the
  file that is carried along. Tools of packages are stubs.
- `activate` is `when`; a node whose inputs were all bypassed is skipped by `join: some`, as promptflow bypasses it.
- `aggregation` nodes run in a second flow, over all rows. Each variant but the default stands in a flow of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from flowengine.core import is_json_type, is_map
from flowengine.importers.flow_text import to_tag
from flowengine.importers.form import ImportedFlow, ImportedProject, ImportLedger, SourcePlace
from flowengine.importers.import_names import Names
from flowengine.importers.prompt_flow.dag_code import PromptFlowCode
from flowengine.importers.prompt_flow.dag_nodes import NodeReader, Path
from flowengine.importers.prompt_flow.dag_rows import RowReader, answers_json, find_optional
from flowengine.importers.prompt_flow.dag_values import INPUT_TYPES, read_reference
from flowengine.importers.source_tree import SourceError, SourceTree, as_map

__all__ = ["find", "read"]

_MARK: Final = re.compile(r"^nodes:", re.MULTILINE)
_NODE: Final = re.compile(
    r"^[ \t]*+-?[ \t]*+(type:\s*['\"]?(llm|python|prompt|custom_llm)\b|use_variants:)", re.MULTILINE
)
Placed = tuple[Mapping[str, Any], Path]
"""A node and where it stands."""
_MOST_NODES: Final = 1_000
_MOST_VARIANTS: Final = 20


_KNOWN: Final = frozenset({"type", "is_chat_output"})
"""Keys of outputs that say nothing of what a run does."""


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """YAML files with nodes of promptflow's types."""
    return [
        file
        for file, text in tree.yaml_texts(files)
        if _MARK.search(text) and (_NODE.search(text) or PurePosixPath(file).name == "flow.dag.yaml")
    ]


def read(tree: SourceTree, file: str) -> ImportedProject:
    """One flow with all that it names."""
    return _Reader(tree, file).read()


class _Reader(RowReader):
    """Reads one flow."""

    def read(self) -> ImportedProject:
        self._collect_files()
        self._read_top()
        self.code = PromptFlowCode(self.tree, self.paths)
        self._read_variables()
        nodes_by_name: dict[str, tuple[int, Mapping[str, Any]]] = {}
        for number, node in self._list("nodes"):
            name = str(as_map(node).get("name"))
            if is_map(node) and nodes_by_name.setdefault(name, (number, node))[0] != number:
                what, origin = f"node {name}", self.source.origin("nodes", number)
                self.ledger.note_lost(what, origin, "another node has the same name", "give it another name")
        self.nodes = list(nodes_by_name.values())
        if len(self.nodes) > _MOST_NODES:
            raise SourceError(f"{self.source.file}: the flow has more than {_MOST_NODES:,} nodes")
        self._name_all()
        self._read_variants()
        main = self._flow(self.name, self.ledger, {})
        self.project.flows.insert(0, main)
        self._add_batch(main)
        self._carry_files()
        for key in ("inputs", "outputs"):
            for name, spec in self._maps(key):
                self.ledger.note_unread(key, spec, self.source.origin(key, name), _KNOWN)
        return self.project

    def _name_all(self) -> None:
        names = Names()
        self.ids = {str(node.get("name")): names.id(node.get("name") or "step") for _, node in self.nodes}
        inputs = Names()
        self.inputs = {name: inputs.id(name, "input") for name, _ in self._maps("inputs")}
        self.names = names

    def _read_variants(self) -> None:
        """The default variant of each node, and the flows of all others."""
        self.defaults: dict[str, Placed] = {}
        others: list[tuple[str, str, Placed]] = []
        for name, entry in self._maps("node_variants"):
            table = as_map(entry.get("variants"))
            default = str(entry.get("default_variant_id", next(iter(table), "")))
            for variant, variant_table in table.items():
                node = as_map(variant_table).get("node")
                path = ("node_variants", name, "variants", variant, "node")
                if not is_map(node):
                    what = f"variant {variant} of {name}"
                    self.ledger.note_lost(what, self.source.origin(*path), "it has no node", "")
                elif variant == default:
                    self.defaults[name] = ({"name": name, **node}, path)
                    self.ledger.note_mapped(f"default variant {variant} of {name}", self.source.origin(*path))
                else:
                    others.append((name, variant, ({"name": name, **node}, path)))
        for name, variant, placed in others[:_MOST_VARIANTS]:
            scratch = ImportLedger()
            flow_name = self.flow_names.id(f"{self.name}_{name}_{variant}")
            self.project.flows.append(self._flow(flow_name, scratch, {name: placed}))
            what, origin = f"variant {variant} of {name}", self.source.origin(*placed[1])
            losses = [each for each in scratch.elements if each.outcome == "lost" and each.origin.line >= origin.line]
            if not any(node.get("use_variants") and node.get("name") == name for _, node in self.nodes):
                self.ledger.note_changed(what, origin, f"no node uses it; {flow_name}.yaml is the flow without it")
            elif any(f"node {name}" in each.what for each in losses):
                self.ledger.note_lost(what, origin, losses[0].note, losses[0].by_hand)
            else:
                change = f"it stands in {flow_name}.yaml: compare the two with `flowengine eval`"
                self.ledger.note_changed(what, origin, change)
        for name, variant, (_, path) in others[_MOST_VARIANTS:]:
            what = f"variant {variant} of {name}"
            self.ledger.note_lost(what, self.source.origin(*path), "there are too many", "write its flow")

    def _flow(self, name: str, ledger: ImportLedger, variants: Mapping[str, Placed]) -> ImportedFlow:
        flow = ImportedFlow(name, SourcePlace(self.source.file))
        description = self.data.get("description")
        flow.description = str(description) if description else None
        for key, spec in self._maps("inputs"):
            self._read_input(flow, key, spec, ledger)
        placed_nodes: list[Placed] = []
        for number, node in self.nodes:
            node_name = str(node.get("name"))
            path: Path = ("nodes", number)
            if node.get("use_variants") or node_name in variants:
                default = variants.get(node_name) or self.defaults.get(node_name)
                if default is None:
                    why = "its variants have no default"
                    ledger.note_lost(f"node {node_name}", self.source.origin(*path), why, "write the node")
                    continue
                ledger.note_mapped(f"node {node_name}: use_variants", self.source.origin(*path, "use_variants"))
                extra = {key: value for key, value in node.items() if key not in ("use_variants", "name")}
                node, path = {**extra, **default[0]}, default[1]
            placed_nodes.append((node, path))
        self.aggregated = self._find_aggregated([node for node, _ in placed_nodes])
        self.optional = find_optional([node for node, _ in placed_nodes])
        self.json_nodes = {str(node.get("name")) for node, _ in placed_nodes if answers_json(node)}
        self.sources = {str(node.get("name")) for node, _ in placed_nodes}
        reader = NodeReader(self, ledger)
        self.batch = []
        self.own_outputs = self._own_outputs()
        flow.outputs = dict(self.own_outputs)
        for node, path in placed_nodes:
            is_batch = str(node.get("name")) in self.aggregated
            steps = reader.read(node, path, self._batch_expression if is_batch else self.expression, self.sources)
            (self.batch if is_batch else flow.steps).extend(steps)
        self._tell_outputs(ledger)
        flow.outputs |= self.own_outputs
        return flow

    def _read_input(self, flow: ImportedFlow, key: str, spec: Mapping[str, Any], ledger: ImportLedger) -> None:
        source_type = spec.get("type")
        kind = INPUT_TYPES.get(str(source_type), "object" if str(source_type).endswith("Connection") else "string")
        settings: dict[str, Any] = {"type": kind}
        default = spec.get("default")
        origin = self.source.origin("inputs", key)
        note = ""
        if "default" in spec and kind == "file":
            note = "the default picture is left out: it is given with the run"
        elif default is not None and is_json_type(default, kind):
            settings["default"] = default
        elif "default" in spec:
            changed = _fit(default, kind)
            if changed is not None:
                settings["default"] = changed
        elif spec.get("is_chat_history"):
            settings["default"] = []
        if isinstance(spec.get("description"), str):
            settings["description"] = spec["description"]
        flow.inputs[self.inputs[key]] = settings
        if self.inputs[key] != key:
            note = f"it is called {self.inputs[key]}"
        ledger.note_done(f"input {key}", origin, note)
        for mark in ("is_chat_input", "is_chat_history"):
            if spec.get(mark):
                place = self.source.origin("inputs", key, mark)
                ledger.note_mapped(f"input {key}: {mark}", place, "an input like any other")

    def _own_outputs(self) -> dict[str, str]:
        """The outputs of the flow itself; those of aggregated nodes are none."""
        names = Names()
        self.output_names: dict[str, str] = {}
        outputs: dict[str, str] = {}
        for key, spec in self._maps("outputs"):
            reference = read_reference(spec.get("reference"))
            if reference is not None and reference.source not in self.aggregated and self._is_known(reference):
                self.output_names[key] = names.id(key, "output")
                outputs[self.output_names[key]] = to_tag(self.expression(reference))
        return outputs

    def _tell_outputs(self, ledger: ImportLedger) -> None:
        for key, spec in self._maps("outputs"):
            origin = self.source.origin("outputs", key)
            reference = read_reference(spec.get("reference"))
            what = f"output {key}"
            if reference is None:
                ledger.note_lost(what, origin, f"it refers to {spec.get('reference')!r:.100}", "write the output")
            elif reference.source in self.aggregated:
                ledger.note_changed(what, origin, "it is given by the flow over all rows")
            elif key not in self.output_names:
                ledger.note_lost(what, origin, f"there is no '{reference.source}'", "write the output")
            else:
                name = self.output_names[key]
                ledger.note_done(what, origin, f"it is called {name}" if name != key else "")


def _fit(value: Any, kind: str) -> Any:
    """A default of another type, as promptflow would convert it; None where it cannot be."""
    if kind == "string":
        return "" if value is None else str(value)
    try:
        if kind in ("integer", "number"):
            return (int if kind == "integer" else float)(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if kind == "boolean" and isinstance(value, str):
        return value.lower() == "true"
    empty: dict[str, Any] = {"array": [], "object": {}}
    return empty.get(kind) if value in (None, "") else None
