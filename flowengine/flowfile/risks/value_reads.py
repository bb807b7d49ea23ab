"""Says which values a text of a flow can read, by the names that it uses, and which of them can carry untrusted text.

A name that can be several values (`result`, `_last_generation`) is all of them. A value is named by its kind, its owner
and a field: what a node gives ("out"), what it says of a failure ("error"), an input, what a judge or a router says
("judged"), a key of state as one node wrote it ("set"), or many did ("state"), the item of a map, a variable of a loop,
or all that a node of a place can see ("seen").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from flowengine.core import TRAITS
from flowengine.flowfile.analysis import (
    EVALUATION,
    LAST,
    ROUTING,
    LevelAnalysis,
    NodePath,
    SpecLevel,
    holders_of,
    home_of,
    input_shape,
    is_agent,
    is_condition,
    is_function,
    is_loop,
    is_map_node,
    is_tool,
    level_of,
    levels_of,
    node_shape,
    runs_of,
    shape_of,
)
from flowengine.flowfile.project import Project
from flowengine.flowfile.risks.closed_values import fields_known_of, is_closed, shape_of_annotation, shape_within
from flowengine.flowfile.risks.outside_effects import is_mentioned, mark_of
from flowengine.flowfile.risks.sanitizers import ValueName
from flowengine.flowfile.schema import FlowSpec, NodeSpec, is_code


class ReadValue(NamedTuple):
    """A value that a name can be."""

    name: ValueName
    """Kind, owner, and the fields that are read of it."""
    is_closed: bool = False
    """Whether it cannot carry free text."""


_Reader = Callable[[NodePath, tuple[str, ...], "NodePath | None"], Iterable[ReadValue]]
"""Level, fields and the reading node → what they can be."""
_MANY: Final = 50
"""Nodes that write one key of state; beyond it their order before a reader is not looked at."""
_QUIET_ROOTS: Final = ("each", "run", "env")


class ValueReads:
    """The possible values of the names in one file's texts."""

    def __init__(self, spec: FlowSpec, project: Project) -> None:
        self._spec = spec
        self._project = project
        self._runs = runs_of(spec)
        self._result_sources: dict[NodePath, list[frozenset[NodePath | None]]] = {}
        self._readers: Mapping[str, _Reader] = {
            "inputs": self._inputs,
            "shared_state": self._state,
            "nodes": self._nodes,
            "prev_outputs": self._previous,
            "result": self._result,
            "routing_result": self._values_of_routing,
            "evaluation_result": self._evaluation,
            "round": self._round,
        }

    # --- names

    def of(
        self, level: NodePath, path: tuple[str, ...], node: NodePath | None, *, is_set: bool = False
    ) -> list[ReadValue]:
        """The values of a path of names in a text inside of a level. `node`: whose text it is; None: it is read when
        the level is done. `is_set`: a text of the node's `set`."""
        root, *fields = path
        if root in _QUIET_ROOTS:
            return []
        if root == "output" and is_set and node is not None:
            return list(self.of_node(node, "output", tuple(fields)))
        reader = self._readers.get(root)
        return list(self._variable(level, path) if reader is None else reader(level, tuple(fields), node))

    def names(self, level: NodePath, path: tuple[str, ...], node: NodePath | None) -> Iterator[ValueName]:
        """The same, by their names alone."""
        for each in self.of(level, path, node):
            yield each.name

    def of_node(self, path: NodePath, field: str, fields: tuple[str, ...] = ()) -> Iterator[ReadValue]:
        """Yields the values that `nodes.<id>.<field>.<fields>` can have."""
        node = level_of(self._spec, path[:-1])[path[-1]]
        if field == "error":
            yield ReadValue(("error", path))
        elif field in ("output", "result"):
            if field == "result" and is_agent(node) and fields and fields[0] != "content":
                field_type = fields_known_of("agent").get(fields[0])
                yield ReadValue(("judged", path, *fields), field_type is not None)
                return
            if field == "result" and is_agent(node):
                fields = fields[1:]
            yield ReadValue(("out", path, *fields), self._is_closed(path, node, fields))

    def _is_closed(self, path: NodePath, node: NodeSpec, fields: tuple[str, ...]) -> bool:
        if node.type == "approval" or is_condition(node):
            return True
        if fields and fields[0] in fields_known_of(node.type):
            return True
        shape: Any = self._shape_by_code(node)
        if shape is None:
            shape = node_shape(self._spec, path[:-1], path[-1], "output")
        return is_closed(shape_within(shape, fields))

    def _shape_by_code(self, node: NodeSpec) -> Any:
        """Returns the shape of a function's return annotation."""
        target = node.call if is_function(node) else node.tool if is_tool(node) and is_code(node.tool) else None
        mark = None if target is None else mark_of(self._project, target)
        return None if mark is None else shape_of_annotation(mark.returns)

    # --- roots

    def _inputs(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        if not fields:
            yield from (each for name in self._spec.inputs for each in self._inputs(level, (name,), node))
            return
        declared = self._spec.inputs.get(fields[0])
        if declared is not None:
            shape = {"enum": declared.enum} if declared.enum is not None else input_shape(declared)
            yield ReadValue(("input", (), *fields), is_closed(shape_within(shape, fields[1:])))

    def _state(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        if not fields:
            for key in (*self._spec.shared_state, "_last_prompt", "_last_generation"):
                yield from self._state(level, (key,), node)
        elif fields[0] == "_last_generation":
            for setter in self._setters(level, node, LAST):
                yield from self.of_node(setter, "output", fields[1:])
        elif fields[0] == "_last_prompt":
            for setter in self._setters(level, node, LAST):
                yield ReadValue(("prompt", setter))
        else:
            writers = self.writers.get(fields[0], ())
            if len(writers) > _MANY:
                yield ReadValue(("state", (), *fields))
                return
            for writer in writers:
                if self.may_precede(writer, level, node):
                    yield ReadValue(("set", writer, *fields))

    def _nodes(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        home = home_of(self._spec, level, fields[0]) if fields else None
        if home is None:
            return
        path = (*home, fields[0])
        for field in fields[1:2] or ("output", "error"):
            yield from self.of_node(path, field, fields[2:])

    def _previous(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        if fields:
            yield from self._nodes(level, (fields[0], "output", *fields[1:]), node)
        else:
            yield ReadValue(("seen", level if node is None else node, "" if node is not None else "end"))

    def _result(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        if node is not None:
            runs = self._runs[node[:-1]]
            yield from self._read_predecessors(runs, runs.graph.index[node[-1]], fields)

    def _values_of_routing(
        self, level: NodePath, fields: tuple[str, ...], node: NodePath | None
    ) -> Iterator[ReadValue]:
        yield from self._values_of_judgement(level, fields, node, ROUTING, "routing")

    def _evaluation(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        yield from self._values_of_judgement(level, fields, node, EVALUATION, "evaluation")

    def _values_of_judgement(
        self, level: NodePath, fields: tuple[str, ...], node: NodePath | None, what: str, kind: str
    ) -> Iterator[ReadValue]:
        closed = bool(fields) and fields[0] in fields_known_of(kind)
        for setter in self._setters(level, node, what):
            yield ReadValue(("judged", setter, kind, *fields), closed)

    def _round(self, level: NodePath, fields: tuple[str, ...], node: NodePath | None) -> Iterator[ReadValue]:
        holder = next((each for each in holders_of(self._spec, level) if is_loop(each.holder)), None)
        if holder is not None and is_loop(holder.holder) and fields[:1] not in (("index",), ("last",)):
            names = dict.fromkeys((*holder.holder.initial, *holder.holder.carry))
            for name in names if not fields else fields[:1]:
                yield ReadValue(("var", holder.path, name, *fields[1:]))

    def _variable(self, level: NodePath, path: tuple[str, ...]) -> Iterator[ReadValue]:
        """The item of a map; or an unknown name, which is told elsewhere."""
        for holder in holders_of(self._spec, level):
            if is_map_node(holder.holder) and holder.holder.as_ == path[0]:
                yield ReadValue(("item", holder.path, *path[1:]), is_closed(shape_of(self._spec, level, path)))
                return

    # --- what follows from the order of a level

    def _setters(self, level: NodePath, node: NodePath | None, what: str) -> list[NodePath]:
        """The nodes that could have set a value of the engine's last; in a loop also those of the round before."""
        setters: list[NodePath] = []
        if node is None:
            setters += self._runs[level].setters_before(None, what)
        else:
            runs = self._runs[node[:-1]]
            setters += runs.setters_before(runs.graph.index[node[-1]], what)
        for holder in holders_of(self._spec, level if node is None else node[:-1]):
            if is_loop(holder.holder):
                setters += self._runs[holder.path].setters_before(None, what)
        return list(dict.fromkeys(setters))

    def _read_predecessors(self, runs: LevelAnalysis, number: int, fields: tuple[str, ...] = ()) -> Iterator[ReadValue]:
        """Yields what the predecessors of a node pass on as `result`."""
        sources_by_number = self._sources_of_results(runs)
        sources = frozenset[NodePath | None]().union(*(sources_by_number[each] for each in runs.predecessors(number)))
        for source in sorted(sources or {None}, key=lambda each: each or ()):
            if source is not None:
                yield from self.of_node(source, "result", fields)
            else:
                yield from self._values_of_entry(runs.level, fields)

    def _values_of_entry(self, level: SpecLevel, fields: tuple[str, ...]) -> Iterator[ReadValue]:
        """`result` of the first nodes of a body."""
        if is_map_node(level.holder):
            yield ReadValue(("item", level.path, *fields))
        elif is_loop(level.holder):
            yield from self._result(level.path[:-1], fields, level.path)

    def _sources_of_results(self, runs: LevelAnalysis) -> list[frozenset[NodePath | None]]:
        """Returns for each node whose result it hands on: its own, or (transparent) that of its predecessors."""
        if runs.level.path not in self._result_sources:
            sources: list[frozenset[NodePath | None]] = []
            for number, node in enumerate(runs.nodes):
                if not TRAITS[node.type].transparent:
                    sources.append(frozenset({runs.path_of(number)}))
                    continue
                predecessors = runs.predecessors(number)
                inherited = frozenset[NodePath | None]().union(*(sources[each] for each in predecessors))
                sources.append(inherited if predecessors else frozenset({None}))
            self._result_sources[runs.level.path] = sources
        return self._result_sources[runs.level.path]

    @cached_property
    def writers(self) -> Mapping[str, list[NodePath]]:
        """State key → the nodes that write it with `set`, or may write it in code."""
        writers: dict[str, list[NodePath]] = {}
        for level in levels_of(self._spec).values():
            for name, node in level.nodes.items():
                for key in self._spec.shared_state if self.writes_any(node) else node.set:
                    writers.setdefault(key, []).append((*level.path, name))
        return writers

    def writes_any(self, node: NodeSpec) -> bool:
        """Tells whether code of a node may write any key of state: it can only by returning a `NodeResult`."""
        if is_function(node):
            return is_mentioned(self._project, node.call, "NodeResult")
        return node.type not in TRAITS

    def may_precede(self, writer: NodePath, level: NodePath, node: NodePath | None) -> bool:
        """Tells whether what a node writes may be there when another one, or (None) the end of a level, reads."""
        reader = level if node is None else node
        depth = 0
        while depth < min(len(writer), len(reader)) and writer[depth] == reader[depth]:
            depth += 1
        levels = levels_of(self._spec)
        if any(is_loop(levels[writer[:each]].holder) for each in range(1, min(depth, len(writer) - 1) + 1)):
            return True
        if depth == len(reader):  # The reader is a container round the writer, or the writer itself.
            return len(writer) > depth
        if depth == len(writer):
            return False
        index, graph = self._runs[writer[:depth]].graph.index, self._runs[writer[:depth]].graph
        return graph.ancestry.holds(index[writer[depth]], index[reader[depth]])
