"""Checks of every name that a template or an expression reads (rule 9 of the flow format)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from flowengine.spec.known import EVALUATION, NODE_FIELDS, ROUTING, Shape, input_shape, node_shape, unknown_field
from flowengine.spec.references import Use, reads_of
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec

__all__ = ["check_names"]

ENGINE_KEYS: Final = ("_last_prompt", "_last_generation")
_RESULTS: Final = ("routing_result", "evaluation_result", "prev_outputs")
_EVERYWHERE: Final = ("inputs", "shared_state", "nodes", *_RESULTS, "run", "env")
_VISIBLE: Final = {
    "node": (*_EVERYWHERE, "result"),
    "set": (*_EVERYWHERE, "result", "output"),
    "outputs": _EVERYWHERE,
}
_ELSEWHERE: Final = {
    "output": "only `set` sees it",
    "result": "`outputs` come after all nodes: name one, nodes.<id>.output",
    "item": "only the nodes of a map see it",
    "each": "only the nodes of a map see it",
    "round": "only the nodes of a loop see it",
}


def check_names(spec: FlowSpec, allow_env: Collection[str], report: Report) -> None:
    """Unknown roots, inputs, state keys, nodes, fields and environment names."""
    names = _Names(spec, allow_env, report)
    for use in reads_of(spec).uses:
        names.check(use)


class _Names:
    def __init__(self, spec: FlowSpec, allow_env: Collection[str], report: Report) -> None:
        self._spec = spec
        self._allow_env = allow_env
        self._report = report
        self._below: dict[str, Callable[[Use, str, tuple[str, ...]], None]] = {
            "inputs": self._input,
            "shared_state": self._state,
            "nodes": self._node,
            "prev_outputs": self._earlier,
            "env": self._environment,
            "run": self._run,
            "routing_result": self._routing,
            "evaluation_result": self._evaluation,
        }

    def check(self, use: Use) -> None:
        root, *fields = use.reference.path
        visible = _VISIBLE[use.text.scope]
        if root not in visible:
            if root in _ELSEWHERE:
                self._report.at_use("FE309", f"'{root}' is not visible here: {_ELSEWHERE[root]}", use)
            else:
                self._report.at_use("FE302", f"unknown name '{root}'", use, self._report.nearest(root, visible))
        elif fields and root in self._below:
            self._below[root](use, fields[0], tuple(fields[1:]))
        elif root == "nodes":
            self._report.at_use("FE308", "`nodes` needs a literal id: nodes.<id>.output", use)

    def _input(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        declared = self._spec.inputs.get(name)
        if declared is None:
            self._report.at_use("FE303", f"unknown input '{name}'", use, self._report.nearest(name, self._spec.inputs))
        else:
            self._fields(use, f"the input '{name}'", input_shape(declared), fields)

    def _state(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name not in self._spec.shared_state and name not in ENGINE_KEYS:
            known = [*self._spec.shared_state, *ENGINE_KEYS]
            self._report.at_use("FE304", f"shared state has no key '{name}'", use, self._report.nearest(name, known))

    def _node(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name not in self._spec.nodes:
            self._report.at_use("FE305", f"unknown node '{name}'", use, self._report.nearest(name, self._spec.nodes))
        elif not fields:
            text = f"name a field of the node: nodes.{name}.output (or result, status, error)"
            self._report.at_use("FE306", text, use)
        elif fields[0] not in NODE_FIELDS:
            known = ", ".join(NODE_FIELDS)
            text = f"a node has no field '{fields[0]}' (there are {known})"
            self._report.at_use("FE306", text, use, self._closest(name, fields[0]))
        else:
            shape = node_shape(self._spec, name, fields[0])
            self._fields(use, f"the {fields[0]} of '{name}'", shape, fields[1:])

    def _closest(self, name: str, field: str) -> str:
        """A field that the output has is probably meant."""
        shape = node_shape(self._spec, name, "output") or {}
        inner: Collection[str] = shape.get("properties", ())
        return f"; did you mean 'output.{field}'?" if field in inner else self._report.nearest(field, NODE_FIELDS)

    def _earlier(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name not in self._spec.nodes:
            self._report.at_use("FE305", f"unknown node '{name}'", use, self._report.nearest(name, self._spec.nodes))
        else:
            self._fields(use, f"the output of '{name}'", node_shape(self._spec, name, "output"), fields)

    def _environment(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name not in self._allow_env:
            hint = self._report.nearest(name, self._allow_env) or "; list it in `allow_env` of the project file"
            self._report.at_use("FE307", f"the environment variable '{name}' is not allowed", use, hint)

    def _run(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        if name != "id":
            self._report.at_use("FE306", f"`run` has no field '{name}'", use, "; did you mean 'run.id'?")

    def _routing(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        self._fields(use, "`routing_result`", ROUTING, (name, *fields))

    def _evaluation(self, use: Use, name: str, fields: tuple[str, ...]) -> None:
        self._fields(use, "`evaluation_result`", EVALUATION, (name, *fields))

    def _fields(self, use: Use, what: str, shape: Shape | None, fields: tuple[str, ...]) -> None:
        unknown = unknown_field(shape, fields)
        if unknown is None:
            return
        field, known = unknown
        if isinstance(known, str):
            at = fields.index(field)
            inner = "".join(f".{each}" for each in fields[:at])
            self._report.at_use("FE306", f"{what}{inner} is {known}, it has no field '{field}'", use)
        else:
            self._report.at_use("FE306", f"{what} has no field '{field}'", use, self._report.nearest(field, known))
