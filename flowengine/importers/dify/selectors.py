"""Turns Dify's references to values into expressions of ours: selectors, `{{#node.field#}}` in texts, comparisons.

A reference is looked up where it stands: what a node in a branch may not have given has a default, what a later or an
unknown node gives is an error that says so. Text of the source that looks like a template of ours stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from flowengine.core import is_map
from flowengine.importers.dify.graph_levels import DifyGraph, DifyNode
from flowengine.importers.flow_text import escape_text, fill_text, key_path, quote, quote_value, status_test, to_tag
from flowengine.importers.source_tree import as_list, as_map, is_list

_REFERENCE: Final = re.compile(r"\{\{#([\w$.\-]{1,200})#\}\}")
NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_TYPES: Final = {"image": "image/", "audio": "audio/", "video": "video/"}


COMPARISONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("is", "=", "==", "all of"), "=="),
    **dict.fromkeys(("is not", "≠", "!="), "!="),
    **dict.fromkeys((">", "after"), ">"),
    **dict.fromkeys(("<", "before"), "<"),
    **dict.fromkeys(("≥", ">="), ">="),
    **dict.fromkeys(("≤", "<="), "<="),
}
"""Comparison of the source → ours."""


class UnknownValueError(Exception):
    """A reference to something that is not there; the message says what."""


class Value(NamedTuple):
    """An expression, and what is known of it."""

    expression: str
    absent_without: str | None = None
    """The node that may have been skipped; then there is no value."""
    is_plain: bool = True
    """A path, which `default` can follow; else the node's status is asked."""

    def with_default(self, default: str = '""') -> str:
        """The expression, which gives the default where a node before was skipped."""
        if self.absent_without is None:
            return self.expression
        if self.is_plain:
            return f"({self.expression} | default({default}))"
        return f"({self.expression} if {status_test(self.absent_without)} else {default})"

    @property
    def printed(self) -> str:
        """The expression as a template that keeps its type."""
        expression = self.with_default()
        return to_tag(expression[1:-1] if self.absent_without and self.is_plain else expression)


def words_of(selector: object) -> list[str]:
    """The parts of a selector."""
    return [str(each) for each in as_list(selector)]


def escape_values(value: Any) -> Any:
    """A value whose texts are templates that print them."""
    if isinstance(value, str):
        return escape_text(value)
    if is_map(value):
        return {str(key): escape_values(each) for key, each in value.items()}
    return [escape_values(each) for each in value] if is_list(value) else value


_EMPTY: Final = {"string": '[none, ""]', "array": "[none, []]", "number": "[none]", "": '[none, "", [], {}]'}
_FILE_FIELDS: Final = {"name": "name", "size": "size", "mime_type": "media_type"}


def _of_input(expression: str, fields: Sequence[str]) -> Value:
    """A value of the flow, or a field of the file that it is."""
    if not fields or not expression.startswith("inputs."):
        return Value(key_path(expression, fields))
    if fields[0] in _FILE_FIELDS:
        return Value(f"{expression}.{_FILE_FIELDS[fields[0]]}")
    if fields[0] == "type":
        names = ", ".join(f'"{kind}": "{kind}"' for kind in _TYPES)
        return Value(f'({{ {names} }}).get({expression}.media_type | split("/") | first, "document")', is_plain=False)
    if fields[0] == "extension":
        return Value(f'("." ~ ({expression}.name | split(".") | last))', is_plain=False)
    raise UnknownValueError(f"the {fields[0][:40]} of a file")


class Selectors:
    """Looks up what a selector names, and notes which node refers to which."""

    def __init__(
        self,
        graph: DifyGraph,
        outputs: Callable[[DifyNode, Sequence[str]], Value],
        names: Mapping[tuple[str, str], str],
        container: Callable[[DifyNode, DifyNode, Sequence[str]], Value | None],
    ) -> None:
        """`outputs` says what a node gives; `names` are the inputs, the state and the environment, by (scope, name);
        `container` what the inside of an iteration or a loop sees of it."""
        self._graph = graph
        self._outputs = outputs
        self._names = names
        self._container = container
        self.references: dict[str, set[str]] = {}
        """Node → the nodes of its level that it refers to, by the ids of the source."""

    def find(self, selector: Sequence[str], at: DifyNode | None) -> Value:
        """The value that a selector names; `at` is None for the outputs of the flow."""
        parts = [
            part
            for each in selector
            for part in ([each] if each == "sys" or not each.startswith("sys.") else each.split(".", 1))
        ]
        if len(parts) > 1 and parts[1] == "sys":
            parts = parts[1:]
        if len(parts) < 2:
            raise UnknownValueError(f"the reference {'.'.join(parts) or 'to nothing'}")
        place = self._graph.places.get(parts[0])
        scope = "start" if place is not None and place.is_start else parts[0]
        if (scope, parts[1]) in self._names:
            return _of_input(self._names[scope, parts[1]], parts[2:])
        if place is None or place.is_start:
            raise UnknownValueError(f"the value {'.'.join(parts)}, which nothing gives")
        if at is not None and place.source in self._graph.containers_of(at):
            inner = self._container(place, at, parts[1:])
            if inner is None:
                raise UnknownValueError(f"the value {'.'.join(parts)} of the container")
            return inner
        return self._of_node(place, parts[1:], at)

    def _of_node(self, place: DifyNode, fields: Sequence[str], at: DifyNode | None) -> Value:
        graph = self._graph
        if place.id == "":
            raise UnknownValueError(f"a value of '{place.title}', which never runs")
        if at is None:
            if place.parent is not None:
                raise UnknownValueError(f"a value of '{place.title}', which stands inside another node")
            value = self._outputs(place, fields)
            return value if graph.is_certain(place) else value._replace(absent_without=place.id)
        anchor = graph.anchor(at, place.parent)
        if anchor is None or not graph.is_before(place, anchor):
            raise UnknownValueError(f"a value of '{place.title}', which does not come before")
        self.references.setdefault(anchor.source, set()).add(place.source)
        value = self._outputs(place, fields)
        return value if graph.is_always_before(place, anchor) else value._replace(absent_without=place.id)

    def convert_text(
        self, text: object, at: DifyNode | None, special: Mapping[str, str] | None = None
    ) -> tuple[str, list[str]]:
        """A text as a template, and what is not known in it; `special` are names such as `context`, as templates."""
        unknown: list[str] = []
        source = text if isinstance(text, str) else "" if text is None else json.dumps(text, ensure_ascii=False)

        def meaning(match: re.Match[str]) -> str | None:
            name = match[1]
            if special is not None and name in special:
                return special[name]
            try:
                return self.find(name.split("."), at).printed if "." in name else None
            except UnknownValueError as error:
                unknown.append(str(error))
                return ""

        return fill_text(source, _REFERENCE, meaning, last=lambda rest: escape_text(rest, is_end=True)), unknown

    def compare(self, condition: Mapping[str, Any], at: DifyNode) -> str:
        """One comparison of an if-else as an expression; `UnknownValueError` where ours cannot say it."""
        value = self.find(words_of(condition.get("variable_selector")), at)
        kind = str(condition.get("varType") or condition.get("var_type") or "")
        operator = str(condition.get("comparison_operator") or "")
        operand = condition.get("value")
        if operator in {"empty", "is empty", "not empty", "is not empty", "null", "not null", "exists", "not exists"}:
            first = value.with_default("none")
            word = "not in" if operator in {"not empty", "is not empty", "not null", "exists"} else "in"
            return f"{first} {word} {_EMPTY.get(kind.partition('[')[0], _EMPTY[''])}"
        if kind.endswith("[file]") and condition.get("sub_variable_condition"):
            return self._compare_files(value, condition)
        right = self._right(operand, kind, at)
        is_number = kind in {"number", "integer", "float"}
        first = value.with_default("0" if is_number else "[]" if kind.startswith("array") else '""')
        if operator in {"contains", "not contains"}:
            return f"{right} {'in' if operator == 'contains' else 'not in'} {first}"
        if operator in {"in", "not in"}:
            rows = [self._right(each, "string", at) for each in (as_list(operand) or [operand])]
            return f"{first} {operator} [{', '.join(rows)}]"
        if operator in {"start with", "starts with", "end with", "ends with"}:
            size = f"({right} | length)"
            part = f"[:{size}]" if operator.startswith("start") else f"[({first} | length) - {size}:]"
            return f"{first}{part} == {right}"
        if operator not in COMPARISONS:
            raise UnknownValueError(f"the comparison '{operator}'")
        return f"{first} {COMPARISONS[operator]} {right}"

    def _right(self, operand: Any, kind: str, at: DifyNode) -> str:
        if isinstance(operand, list):
            return quote_value(operand)
        if isinstance(operand, bool):
            return "true" if operand else "false"
        text = "" if operand is None else str(operand)
        lone = _REFERENCE.fullmatch(text)
        if lone is not None:
            return self.find(lone[1].split("."), at).with_default()
        if kind in {"number", "integer", "float"}:
            if not NUMBER.fullmatch(text):
                raise UnknownValueError(f"the number '{text[:40]}'")
            return text
        if kind == "boolean" and text.lower() in {"true", "false"}:
            return text.lower()
        pieces = _REFERENCE.split(text)
        parts = [
            self.find(each.split("."), at).with_default() if odd % 2 else quote(each) for odd, each in enumerate(pieces)
        ]
        return f"({' ~ '.join(parts)})" if len(parts) > 1 else parts[0]

    def _compare_files(self, value: Value, condition: Mapping[str, Any]) -> str:
        rows = as_list(as_map(condition.get("sub_variable_condition")).get("conditions"))
        if len(rows) != 1 or as_map(rows[0]).get("key") != "type":
            raise UnknownValueError("the comparison of files by anything but their type")
        operand = as_map(rows[0]).get("value")
        kinds = [str(each) for each in (as_list(operand) or [operand])]
        operator = str(as_map(rows[0]).get("comparison_operator"))
        if not kinds or operator not in {"in", "is", "contains", "not in", "is not"}:
            raise UnknownValueError(f"the comparison '{operator}' of files")
        types = f'{value.with_default("[]")} | map(attribute="media_type") | map("string") | join(" ")'
        tests = [_tests_of_kind(kind, types) for kind in kinds]
        condition_text = " or ".join(tests)
        return f"not ({condition_text})" if operator.startswith(("not", "is not")) else f"({condition_text})"


def _tests_of_kind(kind: str, types: str) -> str:
    if kind in _TYPES:
        return f'"{_TYPES[kind]}" in ({types})'
    if kind != "document":
        raise UnknownValueError(f"files of the type '{kind[:40]}'")
    return f'"text/" in ({types}) or "application/" in ({types})'
