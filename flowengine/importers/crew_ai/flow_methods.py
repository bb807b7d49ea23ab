"""Reads the methods of a CrewAI flow from its class: what each waits for, what routers may say, which only ask a crew.

A method that only asks a crew with values of the state is a `subflow` node; every other one stays code. It parses, and
runs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flowengine.importers.crew_ai.class_fields import StateField, state_field
from flowengine.importers.crew_ai.crew_reader import CrewReader
from flowengine.importers.flow_text import literal, to_tag
from flowengine.importers.form import ImportedFlow, SourcePlace
from flowengine.importers.import_names import Names
from flowengine.importers.python_code import (
    PythonFunction,
    PythonSource,
    call_name,
    decorators_of,
    last_name,
    literal_of,
    text_of,
)


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
    node: PythonFunction
    triggers: tuple[Trigger, ...]
    labels: tuple[str, ...]
    """The labels that a router may return."""

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

    def __init__(self, crews: CrewReader, source: PythonSource, definition: ast.ClassDef) -> None:
        self.crews = crews
        self.source = source
        self.definition = definition
        self.ledger = crews.ledger
        self.methods = {each.name: each for each in methods_of(definition)}
        self.names = Names()
        self.ids = {each: self.names.id(each) for each in self.methods}
        self.flow = ImportedFlow(crews.names.id(definition.name, "flow"), SourcePlace(source.file, definition.lineno))
        self.loops: dict[str, str] = {}
        """Method in a loop → the loop's id."""

    def _value(self, field: str) -> str:
        """A field of the state as an expression."""
        key = self.keys[field]
        return f"shared_state.{key}" if key in self.flow.shared_state else f"inputs.{key}"

    def _only_asks(self, method: FlowMethod) -> tuple[str, dict[str, str], dict[str, str]] | None:
        """Crew, inputs and fields that are kept of its answer; None where the method does more."""
        crew_call: tuple[str, dict[str, str]] | None = None
        answer = ""
        texts: dict[str, str] = {}
        field_texts: dict[str, str] = {}
        for statement in method.node.body:
            if _says_nothing(statement):
                continue
            if isinstance(statement, ast.Return):
                is_answer = statement.value is None or self._answer_of(statement.value, answer) is not None
                if not is_answer or crew_call is None:
                    return None
                continue
            value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if value is None or len(targets) > 1:
                return None
            call = self._kickoff(value, texts)
            if call is not None and crew_call is None:
                crew_call = call
                if targets and not isinstance(targets[0], ast.Name):
                    return None
                answer = call_name(targets[0]) if targets else ""
                continue
            if not targets:
                return None
            field = state_field(targets[0])
            if field is not None and crew_call is not None:
                text = self._answer_of(value, answer)
                if text is None:
                    return None
                field_texts[field] = text
            elif isinstance(targets[0], ast.Name) and crew_call is None:
                text = self._text_of(value, texts)
                if text is None:
                    return None
                texts[targets[0].id] = text
            else:
                return None
        return None if crew_call is None else (*crew_call, field_texts)

    def _kickoff(self, value: ast.expr, texts: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
        node = value.value if isinstance(value, ast.Await) else value
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr not in ("kickoff", "kickoff_async", "akickoff"):
            return None
        making = node.func.value
        while isinstance(making, ast.Call | ast.Attribute):
            if isinstance(making, ast.Call) and isinstance(making.func, ast.Name):
                break
            making = making.func if isinstance(making, ast.Call) else making.value
        name = making.func.id if isinstance(making, ast.Call) and isinstance(making.func, ast.Name) else ""
        if name not in self.crew_flows or (isinstance(making, ast.Call) and (making.args or making.keywords)):
            return None
        argument = next(
            (each.value for each in node.keywords if each.arg == "inputs"), node.args[0] if node.args else None
        )
        if argument is None:
            return name, {}
        if not isinstance(argument, ast.Dict):
            return None
        inputs: dict[str, str] = {}
        for key, each in zip(argument.keys, argument.values, strict=True):
            text = self._text_of(each, texts)
            if not isinstance(key, ast.Constant) or text is None:
                return None
            inputs[str(key.value)] = text
        names = set(self.crews.input_ids.get(self.crew_flows[name].name, {}))
        return (name, inputs) if names <= inputs.keys() else None

    def _text_of(self, node: ast.expr, texts: Mapping[str, str]) -> str | None:
        """A value as a template: a literal, a field of the state, or a text with these in it."""
        field = state_field(node)
        if field is not None and field in self.keys:
            return to_tag(self._value(field))
        if isinstance(node, ast.Name):
            return texts.get(node.id)
        if isinstance(node, ast.JoinedStr):
            parts: list[str | None] = [
                self._text_of(each.value, texts)
                if isinstance(each, ast.FormattedValue) and each.format_spec is None and each.conversion == -1
                else literal(str(literal_of(each)))
                if isinstance(each, ast.Constant)
                else None
                for each in node.values
            ]
            return None if None in parts else "".join(each or "" for each in parts)
        value = text_of(node)
        return None if value is None else literal(value)

    def _answer_of(self, node: ast.expr, answer: str) -> str | None:
        """Returns the part of a crew's answer that is read, as a template of `output`."""
        if not answer:
            return None
        if isinstance(node, ast.Name) and node.id == answer:
            return "{{ output.result }}"
        code = ast.unparse(node)
        if code in (f"{answer}.raw", f"str({answer})", f"{answer}.to_dict()", f"{answer}.json_dict"):
            return "{{ output.result }}"
        match = re.fullmatch(rf"{re.escape(answer)}(?:\.pydantic\.([a-z]\w*)|\[['\"]([a-z]\w*)['\"]\])", code)
        if match is not None:
            return to_tag(f"output.result.{match[1] or match[2]}")
        return "{{ output.result }}" if code == f"{answer}.pydantic" else None


def methods_of(definition: ast.ClassDef) -> Iterator[FlowMethod]:
    for node in definition.body:
        if not isinstance(node, PythonFunction):
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
            is_all = is_all or inner_all or last_name(each) == "and_"
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            names.append(each.value)
        elif call_name(each):
            names.append(last_name(each))
    return names, is_all


def _labels_of(node: PythonFunction) -> list[str]:
    """The texts that a method returns."""
    labels: list[str] = []
    for each in ast.walk(node):
        if isinstance(each, ast.Return) and each.value is not None:
            values = [each.value.body, each.value.orelse] if isinstance(each.value, ast.IfExp) else [each.value]
            labels += [one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return list(dict.fromkeys(labels))


def _says_nothing(statement: ast.stmt) -> bool:
    """Tells whether a statement only prints, or says what the method is."""
    if isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return True
    name = call_name(statement.value) if isinstance(statement.value, ast.Call) else ""
    return name == "print" or re.fullmatch(r"(logger|logging|log|console)\.\w+", name) is not None
