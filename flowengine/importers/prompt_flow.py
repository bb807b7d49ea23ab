"""Reads Prompt flow: `flow.dag.yaml` with its Python, its Jinja templates and its data.

- `llm` nodes become agents: the roles of the template are the system message and the prompt, parameters of the call are
  settings, the connection is the environment's. `prompt` nodes give their text. `python` nodes call the function of the
  file that is carried along. Tools of packages are stubs.
- `activate` is `when`; a node whose inputs were all bypassed is skipped by `join: some`, as promptflow bypasses it.
- `aggregation` nodes run in a second flow, over all rows. Each variant but the default stands in a flow of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, cast

from flowengine.core.flow_paths import is_withheld
from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.shapes import is_map
from flowengine.importers.form import (
    CarriedFile,
    FlowStep,
    ImportedFlow,
    ImportedProject,
    ImportLedger,
    Names,
    SourcePlace,
)
from flowengine.importers.prompt_flow_code import PARTS, PromptFlowCode
from flowengine.importers.prompt_flow_nodes import NodeReader
from flowengine.importers.prompt_flow_values import INPUT_TYPES, NodeReference, is_json_format, read_reference
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource

__all__ = ["find", "read"]

_MARK: Final = re.compile(r"^nodes:", re.MULTILINE)
_NODE: Final = re.compile(
    r"^[ \t]*+-?[ \t]*+(type:\s*['\"]?(llm|python|prompt|custom_llm)\b|use_variants:)", re.MULTILINE
)
_MAX_CARRIED: Final = 10_000_000
_MOST_CARRIED: Final = 300
_MOST_NODES: Final = 1_000
_MOST_VARIANTS: Final = 20
_LEFT: Final = frozenset({"flow.tools.json", "requirements.txt"})
_NOTES: Final = {
    "$schema": "the file has a schema of its own",
    "name": "the name of the flow",
    "display_name": "a name for people",
    "description": "the description",
    "id": "an id of the service",
    "tags": "labels of the service",
    "type": "which sort of flow it is",
    "language": "the code is Python",
    "inputs": "",
    "outputs": "",
    "nodes": "",
    "node_variants": "",
    "path": "",
    "version": "",
}


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """YAML files with nodes of promptflow's types."""
    found: list[str] = []
    for each in files:
        if not each.endswith((".yaml", ".yml")):
            continue
        try:
            text = tree.read_text(each)
        except SourceError:
            continue
        if _MARK.search(text) and (_NODE.search(text) or PurePosixPath(each).name == "flow.dag.yaml"):
            found.append(each)
    return found


def read(tree: SourceTree, file: str) -> ImportedProject:
    """One flow with all that it names."""
    return _Reader(tree, file).read()


class _Reader:
    def __init__(self, tree: SourceTree, file: str) -> None:
        self.tree = tree
        self.source: YamlSource = tree.read_yaml(file)
        if not is_map(self.source.data):
            raise DefinitionError(f"{file}:1: a flow is a map with inputs, outputs and nodes")
        self.data: Mapping[str, Any] = self.source.data
        self.base = PurePosixPath(file).parent.as_posix()
        self.ledger = ImportLedger()
        self.project = ImportedProject("Prompt flow", self.ledger)
        self.paths: dict[str, str] = {}
        """Path in the flow's folder → path in the tree."""

    def read(self) -> ImportedProject:
        self._collect_files()
        self._read_top()
        self.code = PromptFlowCode(self.tree, self.paths)
        self._read_variables()
        self.nodes = [each for each in self._list("nodes") if is_map(each[1])]
        if len(self.nodes) > _MOST_NODES:
            raise SourceError(f"{self.source.file}: the flow has more than {_MOST_NODES:,} nodes")
        self._name_all()
        self._read_variants()
        main = self._flow(self.name, self.ledger, {})
        self.project.flows.insert(0, main)
        self._add_batch(main)
        self._carry_files()
        return self.project

    # --- Files

    def _collect_files(self) -> None:
        below = self.base
        for each in self.tree.files(below):
            name = PurePosixPath(each).relative_to(below).as_posix() if below != "." else each
            if each != self.source.file:
                self.paths[name] = each
        for number, include in self._list("additional_includes"):
            origin = self.source.origin("additional_includes", number)
            what = f"additional include {str(include)[:100]}"
            try:
                path = self.tree.join(self.base, str(include))
                found = [path] if self.tree.has(path) else list(self.tree.files(path))
                if not found:
                    raise SourceError("there is nothing at that path")
                for each in found:
                    name = PurePosixPath(each).relative_to(PurePosixPath(path).parent).as_posix()
                    self.paths.setdefault(name, each)
                self.ledger.mapped(what, origin, "it is copied to where the flow sees it")
            except (SourceError, OSError) as error:
                self.ledger.lost(what, origin, str(error), "run the import with --root and the folder that holds it")

    def _carry_files(self) -> None:
        code = list(self.code.files())
        known = {each.path for each in code}
        self.project.files += code
        total = 0
        for name, path in self.paths.items():
            suffix = PurePosixPath(name).suffix.lower()
            if suffix == ".py":
                if name in known or name.replace("-", "_") in known:
                    self.ledger.kept(f"file {name}", SourcePlace(path), "code")
                continue
            if (
                suffix in (".jinja2", ".jinja")
                or PurePosixPath(name).name in _LEFT
                or any(map(is_withheld, PurePosixPath(name).parts))
            ):
                continue
            if suffix in (".yaml", ".yml") and "/" not in name:
                continue  # A flow file stands there; runs of promptflow are described by files like that.
            try:
                data = self.tree.read(path, _MAX_CARRIED)
            except SourceError:
                continue
            total += 1
            if total > _MOST_CARRIED:
                break
            self.project.files.append(CarriedFile(name, data))
            self.ledger.kept(f"file {name}", SourcePlace(path))
        self.project.files += [CarriedFile(name, text) for name, text in self._templates.items()]

    # --- The top of the file

    def _read_top(self) -> None:
        folder = PurePosixPath(self.tree.root.name if self.base == "." else self.base).name
        names = Names()
        self.name = names.id(self.data.get("name") or folder, "flow")
        self.flow_names = names
        self._templates: dict[str, str] = {}
        for key in self.data:
            origin = self.source.origin(key)
            if key == "environment":
                self._read_environment()
            elif key == "environment_variables":
                continue
            elif key in _NOTES:
                if _NOTES[key]:
                    self.ledger.mapped(key, origin, _NOTES[key])
            elif key not in ("additional_includes", "message_format"):
                self.ledger.lost(key, origin, "this key is not known", "see whether the flow needs it")
            elif key == "message_format":
                self.ledger.changed(key, origin, "messages are texts, and files are inputs of the type file")

    def _read_environment(self) -> None:
        environment = self.data.get("environment")
        table: Mapping[str, Any] = environment if is_map(environment) else {}
        for key, value in table.items():
            origin = self.source.origin("environment", key)
            if key == "python_requirements_txt" and isinstance(value, str):
                try:
                    path = self.tree.join(self.base, value)
                    text = self.tree.read_text(path)
                    kept = [each for each in text.splitlines() if not each.strip().startswith("promptflow")]
                    self.project.files.append(CarriedFile("requirements.txt", "\n".join([*kept, ""])))
                    self.ledger.changed("requirements", origin, "requirements.txt without promptflow's own packages")
                except SourceError as error:
                    self.ledger.lost("requirements", origin, str(error), "write a requirements.txt")
            else:
                self.ledger.changed(f"environment {key}", origin, "the machine that runs the flow has its own image")

    def _read_variables(self) -> None:
        variables = self.data.get("environment_variables")
        for key, value in (variables if is_map(variables) else {}).items():
            origin = self.source.origin("environment_variables", key)
            what = f"environment variable {key}"
            if isinstance(value, str | int | float) and "${" not in str(value) and self.code.uses_parts:
                self.code.variables[key] = str(value)
                self.ledger.changed(what, origin, f"{PARTS}.py sets it where nothing else does")
            elif isinstance(value, str) and re.fullmatch(r"\$\{[^{}]{1,200}\}", value):
                self.project.environment[key] = f"the code reads it; it was {value[2:-1]}, a value of a connection"
                self.ledger.changed(what, origin, "a value of a connection, which the environment has", f"set {key}")
            else:
                self.project.environment[key] = "the code reads it"
                self.ledger.lost(what, origin, "it has no value that can stand in a file", f"set {key} before the run")

    def _list(self, key: str) -> list[tuple[int, Any]]:
        found = self.data.get(key)
        return list(enumerate(cast("list[Any]", found))) if isinstance(found, list) else []

    def _maps(self, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        found = self.data.get(key)
        for name, each in (found if is_map(found) else {}).items():
            yield name, each if is_map(each) else {}

    # --- Names and variants

    def _name_all(self) -> None:
        names = Names()
        self.ids: dict[str, str] = {}
        for _, node in self.nodes:
            self.ids[str(node.get("name"))] = names.id(node.get("name") or "step")
        inputs = Names()
        self.inputs = {name: inputs.id(name, "input") for name, _ in self._maps("inputs")}
        self.names = names

    def _read_variants(self) -> None:
        """The default variant of each node, and the flows of all others."""
        self.defaults: dict[str, tuple[Mapping[str, Any], tuple[str | int, ...]]] = {}
        others: list[tuple[str, str, Mapping[str, Any], tuple[str | int, ...]]] = []
        for name, entry in self._maps("node_variants"):
            variants = entry.get("variants")
            table: Mapping[str, Any] = variants if is_map(variants) else {}
            default = str(entry.get("default_variant_id", next(iter(table), "")))
            for variant, held in table.items():
                node = held.get("node") if is_map(held) else None
                path = ("node_variants", name, "variants", variant, "node")
                if not is_map(node):
                    self.ledger.lost(f"variant {variant} of {name}", self.source.origin(*path), "it has no node", "")
                elif variant == default:
                    self.defaults[name] = ({"name": name, **node}, path)
                    self.ledger.mapped(f"default variant {variant} of {name}", self.source.origin(*path))
                else:
                    others.append((name, variant, {"name": name, **node}, path))
        for name, variant, node, path in others[:_MOST_VARIANTS]:
            scratch = ImportLedger()
            flow_name = self.flow_names.id(f"{self.name}_{name}_{variant}")
            flow = self._flow(flow_name, scratch, {name: (node, path)})
            self.project.flows.append(flow)
            origin = self.source.origin(*path)
            what = f"variant {variant} of {name}"
            lost = [each for each in scratch.elements if each.outcome == "lost" and each.origin.line >= origin.line]
            in_use = name in self.ids and any(
                node.get("use_variants") for _, node in self.nodes if node.get("name") == name
            )
            if not in_use:
                self.ledger.changed(what, origin, f"no node uses it; {flow_name}.yaml is the flow without it")
            elif lost and any(f"node {name}" in each.what for each in lost):
                self.ledger.lost(what, origin, lost[0].note, lost[0].by_hand)
            else:
                self.ledger.changed(
                    what, origin, f"it stands in {flow_name}.yaml: compare the two with `flowengine eval`"
                )
        for name, variant, _, path in others[_MOST_VARIANTS:]:
            self.ledger.lost(
                f"variant {variant} of {name}", self.source.origin(*path), "there are too many", "write its flow"
            )

    # --- The flow

    def _flow(
        self, name: str, ledger: ImportLedger, chosen: Mapping[str, tuple[Mapping[str, Any], tuple[str | int, ...]]]
    ) -> ImportedFlow:
        flow = ImportedFlow(name, SourcePlace(self.source.file))
        description = self.data.get("description")
        flow.description = str(description) if description else None
        for key, spec in self._maps("inputs"):
            self._read_input(flow, key, spec, ledger)
        found: list[tuple[Mapping[str, Any], tuple[str | int, ...]]] = []
        for number, node in self.nodes:
            node_name = str(node.get("name"))
            path: tuple[str | int, ...] = ("nodes", number)
            if node.get("use_variants") or node_name in chosen:
                default = chosen.get(node_name) or self.defaults.get(node_name)
                if default is None:
                    ledger.lost(
                        f"node {node_name}", self.source.origin(*path), "its variants have no default", "write the node"
                    )
                    continue
                ledger.mapped(f"node {node_name}: use_variants", self.source.origin(*path, "use_variants"))
                extra = {key: value for key, value in node.items() if key not in ("use_variants", "name")}
                node, path = {**extra, **default[0]}, default[1]
            found.append((node, path))
        self.aggregated = self._find_aggregated([node for node, _ in found])
        self.optional = _find_optional([node for node, _ in found])
        self.json_nodes = {str(node.get("name")) for node, _ in found if _answers_json(node)}
        self.known = {str(node.get("name")) for node, _ in found}
        reader = NodeReader(
            self.tree,
            self.source,
            ledger,
            self.project,
            self.code,
            self.paths,
            self.base,
            self.ids,
            self._templates,
            self.names,
        )
        self.batch: list[FlowStep] = []
        self.taken: dict[str, str] = {}
        for node, path in found:
            is_batch = str(node.get("name")) in self.aggregated
            steps = reader.read(node, path, self._batch_expression if is_batch else self.expression, self.known)
            (self.batch if is_batch else flow.steps).extend(steps)
        self._read_outputs(flow, ledger)
        for output, text in self.taken.items():
            flow.outputs.setdefault(output, text)
        return flow

    def _read_input(self, flow: ImportedFlow, key: str, spec: Mapping[str, Any], ledger: ImportLedger) -> None:
        given = spec.get("type")
        kind = INPUT_TYPES.get(
            str(given), None if given is None else "object" if str(given).endswith("Connection") else "string"
        )
        held: dict[str, Any] = {} if kind is None else {"type": kind}
        if given is None:
            held["type"] = "string"
        default = spec.get("default")
        origin = self.source.origin("inputs", key)
        note = ""
        if "default" in spec and kind == "file":
            note = "the default picture is left out: it is given with the run"
        elif default is not None and _fits(default, str(held["type"])):
            held["default"] = default
        elif default is not None or ("default" in spec and spec.get("default") is None):
            changed = _fit(default, str(held["type"]))
            if changed is not None:
                held["default"] = changed
        elif spec.get("is_chat_history"):
            held["default"] = []
        if isinstance(spec.get("description"), str):
            held["description"] = spec["description"]
        flow.inputs[self.inputs[key]] = held
        if self.inputs[key] != key:
            note = f"it is called {self.inputs[key]}"
        (ledger.changed if note else ledger.mapped)(f"input {key}", origin, note)
        for mark in ("is_chat_input", "is_chat_history"):
            if spec.get(mark):
                ledger.mapped(
                    f"input {key}: {mark}", self.source.origin("inputs", key, mark), "an input like any other"
                )

    def _read_outputs(self, flow: ImportedFlow, ledger: ImportLedger) -> None:
        names = Names()
        for key, spec in self._maps("outputs"):
            origin = self.source.origin("outputs", key)
            reference = read_reference(spec.get("reference"))
            what = f"output {key}"
            if reference is None:
                ledger.lost(what, origin, f"it refers to {spec.get('reference')!r:.100}", "write the output")
                continue
            if reference.source in self.aggregated:
                ledger.changed(what, origin, "it is given by the flow over all rows")
                continue
            if not self._is_known(reference):
                ledger.lost(what, origin, f"there is no '{reference.source}'", "write the output")
                continue
            name = names.id(key, "output")
            flow.outputs[name] = f"{{{{ {self.expression(reference)} }}}}"
            (ledger.changed if name != key else ledger.mapped)(
                what, origin, f"it is called {name}" if name != key else ""
            )

    def _is_known(self, reference: NodeReference) -> bool:
        if reference.source == "inputs":
            return bool(reference.steps) and str(reference.steps[0]) in self.inputs
        return reference.source in self.known

    def expression(self, reference: NodeReference) -> str:
        """What a reference is in the flow of one row."""
        if reference.source == "inputs":
            first, *rest = reference.steps or ("",)
            name = self.inputs.get(str(first), "")
            return NodeReference("inputs", tuple(rest)).text(f"inputs.{name}") if name else "none"
        if reference.source not in self.known:
            return "none"
        text = reference.text(f"nodes.{self.ids[reference.source]}.output")
        if reference.source in self.json_nodes and not reference.steps:
            return f"{text} | tojson"
        return f"{text} | default(none)" if reference.source in self.optional else text

    # --- Rows together

    def _find_aggregated(self, nodes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """The nodes that see all rows, and those that read what they give."""
        found = {str(node.get("name")) for node in nodes if node.get("aggregation") or node.get("reduce")}
        read = [(str(node.get("name")), {each.source for each in _references(node)}) for node in nodes]
        while True:
            more = {name for name, sources in read if found & sources} - found
            if not more:
                return frozenset(found)
            found |= more

    def _batch_expression(self, reference: NodeReference) -> str:
        """What a reference is in the flow over all rows."""
        if reference.source in self.aggregated:
            return reference.text(f"nodes.{self.ids[reference.source]}.output")
        if reference.source == "inputs":
            attribute = ".".join(
                str(each) for each in (self.inputs.get(str(reference.steps[0]), "x"), *reference.steps[1:])
            )
            return f'inputs.rows | map(attribute="{attribute}") | list'
        if reference.source not in self.known:
            return "none"
        name = "_".join(
            re.sub(r"\W", "_", str(each)).lower() for each in (self.ids[reference.source], *reference.steps)
        )
        self.taken[name] = f"{{{{ {self.expression(reference)} }}}}"
        return f'nodes.rows.output | map(attribute="{name}") | list'

    def _add_batch(self, main: ImportedFlow) -> None:
        if not self.batch:
            return
        flow = ImportedFlow(self.flow_names.id(f"{self.name}_batch"), main.origin)
        flow.description = f"All rows of {main.name}, and what is computed of them together."
        flow.inputs = {"rows": {"type": "array", "description": f"One object a row: the inputs of {main.name}."}}
        flow.samples = {"rows": [{name: _sample(spec) for name, spec in main.inputs.items()}]}
        given = {
            name: f"{{{{ row.{name} | default({_literal(spec['default'])}) }}}}"
            if "default" in spec
            else f"{{{{ row.{name} }}}}"
            for name, spec in main.inputs.items()
        }
        if main.steps:
            one = FlowStep("one", "subflow", main.origin, arguments=given, keys={"flow": f"./{main.name}.yaml"})
            flow.steps.append(
                FlowStep("rows", "map", main.origin, keys={"over": "inputs.rows", "as": "row"}, body=[one])
            )
        flow.steps += self.batch
        flow.outputs = {each.id: f"{{{{ nodes.{each.id}.output }}}}" for each in self.batch}
        self.project.flows.append(flow)


def _answers_json(node: Mapping[str, Any]) -> bool:
    inputs = node.get("inputs")
    return node.get("type") == "llm" and is_map(inputs) and is_json_format(inputs.get("response_format"))


def _references(node: Mapping[str, Any]) -> Iterator[NodeReference]:
    inputs = node.get("inputs")
    for value in (inputs if is_map(inputs) else {}).values():
        found = read_reference(value)
        if found is not None:
            yield found
    activate = node.get("activate")
    found = read_reference(activate.get("when")) if is_map(activate) else None
    if found is not None:
        yield found


def _find_optional(nodes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The nodes that may be bypassed: by their own condition, or since all that they read was."""
    found = {str(node.get("name")) for node in nodes if is_map(node.get("activate"))}
    read = [(str(node.get("name")), {each.source for each in _references(node)} - {"inputs"}) for node in nodes]
    while True:
        more = {name for name, sources in read if sources and sources <= found}
        if more <= found:
            return frozenset(found)
        found |= more


def _fits(value: Any, kind: str) -> bool:
    kinds: dict[str, tuple[type, ...]] = {"string": (str,), "array": (list,), "object": (dict,), "boolean": (bool,)}
    if kind in kinds:
        return isinstance(value, kinds[kind])
    return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)


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


def _sample(spec: Mapping[str, Any]) -> Any:
    if "default" in spec:
        return spec["default"]
    values: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": ["sample"], "object": {}}
    return values.get(str(spec.get("type")), "sample")


def _literal(value: Any) -> str:
    """A value as Jinja writes it."""
    import json

    return json.dumps(value, ensure_ascii=False)
