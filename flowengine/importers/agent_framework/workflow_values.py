"""Says what the variables, formulas and texts of a declarative workflow are in a flow.

`Local.X` and the other variables are keys of the state; `System.LastMessage` is the input `message`, or what the user
answered last. What the formulas read of a variable is studied before, so that its first value and the shape of an
answer that is put into it are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowengine.core import is_map
from flowengine.importers.agent_framework.action_flow import Action
from flowengine.importers.agent_framework.power_fx import Fx, FxError, FxNode, names_in, parse_fx, path_of
from flowengine.importers.flow_text import fill_text, key_path, literal, plain_words, quote_value, to_expression, to_tag
from flowengine.importers.form import ImportedFlow, ImportedProject, ImportLedger
from flowengine.importers.import_names import FieldNames, Names
from flowengine.importers.read_keys import watch
from flowengine.importers.source_tree import YamlSource, as_list, as_map, is_list

MOST_NESTED: Final = 30
_FILLED: Final = re.compile(r"\{([^{}]{1,2000})\}")
_NUMBERS: Final = frozenset({"+", "-", "*", "/", "<", ">", "<=", ">="})
ROW: Final = "[]"
"""The part of a field's path that stands for any row of the table before it."""
_ONE_ROW: Final = frozenset({"First", "Last", "Index", "LookUp"})
_SOME_ROWS: Final = frozenset({"Filter", "FirstN", "LastN", "Sort"})
_EITHER: Final = frozenset({"Concat", "Sum", "Max", "Min", "Average"})
"""Functions of several values, or of a table and one of its columns."""


class WorkflowValues:
    """The known values of one workflow."""

    def __init__(self, source: YamlSource, beside: Mapping[str, YamlSource]) -> None:
        self._source = source
        self._beside = beside
        self._data = watch(as_map(source.data))
        self._ledger = ImportLedger()
        self.project = ImportedProject("Microsoft Agent Framework", self._ledger)
        trigger = as_map(self._data.get("trigger") or self._data.get("beginDialog"))
        name = (
            self._data.get("name")
            or self._data.get("id")
            or trigger.get("id")
            or source.file.rsplit("/", 1)[-1].partition(".")[0]
        )
        self._flow = ImportedFlow(
            Names().id(name, "workflow"), source.origin("kind"), plain_words(self._data.get("description")) or None
        )
        self.project.flows.append(self._flow)
        self._names = Names({"stubs", "imported_values"})
        self._stub_names = Names()
        self._agent_names: dict[str, str] = {}
        self._states: dict[tuple[str, ...], str] = {}
        self._state_names = FieldNames()
        self._numeric: set[tuple[str, ...]] = set()
        self._fields: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
        """Variable → the fields that formulas read of it, with their types."""
        self._input_names = FieldNames()
        self._input_ids: dict[str, str] = {}
        """Input of the source in small letters → its name."""
        self._output_names = FieldNames()
        self._output_ids: dict[tuple[str, ...], str] = {}
        self._conversations: dict[tuple[str, ...], str] = {}
        self._messages_key = ""
        self._spoken: set[str] = set()
        self._asks = False
        self._hears = False
        """Whether a formula reads what the user said last."""
        self._sample_answer = ""
        """A text that formulas compare the user's answer with."""
        self._changes: list[str] = []
        self._by_hand = ""
        self._fx = Fx(self._resolve)
        self._depth = 0

    def _study(self, actions: Sequence[Action]) -> None:
        """Learn what formulas take of the variables: fields, truth, numbers."""
        for action in actions:
            for text in _texts(action.data):
                for formula in [text[1:]] if text.startswith("=") else _FILLED.findall(text):
                    try:
                        self._study_formula(parse_fx(formula), "any")
                    except FxError:
                        continue
            if action.kind in {"Question", "RequestExternalInput", "WaitForInput", "Confirmation"} or _outer_loop(
                action
            ):
                self._asks = True

    def _study_path(self, path: tuple[str, ...], kind: str) -> None:
        self._hears = self._hears or "LastMessage" in ".".join(path[:2])
        variable, fields = split_name(path)
        if fields and path[0] not in {"System", "Workflow", "inputs", "Env"}:
            kinds = self._fields.setdefault(variable, {})
            if kinds.get(fields, "any") == "any":
                kinds[fields] = kind
        elif kind == "number":
            self._numeric.add(variable)

    def _study_formula(self, node: FxNode, kind: str, rows: tuple[str, ...] = ()) -> None:
        """`rows`: the path of the table whose rows the formula is of; a lone name in it is a column."""
        path = _row_path(node)
        if path is not None:
            is_column = bool(rows) and len(path) == 1
            if not is_column or path[0] not in {"Value", "ThisRecord"}:
                self._study_path((*rows, *path) if is_column else path, kind)
        if path_of(node) is not None:
            return
        if node.kind == "call" and _goes_through(node):
            table = _row_path(node.parts[0])
            inside = (*table, ROW) if table is not None else ()
            if table is not None:
                self._study_path(inside, "any")
            self._study_formula(node.parts[0], "any", rows)
            of_rows = "number" if node.value in _EITHER - {"Concat"} else "any"
            for part in node.parts[1:]:
                self._study_formula(part, of_rows, inside)
            return
        inner = "any"
        if node.kind == "not":
            inner = "boolean"
        elif node.kind == "binary":
            inner = "boolean" if node.value in {"and", "or"} else "number" if node.value in _NUMBERS else "any"
            if node.value in {"==", "!="}:
                texts = [str(each.value) for each in node.parts if each.kind == "value" and isinstance(each.value, str)]
                if texts and any(each[:1] == ("System",) for each in names_in(node)):
                    self._sample_answer = self._sample_answer or texts[0]
                other = next((each.value for each in node.parts if each.kind == "value"), None)
                inner = "boolean" if isinstance(other, bool) else "number" if isinstance(other, int | float) else "any"
        elif node.kind == "call" and node.value in {"Mod", "Sum", "Round"}:
            inner = "number"
        elif node.kind == "call" and node.value == "If" and node.parts:
            self._study_formula(node.parts[0], "boolean")
        for part in node.parts:
            self._study_formula(part, inner, rows)

    # --- Variables

    def _resolve(self, path: Sequence[str]) -> str:
        """The expression of a dotted name."""
        scope, *rest = path
        low = scope.lower()
        if low == "system":
            return self._system(rest)
        if low == "env" and rest:
            return self._environment(rest[0])
        if (low == "workflow" and rest and rest[0].lower() == "inputs") or low in {"inputs", "input"}:
            fields = rest[1:] if low == "workflow" else rest
            return key_path("inputs", [self._input(fields[0]), *fields[1:]]) if fields else "inputs.message"
        if not rest:
            raise FxError(f"the name {scope[:40]}")
        variable, fields = split_name(tuple(path))
        return key_path(f"shared_state.{self._state(variable)}", fields)

    def _input(self, name: str) -> str:
        if name.lower() not in self._input_ids:
            self._input_ids[name.lower()] = self._input_names.id(name, "input")
            self._flow.inputs[self._input_ids[name.lower()]] = {"type": "string", "default": ""}
        return self._input_ids[name.lower()]

    def _system(self, rest: Sequence[str]) -> str:
        name = rest[0] if rest else ""
        if name.startswith("LastMessage"):
            if name.endswith("Id") or (len(rest) > 1 and rest[1] == "Id"):
                return "run.id"
            self._take_message()
            return f"shared_state.{self._last_message()}" if self._asks else "inputs.message"
        if name in {"ConversationId", "Conversation", "WorkflowId"}:
            return "run.id"
        raise FxError(f"the value System.{'.'.join(rest)[:60]}")

    def _last_message(self) -> str:
        return self._state(("System", "LastMessage"))

    def _take_message(self) -> None:
        self._flow.inputs.setdefault("message", {"type": "string", "description": "What the user writes"})

    def _answer(self) -> dict[str, Any]:
        """Returns a person's answer for the flow test: the value that the workflow compares with, if any."""
        self._flow.samples["message"] = "a message"
        return {"choice": "answer", "form": {"answer": self._sample_answer or "a message"}}

    def _environment(self, name: str) -> str:
        variable = self.project.add_variable(name, "a value of the workflow's environment", is_read=True)
        return f'(env.{variable} | default(""))'

    def _state(self, variable: tuple[str, ...]) -> str:
        if variable not in self._states:
            key = self._state_names.id(variable[-1], "variable")
            self._states[variable] = key
            self._flow.shared_state[key] = {"default": 0 if variable in self._numeric else "", "merge": "replace"}
        return self._states[variable]

    def _variable(self, value: object) -> str:
        """The key of the state that an action writes."""
        raw = as_map(value).get("path", value)
        text = str(raw or "").removeprefix("=").removeprefix("init:")
        parts = tuple(each for each in text.split(".") if each)
        if not parts or parts[0] in {"System", "Env"}:
            raise FxError(f"the variable '{text[:60]}'")
        variable, fields = split_name(parts if len(parts) > 1 else ("Local", *parts))
        if fields:
            raise FxError(f"a write to a field, '{text[:60]}'")
        if variable[0] == "Outputs":
            if variable not in self._output_ids:
                self._output_ids[variable] = self._output_names.id(variable[-1], "output")
            self._flow.outputs[self._output_ids[variable]] = to_tag(f"shared_state.{self._state(variable)}")
        return self._state(variable)

    def _text(self, value: object) -> str:
        """A text with formulas in braces, or a formula, as a template."""
        if is_map(value):
            row = as_map(value)
            if "text" in row:
                return self._text(row["text"])
            if len(row) == 1 and next(iter(row.values())) is None:
                return self._text("{" + next(iter(row)) + "}")  # YAML reads a lone {Local.X} as a map.
            raise FxError("a message of another kind than text")
        if is_list(value):
            return "\n".join(self._text(each) for each in as_list(value))
        text = "" if value is None else str(value)
        if text.startswith("="):
            return self._formula(text)
        return fill_text(text, _FILLED, self._fill_formula)

    def _fill_formula(self, match: re.Match[str]) -> str | None:
        """Turns the content of a text's braces into a template; None where it is no formula."""
        try:
            return to_tag(self._fx.expression(match[1].strip()))
        except FxError:
            if re.match(r"\s*(Local|Topic|Global|System|Workflow|Env)\.", match[1]):
                raise
            return None

    def _formula(self, text: str) -> str:
        return self._fx.template(text[1:].strip())

    def _value(self, value: Any, depth: int = 0) -> Any:
        """A value of the source: a formula, a constant, or a map of them."""
        if depth > MOST_NESTED:
            raise FxError("a value that is nested too deeply")
        if isinstance(value, str):
            return self._formula(value) if value.startswith("=") else literal(value)
        if is_map(value):
            return {str(key): self._value(each, depth + 1) for key, each in as_map(value).items()}
        if is_list(value):
            return [self._value(each, depth + 1) for each in as_list(value)]
        return value

    def _condition(self, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        text = str(value or "")
        return self._fx.condition(text[1:] if text.startswith("=") else text)


def _outer_loop(action: Action) -> bool:
    return bool(as_map(as_map(action.data.get("input")).get("externalLoop")).get("when"))


def split_name(path: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A variable with its scope, and the fields behind it."""
    scope = path[0].lower()
    if scope in {"topic", "local", "turn", "variables"}:
        return ("Local", *path[1:2]), path[2:]
    if scope == "workflow" and len(path) > 2 and path[1].lower() == "outputs":
        return ("Outputs", path[2]), path[3:]
    return path[:2], path[2:]


def inner(value: Any) -> str:
    """A value as an expression: what is between the braces of a template, or a constant."""
    return quote_value(value, _inner_text)


def _inner_text(text: str) -> str:
    if "{%" in text and re.fullmatch(r"\{\{ ((?:(?!\}\}).)*) \}\}", text, re.DOTALL) is None:
        raise FxError("a text for each row, inside of another formula")
    return to_expression(text)


def _row_path(node: FxNode) -> tuple[str, ...] | None:
    """The dotted name that a part is, or that it takes rows of; `[]` stands for a row."""
    if node.kind == "field":
        before = _row_path(node.parts[0])
        return None if before is None else (*before, str(node.value))
    if node.kind == "call" and node.parts and node.value in _ONE_ROW | _SOME_ROWS:
        table = _row_path(node.parts[0])
        return table if table is None or node.value in _SOME_ROWS else (*table, ROW)
    return path_of(node)


def _goes_through(node: FxNode) -> bool:
    """Tells whether a call's first argument is a table."""
    if not node.parts or node.value in _ONE_ROW | _SOME_ROWS | {"CountRows", "CountIf", "ForAll"}:
        return bool(node.parts)
    names = names_in(node.parts[1]) if len(node.parts) > 1 and node.value in _EITHER else []
    return bool(names) and all(len(each) == 1 for each in names)


def _texts(value: Any, depth: int = 0) -> list[str]:
    if isinstance(value, str):
        return [value[:20_000]]
    if depth > MOST_NESTED * 3:
        return []
    if is_map(value):
        rows = as_map(value)
        if len(rows) == 1 and next(iter(rows.values())) is None:
            return ["{" + next(iter(rows)) + "}"]
        return [text for each in rows.values() for text in _texts(each, depth + 1)]
    return [text for each in as_list(value) for text in _texts(each, depth + 1)]
