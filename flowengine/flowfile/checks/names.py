"""Checks every name that a template or an expression reads (rule 9 of the flow format)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

from jinja2 import nodes

from flowengine.core import NodeStatus, find_label
from flowengine.core.templating import parse_expression, parse_template
from flowengine.errors import TemplateSyntaxError
from flowengine.flowfile.analysis import (
    NODE_FIELDS,
    NodePath,
    Scope,
    SpecLevel,
    Use,
    gaps_of,
    holders_of,
    home_of,
    input_shape,
    is_condition,
    is_loop,
    is_map_node,
    key_path,
    labels_of,
    labels_of_value,
    last_of,
    level_of,
    levels_of,
    node_shape,
    nodes_of,
    over_shape,
    places_of,
    reads_of,
    shape_of,
    unknown_field,
    visible,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.compile import ENGINE_KEYS, LOOP_OUTPUT, RESERVED, ROUND
from flowengine.flowfile.schema import FlowSpec, NodeSpec, Shape
from flowengine.flowfile.yaml import KeyPath

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
    from flowengine.flowfile.kinds.map_kind import MapNodeSpec

# --- Checks of what maps and loops say about their bodies


def check_bodies(spec: FlowSpec, report: Report) -> None:
    """Ids, items and variables that hide others; undeclared variables; results that no node chose."""
    gaps = gaps_of(spec)
    touched = gaps.find_levels()
    for level in levels_of(spec).values():
        if level.holder is None:
            continue
        _check_ids(spec, level, report)
        if is_map_node(level.holder):
            _check_item(spec, level, level.holder, report)
            _check_over(spec, level, level.holder, report)
            if level.path not in touched | gaps.gives:
                _check_result(spec, level, level.holder, report)
        elif is_loop(level.holder):
            _check_variables(spec, level, level.holder, report)
            if level.path not in gaps.variables:
                _check_carry(level, level.holder, report)


def _check_ids(spec: FlowSpec, level: SpecLevel, report: Report) -> None:
    for name in level.nodes:
        if home_of(spec, level.path[:-1], name) is not None:
            text = f"a node outside is called '{name}' too, and the body could not read it; rename one of them"
            report.at_key("FE220", text, key_path((*level.path, name)))


def _check_item(spec: FlowSpec, level: SpecLevel, holder: MapNodeSpec, report: Report) -> None:
    at = (*key_path(level.path), "as")
    if holder.until is not None and holder.as_ == "results":
        report.at_value("FE220", "`until` of the map calls what it has so far 'results'; call the item otherwise", at)
    if holder.as_ in RESERVED:
        report.at_value("FE220", f"'{holder.as_}' means something else in templates; call the item otherwise", at)
    for outer in holders_of(spec, level.path)[1:]:
        if is_map_node(outer.holder) and outer.holder.as_ == holder.as_:
            text = f"'{holder.as_}' is the item of '{outer.path[-1]}', round this map; give this one another name"
            report.at_key("FE220", text, at, " with `as`" if "as_" not in holder.model_fields_set else "")


def _check_over(spec: FlowSpec, level: SpecLevel, holder: MapNodeSpec, report: Report) -> None:
    shape = over_shape(spec, level.path[:-1], holder.over)
    kind = shape.get("type") if shape is not None else None
    if isinstance(kind, str) and kind != "array":
        text = f"a map goes over a list, and '{holder.over.strip()}' is of type {kind}"
        report.at_value("FE311", text, (*key_path(level.path), "over"))


def _check_result(spec: FlowSpec, level: SpecLevel, holder: MapNodeSpec, report: Report) -> None:
    last = last_of(spec, level.path)
    if holder.result is None and len(last) > 1:
        names = ", ".join(f"'{name}'" for name in last)
        text = f"the body ends with several nodes ({names}); say with `result` what an item gives"
        report.at_key("FE222", text, key_path(level.path), f": {{{{ nodes.{last[-1]}.output }}}}")


def _check_variables(spec: FlowSpec, level: SpecLevel, holder: LoopNodeSpec, report: Report) -> None:
    at = key_path(level.path)
    for name in holder.initial:
        if name in (*ROUND, *LOOP_OUTPUT):
            report.at_key("FE220", f"'{name}' is the loop's own; call the variable otherwise", (*at, "initial", name))
        for outer in holders_of(spec, level.path)[1:]:
            if is_loop(outer.holder) and name in outer.holder.initial:
                text = f"'{outer.path[-1]}', round this loop, has a variable '{name}' too; rename one of them"
                report.at_key("FE220", text, (*at, "initial", name))


def _check_carry(level: SpecLevel, holder: LoopNodeSpec, report: Report) -> None:
    at = (*key_path(level.path), "carry")
    for name in holder.carry:
        if name not in holder.initial:
            hint = report.nearest(name, holder.initial) or "; give it a first value in `initial`"
            report.at_key("FE221", f"the first round has no variable '{name}'", (*at, name), hint)


def check_switches(spec: FlowSpec, report: Report) -> None:
    """Routes that the value of a `switch` can never choose: a warning each, and errors where it can choose none."""
    for path, node in nodes_of(spec):
        labels = labels_of_value(spec, path[:-1], node.switch) if is_condition(node) and node.switch else None
        if labels is None or not is_condition(node) or path in gaps_of(spec).labels:
            continue
        never = [label for label in node.routes or () if find_label(label, labels) is None]
        code = "FE402" if len(never) == len(node.routes or ()) and not node.has_else else "FE909"
        names = ", ".join(labels[:_MOST_LABELS])
        for label in never:
            text = f"'{node.switch}' never gives '{label}': it is one of {names}"
            report.at_key(code, text, (*key_path(path), "routes", label), report.nearest(label, labels))


def check_decisions(spec: FlowSpec, report: Report) -> None:
    """Refuses a bare expression that decides and is known to be neither true nor false, such as a text or a number.
    What a node gives may be absent, which counts as false."""
    for path, node in nodes_of(spec):
        for at, text in _list_decisions(node):
            if text.lstrip().startswith("nodes."):
                continue
            shape = over_shape(spec, path if at == ("until",) else path[:-1], text)
            kind = _kind_of_value(text) if shape is None else shape.get("type")
            if isinstance(kind, str) and kind != "boolean":
                message = f"`{at[-1]}` is true or false, and '{text.strip():.60}' is of type {kind}"
                report.at_value("FE313", message, (*key_path(path), *at), "; compare it with something")


def _list_decisions(node: NodeSpec) -> Iterator[tuple[KeyPath, str]]:
    decisions: list[tuple[KeyPath, Any]] = [(("when",), node.when), (("until",), getattr(node, "until", None))]
    if is_condition(node):
        decisions += [
            (("if",), node.if_),
            *((("cases", number, "if"), each.if_) for number, each in enumerate(node.cases or ())),
        ]
    yield from ((at, text) for at, text in decisions if isinstance(text, str))


_KINDS: Final = {
    **dict.fromkeys(("count", "length", "wordcount"), "integer"),
    **dict.fromkeys(("capitalize", "join", "lower", "string", "title", "tojson", "trim", "upper"), "string"),
    **dict.fromkeys(("list", "sort", "map", "select", "selectattr", "reject", "rejectattr", "unique"), "array"),
}
"""Filter → the type of all that it gives."""


def _kind_of_value(text: str) -> str | None:
    """The type of whatever an expression gives, where its outermost part decides that."""
    try:
        tree = parse_expression(text).tree
    except TemplateSyntaxError:  # Told elsewhere.
        return None
    match tree:
        case nodes.Filter(name=name):
            return _KINDS.get(name)
        case nodes.Concat():
            return "string"
        case _:
            return None


_MOST_LABELS: Final = 20
_CONSTANTS: Final = ("true", "false", "none")
_CHOSEN: Final = {
    "routing": ["output", "next_route"],
    "approval": ["output", "choice"],
    "condition": ["output"],
}
"""Kind of node → the fields that say which label it took."""
_OTHERWISE: Final = {"condition": ("then", "else"), "routing": ("fallback",)}
"""Labels that it may take beside those of its routes."""

_ELSEWHERE: Final = {
    "output": "only `set` sees it",
    "result": "what comes after all nodes names one of them, nodes.<id>.output",
    "item": "only the nodes of a map see it",
    "each": "only the nodes of a map see it",
    "results": "only `until` of a map sees it",
    "round": "only the nodes of a loop see it",
}


def check_names(spec: FlowSpec, allow_env: Collection[str], report: Report) -> None:
    """Unknown roots, inputs, state keys, nodes, fields and environment names."""
    names, reads = _Names(spec, allow_env, report), reads_of(spec)
    for path, uses in reads.of_node.items():
        names.check(uses, path[:-1])
    for level, uses in reads.at_end.items():
        names.check(uses, level)
    names.check(reads.of_nobody, ())


class _Names:
    def __init__(self, spec: FlowSpec, allow_env: Collection[str], report: Report) -> None:
        self._spec = spec
        self._gaps = gaps_of(spec)
        self._allow_env = allow_env
        self._report = report
        self._level: NodePath = ()
        self._visible: dict[tuple[NodePath, Scope], tuple[str, ...]] = {}
        self._checked: set[tuple[int, NodePath]] = set()
        self._ids: dict[NodePath, list[str]] = {}
        self._bound: dict[str, list[str]] = {}
        """Template → the names that it binds itself."""
        self._items = {
            level.holder.as_: f"only the nodes of '{level.path[-1]}' see it"
            for level in levels_of(spec).values()
            if is_map_node(level.holder)
        }
        self._below: dict[str, Callable[[Use, str, tuple[str, ...]], None]] = {
            "inputs": self._input,
            "shared_state": self._state,
            "nodes": self._node,
            "prev_outputs": self._earlier,
            "env": self._environment,
            "run": self._run,
        }

    def check(self, uses: list[Use], level: NodePath) -> None:
        """Checks the names that are read inside a level. Reads of a shared agent are checked once per level."""
        self._level = level
        for use in uses:
            if use.text.node is None:
                if (id(use), level) in self._checked:
                    continue
                self._checked.add((id(use), level))
            self._check(use)

    def _check(self, use: Use) -> None:
        root, *fields = use.reference.path
        roots = self._visible.get((self._level, use.text.scope))
        if roots is None:
            roots = visible(self._spec, self._level, use.text.scope)
            self._visible[self._level, use.text.scope] = roots
        if root not in roots:
            if not use.reference.may_be_own:
                self._refuse_root(use, root, roots)
        elif fields and root in self._below:
            self._below[root](use, fields[0], tuple(fields[1:]))
        elif fields:
            self._fields(use, f"`{root}`", self._shape_of_root(use, root), tuple(fields))
        elif root == "nodes":
            self._report.at_use("FE308", "`nodes` needs a literal id: nodes.<id>.output", use)
        if use.reference.compared and root in roots:
            self._compare(use)

    def _compare(self, use: Use) -> None:
        """A text that a value of few values never equals: a choice that never comes."""
        path = use.reference.path
        values = self._values_of(path) or [*use.reference.compared]
        for text in filter(None, dict.fromkeys(use.reference.compared)):  # An empty one asks whether there is any.
            if text not in values:
                message = f"'{'.'.join(path)}' is never '{text}': it is one of {', '.join(values[:_MOST_LABELS])}"
                self._report.at_use("FE909", message, use, self._report.nearest(text, values))

    def _values_of(self, path: tuple[str, ...]) -> Sequence[str] | None:
        """All texts that a value can be; None where they are not known."""
        root, name, *fields = *path, "", ""
        home = home_of(self._spec, self._level, name) if root == "nodes" else None
        if home is None:
            return labels_of_value(self._spec, self._level, ".".join(path))
        node, at = level_of(self._spec, home)[name], (*home, name)
        if fields[:1] == ["status"]:
            return get_args(NodeStatus)
        if at in self._gaps.labels | self._gaps.gives:
            return None
        labels = sorted(labels_of(self._spec, name, home))
        if labels and fields[:-2] == _CHOSEN.get(node.type):
            return [*labels, *_OTHERWISE.get(node.type, ())]
        return labels_of_value(self._spec, self._level, ".".join(path))

    def _shape_of_root(self, use: Use, root: str) -> Shape | None:
        if root == "output" and use.text.node is not None:
            return node_shape(self._spec, use.text.node[:-1], use.text.node[-1], "output")
        return shape_of(self._spec, self._level, (root,))

    def _refuse_root(self, use: Use, root: str, roots: Collection[str]) -> None:
        if root in self._gaps.words or self._has_unknown_item():
            return
        reason = self._item_here() if root == "item" else self._items.get(root)
        reason = reason or _ELSEWHERE.get(root)
        if reason is not None:
            self._report.at_use("FE309", f"'{root}' is not visible here: {reason}", use)
        else:
            names = (*roots, *_CONSTANTS, *self._bound_names(use))
            hint = self._suggest_qualified(use, root, roots) or self._report.nearest(root, names)
            self._report.at_use("FE302", f"unknown name '{root}'", use, hint)

    def _bound_names(self, use: Use) -> Sequence[str]:
        if use.text.kind != "template":
            return ()
        text = use.text.text
        if text not in self._bound:
            self._bound[text] = parse_template(text).bound_names
        return self._bound[text]

    def _suggest_qualified(self, use: Use, root: str, roots: Collection[str]) -> str:
        """The end of a message: the name behind what it belongs to, where an input, a key or a node is called so."""
        if root in self._spec.inputs and "inputs" in roots:
            path = f"inputs.{root}"
        elif root in self._spec.shared_state and "shared_state" in roots:
            path = f"shared_state.{root}"
        elif root in self._visible_ids() and root not in (use.text.node or ())[-1:] and "nodes" in roots:
            field = next(iter(use.reference.path[1:2]), "output")
            path = f"nodes.{root}.{field if field in NODE_FIELDS else 'output'}"
        else:
            return ""
        return f"; did you mean '{path}'?"

    def _has_unknown_item(self) -> bool:
        """Tells whether the item of a map round this level may have any name."""
        return any(each.path in self._gaps.variables for each in holders_of(self._spec, self._level))

    def _item_here(self) -> str | None:
        holders = (level.holder for level in holders_of(self._spec, self._level))
        inner = next((each for each in holders if is_map_node(each)), None)
        return None if inner is None else f"the item is called '{inner.as_}'"

    def _input(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        declared = self._spec.inputs.get(name)
        if declared is None and self._gaps.may_be("inputs", name):
            return
        if declared is None:
            self._report.at_use("FE303", f"unknown input '{name}'", use, self._report.nearest(name, self._spec.inputs))
        else:
            self._fields(use, f"the input '{name}'", input_shape(declared), fields)

    def _state(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if (
            name not in self._spec.shared_state
            and name not in ENGINE_KEYS
            and not self._gaps.may_be("shared_state", name)
        ):
            keys = [*self._spec.shared_state, *ENGINE_KEYS]
            self._report.at_use("FE304", f"shared state has no key '{name}'", use, self._report.nearest(name, keys))

    def _node(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        home = self._home(use, name)
        if home is None:
            return
        if not fields:
            text = f"name a field of the node: nodes.{name}.output (or result, status, error)"
            self._report.at_use("FE306", text, use)
        elif fields[0] not in NODE_FIELDS:
            names = ", ".join(NODE_FIELDS)
            text = f"a node has no field '{fields[0]}' (there are {names})"
            self._report.at_use("FE306", text, use, self._closest(home, name, fields[0]))
        else:
            shape = node_shape(self._spec, home, name, fields[0])
            self._fields(use, f"the {fields[0]} of '{name}'", shape, fields[1:])

    def _home(self, use: Use, name: str) -> NodePath | None:
        """The level of a node that is read; None, and a finding, where no such node is seen from here."""
        home = home_of(self._spec, self._level, name)
        if home is None and not self._may_be_node(name):
            inside = places_of(self._spec).get(name)
            if inside is None:
                self._report.at_use(
                    "FE305", f"unknown node '{name}'", use, self._report.nearest(name, self._visible_ids())
                )
            else:
                hint = f"; what a body gives is read as nodes.{inside[0][0]}.output"
                self._report.at_use("FE305", f"'{name}' is inside '{'.'.join(inside[0])}'", use, hint)
        return home

    def _may_be_node(self, name: str) -> bool:
        levels = {self._level[:depth] for depth in range(len(self._level) + 1)}
        return name in self._gaps.words or not levels.isdisjoint(self._gaps.bodies)

    def _visible_ids(self) -> list[str]:
        """The ids of the nodes that are seen from this level."""
        if self._level not in self._ids:
            levels = (level_of(self._spec, self._level[:depth]) for depth in range(len(self._level) + 1))
            self._ids[self._level] = [name for nodes in levels for name in nodes]
        return self._ids[self._level]

    def _closest(self, home: NodePath, name: str, field: str) -> str:
        """A field that the output has is probably meant."""
        shape = node_shape(self._spec, home, name, "output") or {}
        inner: Collection[str] = shape.get("properties", ())
        return f"; did you mean 'output.{field}'?" if field in inner else self._report.nearest(field, NODE_FIELDS)

    def _earlier(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        home = self._home(use, name)
        if home is not None:
            self._fields(use, f"the output of '{name}'", node_shape(self._spec, home, name, "output"), fields)

    def _environment(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name not in self._allow_env:
            hint = self._report.nearest(name, self._allow_env) or "; list it in `allow_env` of the project file"
            self._report.at_use("FE307", f"the environment variable '{name}' is not allowed", use, hint)

    def _run(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name != "id":
            self._report.at_use("FE306", f"`run` has no field '{name}'", use, "; did you mean 'run.id'?")

    def _fields(self, use: Use, what: str, shape: Shape | None, fields: tuple[str, ...]) -> None:
        unknown = unknown_field(shape, fields)
        if unknown is None or unknown[0] in self._gaps.words:
            return
        field, field_names = unknown
        if isinstance(field_names, str):
            at = fields.index(field)
            inner = "".join(f".{each}" for each in fields[:at])
            self._report.at_use("FE306", f"{what}{inner} is {field_names}, it has no field '{field}'", use)
        else:
            self._report.at_use(
                "FE306", f"{what} has no field '{field}'", use, self._report.nearest(field, field_names)
            )
