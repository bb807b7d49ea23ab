"""Holds a flow made ready to run: graph, wrapped nodes, inputs, merge rules, outputs. Built once, shared by runs.

Flows from YAML and flows built in Python end here, in the same compiled form.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from flowengine.core.context import Context
from flowengine.core.file_values import FileRules
from flowengine.core.json_values import load_json
from flowengine.core.media_types import allows_media_type
from flowengine.core.values import describe_value, freeze, frozen_dict, is_json_type, is_one_of
from flowengine.engine.graph import Graph
from flowengine.engine.merging import StateKey, state_rules
from flowengine.engine.ports import Node, Notifier
from flowengine.engine.state import ENGINE_KEYS, KeyRules
from flowengine.engine.view import FinalContext
from flowengine.engine.walk import Walk
from flowengine.errors import (
    DefinitionError,
    Diagnostic,
    FlowError,
    InputError,
    ModelConfigError,
    RunError,
    TemplateError,
    did_you_mean,
)
from flowengine.nodes.code_digest import source_of
from flowengine.nodes.container import compile_level, every_node, skeleton_of
from flowengine.nodes.node import FlowNode, RunLimits

__all__ = [
    "REQUIRED",
    "CompiledFlow",
    "InputField",
    "assemble",
    "checked_inputs",
    "outputs_of",
    "parse_text",
    "partial_outputs_of",
]

# --- A run's inputs


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of an input that has none."""


@dataclass(frozen=True, slots=True)
class InputField:
    """One declared input. `schema` (a JSON Schema) goes instead of `type`."""

    type: str | None = None
    default: Any = REQUIRED
    enum: Sequence[Any] | None = None
    schema: Mapping[str, Any] | None = None
    description: str = ""
    media_types: Sequence[str] | None = None
    """Of a file: what it may be, by its content (`image/*`); None: what the project allows."""


_MOST_TOLD: Final = 20
"""Inputs that an error names: a caller may send very many."""


def checked_inputs(fields: Mapping[str, InputField] | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs with their defaults, read-only. Without declared fields everything is accepted.

    Raises `InputError` that lists every problem at once; of very many unknown inputs the first.

    >>> checked_inputs({"n": InputField("integer", default=3)}, {})
    {'n': 3}
    """
    if fields is None:
        return _freeze_inputs(dict(given))
    unknown = [str(name)[:80] for name in given if name not in fields]
    declared_ones = f"; there are {', '.join([*fields][:_MOST_TOLD])}" if fields else "; the flow has none"
    problems = [f"unknown input '{name}'{did_you_mean(name, fields) or declared_ones}" for name in unknown[:_MOST_TOLD]]
    if len(unknown) > _MOST_TOLD:
        problems.append(f"and {len(unknown) - _MOST_TOLD:,} more unknown inputs")
    values: dict[str, Any] = {}
    for name, declared in fields.items():
        if name not in given:
            if declared.default is REQUIRED:
                problems.append(f"missing input '{name}'{_describe_wanted(declared)}")
            else:
                values[name] = declared.default
            continue
        problem = _problem(declared, given[name])
        if problem:
            problems.append(f"input '{name}': {problem}")
        values[name] = given[name]
    if problems:
        raise InputError("\n".join(problems))
    return _freeze_inputs(values)


def _freeze_inputs(values: dict[str, Any]) -> Mapping[str, Any]:
    try:
        return freeze(values)
    except RecursionError:
        raise InputError("the inputs are nested too deep") from None


def _describe_wanted(field: InputField) -> str:
    described = f": {field.description}" if field.description else ""
    return f" ({field.type or 'see its schema'}{described})"


def _problem(field: InputField, value: Any) -> str | None:
    if field.schema is not None:
        from flowengine.core.json_schema import find_misfits  # The library is slow to load, and few inputs have one.

        found = find_misfits(field.schema, value)
        return f"{found[0].message} at {found[0].path}" if found else None
    if field.type is not None and not is_json_type(value, field.type):
        return f"expected {field.type}, found {describe_value(value)}"
    if field.media_types is not None and not allows_media_type(field.media_types, value.media_type):
        return f"expected {' or '.join(field.media_types)}, found {value.media_type}, by the file's content"
    if field.enum is not None and not is_one_of(value, field.enum):
        allowed = ", ".join(map(str, field.enum))
        return f"{describe_value(value)} is not one of: {allowed}{did_you_mean(str(value), map(str, field.enum))}"
    return None


_JSON_TYPES: Final = frozenset({"integer", "number", "boolean", "array", "object", "null"})
"""Types whose text is JSON."""


def parse_text(name: str, text: str, field: InputField | None) -> Any:
    """Parses an input's text: as JSON if the declared type is not text.

    >>> parse_text("n", "3", InputField("integer")), parse_text("n", "3", None)
    (3, '3')
    """
    expected = None if field is None else _find_declared_type(field)
    if expected is None:
        return text
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"input '{name}': expected {expected} as JSON, found {text!r:.60}") from error


def _find_declared_type(field: InputField) -> str | None:
    """The declared type, where its text is JSON."""
    kind: Any = field.type if field.schema is None else field.schema.get("type")
    if isinstance(kind, str):
        return kind if kind in _JSON_TYPES else None
    if isinstance(kind, (list, tuple)) and "string" not in kind:
        return " or ".join(map(str, cast("Sequence[Any]", kind)))
    return None


@dataclass(frozen=True)
class CompiledFlow:
    """Everything a runner needs. `nodes` are in the graph's topological order."""

    name: str
    graph: Graph
    definitions: Mapping[str, FlowNode]
    nodes: Sequence[Node]
    inputs: Mapping[str, InputField] | None = None
    state: Mapping[str, StateKey] = field(default_factory=dict[str, StateKey])
    outputs: Mapping[str, Callable[[Context], Any]] | None = None
    """Output name → value; None: the outputs of the last nodes, by name."""
    limits: RunLimits = field(default_factory=RunLimits)
    description: str = ""
    allow_env: Sequence[str] = ()
    """Environment values that templates may read; they are kept in the journal."""
    files: FileRules = field(default_factory=FileRules)
    """What files its runs may take in."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where they are read from."""
    path: str | None = None
    source: str | None = None
    place_of: Callable[[str], tuple[int, int]] | None = field(default=None, repr=False)
    """Node → line and column in the file; None where there is no file."""
    model_problems: Callable[[], Sequence[Diagnostic]] | None = field(default=None, repr=False)
    """What is wrong with the models that the file names, as `flowengine validate` says it; None where there is none."""
    pack: Callable[[], Mapping[str, Any]] = field(default=dict[str, Any], repr=False)
    """Packs what another machine needs beside the source to build the plan (`flowengine.flowfile.run_bundle`)."""
    interruptible: bool = True
    """Whether a `KeyboardInterrupt` out of a node's code interrupts the run; else the node fails."""
    notifier: Notifier | None = field(default=None, repr=False)
    """Tells people of the flow's questions; None where nobody is told."""
    prepares_slowly: bool = False
    """Whether preparing may wait for a command that gives a key."""

    @cached_property
    def baggage(self) -> Mapping[str, Any]:
        """What `pack` gives; packed at the first use."""
        return self.pack()

    @cached_property
    def fingerprints(self) -> Mapping[str, str]:
        """Node → hash of its definition; worked out at the first use."""
        return {path: _hash(node.fingerprint_source) for path, node in every_node(self.definitions)}

    @cached_property
    def server_checks(self) -> Sequence[tuple[str, FlowNode]]:
        """Nodes of which something is known only once their servers run, with their paths."""
        return [(path, node) for path, node in every_node(self.definitions) if node.checks_servers]

    @cached_property
    def takes_files(self) -> bool:
        """Whether an input is a file, or may hold one."""
        return self.inputs is None or any(each.type == "file" for each in self.inputs.values())

    @cached_property
    def starts_tasks(self) -> bool:
        """Whether tasks may begin in a run of it that live as long as the run."""
        return any(node.starts_tasks for _, node in every_node(self.definitions))

    @cached_property
    def code(self) -> Mapping[str, str]:
        """Node → hash of the functions that it calls, where its definition does not have them."""
        return {
            path: _hash([source_of(each) for each in node.code])
            for path, node in every_node(self.definitions)
            if node.says_its_definition and node.code
        }

    @cached_property
    def skeleton(self) -> Mapping[str, Any]:
        """Nodes with kinds, edges with labels, and the merge rules, so that a run can be drawn without its flow.

        Frozen, so that a journal may keep the text of it from one run to the next.
        """
        shape = skeleton_of(self.graph, self.definitions)
        if not self.state:
            return shape
        return freeze({**shape, "state": state_rules(self.state)})

    @cached_property
    def rules(self) -> KeyRules:
        """Of the shared state, as each run's store keeps them."""
        return KeyRules(self.state)

    @cached_property
    def caches(self) -> bool:
        """Whether a node is to be cached."""
        return any(node.cache for _, node in every_node(self.definitions))

    def prepare(self) -> None:
        """Let every node say now what would fail later (a missing key), before anything is paid."""
        for name, node in self._preparing:
            try:
                node.prepare()
            except DefinitionError as error:
                problems = self.model_problems() if self.model_problems and isinstance(error, ModelConfigError) else ()
                told = "\n".join(map(str, problems)) or f"{self._where(name)}{error}"
                error.args = (told, *error.args[1:])
                raise

    async def ready(self) -> None:
        """`prepare`, without keeping the event loop from all else where that may wait."""
        if self.prepares_slowly:
            await anyio.to_thread.run_sync(self.prepare)
        else:
            self.prepare()

    @cached_property
    def _preparing(self) -> Sequence[tuple[str, FlowNode]]:
        return [(name, node) for name, node in every_node(self.definitions) if _prepares(node)]

    def _where(self, name: str) -> str:
        """The place of a node, as messages begin with it."""
        place = () if self.place_of is None else self.place_of(name)
        found = "".join(f"{part}:" for part in (self.path, *place) if part is not None)
        return f"{found}{' ' if found else ''}node '{name}': "


def _prepares(node: FlowNode) -> bool:
    return type(node).prepare is not FlowNode.prepare


def assemble(name: str, nodes: Mapping[str, FlowNode], **parts: Any) -> CompiledFlow:
    """The plan of a flow; `parts` are the other fields of `CompiledFlow`.

    Raises `FlowError` for no nodes, unknown targets and cycles.
    """
    if not nodes:
        raise FlowError([Diagnostic("FE208", f"flow '{name}' has no nodes")])
    body = compile_level(nodes)
    reserved = [key for key in parts.get("state", ()) if key in ENGINE_KEYS or key.startswith("=")]
    if reserved:
        raise FlowError([Diagnostic("FE402", f"shared state key '{reserved[0]}' belongs to the engine")])
    return CompiledFlow(name, body.graph, dict(nodes), body.nodes, **parts)


def outputs_of(plan: CompiledFlow, walk: Walk) -> Mapping[str, Any]:
    """Renders a flow's outputs after its nodes are settled; raises template errors."""
    if plan.outputs is None:
        done = {plan.graph.ids[leaf]: walk.result_of(leaf) for leaf in plan.graph.leaves}
        return freeze({name: result.output for name, result in done.items() if result is not None})
    context = FinalContext(walk)
    found = {name: value(context) for name, value in plan.outputs.items()}
    for name, value in found.items():
        try:
            found[name] = freeze(value)
        except RecursionError:
            raise RunError(f"output '{name}' contains itself, or is nested too deep") from None
    return frozen_dict(found)


def partial_outputs_of(plan: CompiledFlow, walk: Walk) -> Mapping[str, Any]:
    """Those outputs that can be worked out from what there is."""
    if plan.outputs is None:
        return outputs_of(plan, walk)
    context, found = FinalContext(walk), dict[str, Any]()
    for name, value in plan.outputs.items():
        with suppress(TemplateError):
            found[name] = value(context)
    return freeze(found)


def _hash(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=repr, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
