"""Reads the methods of a CrewAI flow from its class: what each waits for, and what its routers may say.

It parses, and runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flowengine.importers.crew_ai_classes import Method
from flowengine.importers.crew_ai_crews import CrewReader
from flowengine.importers.crew_ai_state import StateField
from flowengine.importers.form import ImportedFlow, Names, SourcePlace
from flowengine.importers.python_code import PythonSource, call_name, decorators_of

__all__ = ["FlowMethod", "FlowParts", "Trigger", "methods_of"]


class Trigger(NamedTuple):
    """The event that a method waits for."""

    kind: str
    """`start`, `listen` or `router`."""
    names: tuple[str, ...]
    is_all: bool
    line: int


class FlowMethod(NamedTuple):
    """A method of a flow."""

    name: str
    node: Method
    triggers: tuple[Trigger, ...]
    labels: tuple[str, ...]
    """What a router may say."""

    @property
    def waits_for(self) -> list[str]:
        return [each for trigger in self.triggers for each in trigger.names]

    @property
    def is_router(self) -> bool:
        return any(each.kind == "router" for each in self.triggers)


class FlowParts:
    """State shared by the readers of one flow: its class, its methods, the new flow."""

    # Read before the methods are:
    fields: dict[str, StateField]
    keys: dict[str, str]
    crew_flows: dict[str, ImportedFlow]

    def __init__(self, crews: CrewReader, source: PythonSource, found: ast.ClassDef) -> None:
        self.crews = crews
        self.source = source
        self.found = found
        self.ledger = crews.ledger
        self.methods = {each.name: each for each in methods_of(found)}
        self.names = Names()
        self.ids = {each: self.names.id(each) for each in self.methods}
        self.flow = ImportedFlow(crews.names.id(found.name, "flow"), SourcePlace(source.file, found.lineno))
        self.loops: dict[str, str] = {}
        """Method in a loop → the loop's id."""

    def _place(self, node: ast.AST) -> SourcePlace:
        return SourcePlace(self.source.file, getattr(node, "lineno", 1))

    def _value(self, field: str) -> str:
        """A field of the state as an expression."""
        key = self.keys[field]
        return f"shared_state.{key}" if key in self.flow.shared_state else f"inputs.{key}"


def methods_of(found: ast.ClassDef) -> Iterator[FlowMethod]:
    for node in found.body:
        if not isinstance(node, Method):
            continue
        triggers: list[Trigger] = []
        for name, each in decorators_of(node):
            kind = name.rpartition(".")[2]
            if kind in ("start", "listen", "router"):
                names, is_all = _trigger_names(each.args if isinstance(each, ast.Call) else [])
                triggers.append(Trigger(kind, tuple(names), is_all, each.lineno))
        if triggers:
            yield FlowMethod(node.name, node, tuple(triggers), tuple(_labels_of(node)))


def _trigger_names(nodes: Sequence[ast.expr]) -> tuple[list[str], bool]:
    names: list[str] = []
    is_all = False
    for each in nodes:
        if isinstance(each, ast.Call):
            inner, inner_all = _trigger_names(each.args)
            names += inner
            is_all = is_all or inner_all or call_name(each).rpartition(".")[2] == "and_"
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            names.append(each.value)
        elif call_name(each):
            names.append(call_name(each).rpartition(".")[2])
    return names, is_all


def _labels_of(node: Method) -> list[str]:
    """The texts that a method returns."""
    found: list[str] = []
    for each in ast.walk(node):
        if isinstance(each, ast.Return) and each.value is not None:
            values = [each.value.body, each.value.orelse] if isinstance(each.value, ast.IfExp) else [each.value]
            found += [one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return list(dict.fromkeys(found))
