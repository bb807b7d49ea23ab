"""Copies a file's data with what is wrong put right where that can be told, and else left out or stood in
for, so that the checks that come after can look at the rest in the same pass.

What is wrong, and where, was found before; what stays unknown is noted in `Gaps`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from functools import cache
from typing import Any, Final, cast

from flowengine.core import TRAITS, is_map
from flowengine.errors import Diagnostic, did_you_mean
from flowengine.flowfile.analysis import Gaps, key_path, node_at
from flowengine.flowfile.schema import ID_PATTERN, spec_of
from flowengine.flowfile.translate import Problem
from flowengine.flowfile.yaml import KeyPath, SourceText

STAND_IN_CODE: Final = "unnamed:unnamed"
"""A reference to code, in the place of a missing one."""

STAND_IN_FLOW: Final = "unnamed:"
"""A file, in the place of a missing one."""

STAND_IN_ADDRESS: Final = "https://unnamed/"
"""An address, in the place of a missing one."""

_STAND_IN_NODE: Final[Mapping[str, Any]] = {"prompt": "-"}
_STAND_IN_INPUT: Final[Mapping[str, Any]] = {"schema": {}}
"""An input of any type: what reads it reads something that there is."""

_STAND_INS: Final[Mapping[str, Any]] = {
    "flowengine": "v1",
    "name": "unnamed",
    "nodes": {"unnamed": _STAND_IN_NODE},
    "instruction": "-",
    "routes": {"unnamed": {}},
    "call": STAND_IN_CODE,
    "tool": STAND_IN_CODE,
    "url": STAND_IN_ADDRESS,
    "code": "return None",
    "if": "true",
    "over": "[]",
    "max_iterations": 1,
    "flow": STAND_IN_FLOW,
    "message": "-",
}
"""Values that take the place of a required one, so that the rest of the file can be looked at."""

_STAND_IN_MEMBERS: Final[Mapping[str, Any]] = {"routes": {}, "cases": {"if": "true", "label": "unnamed"}, "agents": {}}
"""Values that take the place of a wrong member of a map or a list, by the name of that."""

_CONSEQUENCES: Final = frozenset({"FE202", "FE208", "FE214"})
"""Codes of missing keys: not news where mending itself removed the key."""


class Mending:
    """The data of one file, mended round by round."""

    def __init__(self, data: Mapping[str, Any], source: SourceText, gaps: Gaps) -> None:
        self._copy = _Copy(data)
        self._source = source
        self._gaps = gaps
        self._gap_places: set[KeyPath] = set()
        """Places that something was taken away from."""

    def supply_types(self) -> list[Diagnostic]:
        """Nodes without a type whose keys say which one is meant are of that type; each is told once, with that."""
        diagnostics: list[Diagnostic] = []
        nodes = self._copy.data.get("nodes")
        todo: list[tuple[KeyPath, Any]] = [(("nodes", name), node) for name, node in _items(nodes)]
        while todo:
            path, node = todo.pop()
            if is_map(node):
                if "type" not in node:
                    diagnostics += self._supply_type(path, node)
                todo += [((*path, "nodes", name), inner) for name, inner in _items(node.get("nodes"))]
        return diagnostics

    def _supply_type(self, path: KeyPath, node: Mapping[str, Any]) -> Iterator[Diagnostic]:
        misspelt = next((key for key, value in node.items() if _is_type(key, value)), None)
        kind = None if misspelt or node.keys() <= _keys_of("agent") else _type_by_keys(node.keys(), but="agent")
        if misspelt is not None:
            diagnostic = self._diagnostic(
                "FE201", f"unknown key '{misspelt}'", (*path, misspelt), "; did you mean 'type'?"
            )
            self._rename((*path, misspelt), "type")
            yield diagnostic
        elif kind is not None:
            yield self._diagnostic("FE202", "the key 'type' is missing", path, f"; did you mean 'type: {kind}'?")
            self._copy.put((*path, "type"), kind)

    def _diagnostic(self, code: str, message: str, path: KeyPath, hint: str) -> Diagnostic:
        file = None if self._source.path is None else str(self._source.path)
        line, column = self._source.key_position(path)
        return Diagnostic(code, message, file, line, column, ".".join(node_at(path)) or None, hint)

    @property
    def data(self) -> dict[str, Any]:
        return self._copy.data

    def news(self, problems: Sequence[Problem]) -> list[Problem]:
        """The problems that mending did not cause itself."""
        return [
            each
            for each in problems
            if each.diagnostic.code not in _CONSEQUENCES or not {each.path, each.path[:-1]} & self._gap_places
        ]

    def mend(self, problems: Sequence[Problem], drop_nodes: bool) -> None:
        """Puts the offending values right, or leaves them out; whole nodes, where that did not help."""
        for problem in problems:
            path = (*problem.path, problem.lacks) if problem.lacks else problem.path
            if path:
                self._mend(path, problem, drop_nodes)

    def _mend(self, path: KeyPath, problem: Problem, drop_nodes: bool) -> None:
        code, proposal = problem.diagnostic.code, _proposed_name(problem.diagnostic.hint)
        value = self._copy.at(path)
        last, node = str(path[-1]), key_path(node_at(path))
        if node and drop_nodes:
            self._replace(node, _STAND_IN_NODE, self._copy.at(node))
        elif code == "FE201" and self._rename(path, proposal):
            return
        elif code == "FE206" and not re.fullmatch(ID_PATTERN, last):
            self._name(path, proposal)
        elif code == "FE204" and path == node:
            self._type(path, cast("dict[str, Any]", value), proposal)
        elif path == node and is_map(value):  # A condition without any of its three forms.
            form = "call" if "routes" in value else "if"
            self._replace((*path, form), _STAND_INS[form], None, missing=True)
        elif last == "needs" and isinstance(value, str):
            self._copy.put(path, [value])
        elif len(path) > 1 and path[0] == "inputs":
            self._copy.put(path[:2], _STAND_IN_INPUT)
        elif code == "FE201":
            self._remove(path, value, is_clear=proposal is not None or last in _known_keys())
        else:
            self._replace(path, self._stand_in(path), value, missing=problem.lacks is not None)

    def _remove(self, path: KeyPath, value: Any, *, is_clear: bool) -> None:
        """A key that nothing takes goes; `is_clear`: nothing else is lacking for it."""
        if not is_clear:
            self._gaps.note(path, value, unknown_key=True)
            self._gap_places.add(path[:-1])
        self._copy.put(path, None)

    def _stand_in(self, path: KeyPath) -> Any:
        last, above = str(path[-1]), path[:-1]
        if path == key_path(node_at(path)):
            return _STAND_IN_NODE
        if last == "routes":
            return self._routes(above)
        if above == ("shared_state",):
            return {}
        holder = str(above[-1]) if above else ""
        return _STAND_IN_MEMBERS.get(holder, _STAND_INS.get(last))

    def _routes(self, holder: KeyPath) -> Any:
        """Routes of a node or an agent whose own are not known."""
        node = self._copy.at(holder)
        kind = node.get("type") if is_map(node) else None
        if kind == "approval":  # Which choice is made at its expiry is not known either.
            self._copy.put((*holder, "expires"), None)
            self._copy.put((*holder, "on_expire"), None)
        return None if kind == "evaluation" else _STAND_INS["routes"]

    def _replace(self, path: KeyPath, new: Any, old: Any, *, missing: bool = False) -> None:
        self._gaps.note(path, old, missing=missing)
        self._gap_places.add(path[:-1])
        self._copy.put(path, new)

    def _rename(self, path: KeyPath, proposal: str | None) -> bool:
        """A misspelt key takes the place of the one that is probably meant; False where that is there too."""
        holder = self._copy.at(path[:-1])
        if proposal is None or not is_map(holder) or proposal in holder:
            return False
        self._copy.rename(path, proposal)
        self._source.call(path, proposal)
        return True

    def _name(self, path: KeyPath, proposal: str | None) -> None:
        """A name that cannot be declared becomes one that can."""
        holder = cast("dict[str, Any]", self._copy.at(path[:-1]))
        name = proposal if proposal is not None and re.fullmatch(ID_PATTERN, proposal) else "unnamed"
        while name in holder:
            name += "_"
        self._gaps.note_word(str(path[-1]))
        self._copy.rename(path, name)
        self._source.call(path, name)

    def _type(self, path: KeyPath, node: dict[str, Any], proposal: str | None) -> None:
        """A node of an unknown type is of the one that is probably meant."""
        kind = proposal or _type_by_keys(node.keys())
        if kind is None:
            self._replace(path, _STAND_IN_NODE, node)
        else:
            self._copy.put((*path, "type"), kind)
            self._gap_places.add(path)  # It is a guess, so what such a node lacks is not told.


@cache
def _keys_of(kind: str) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in spec_of(kind).model_fields.items())


@cache
def _known_keys() -> frozenset[str]:
    """Keys of some node: one that stands at another node is not misspelt."""
    return frozenset(key for kind in TRAITS for key in _keys_of(kind))


def _items(nodes: Any) -> Iterable[tuple[str, Any]]:
    return [each for each in nodes.items() if not each[0].startswith("x-")] if is_map(nodes) else ()


def _is_type(key: str, value: Any) -> bool:
    if not isinstance(value, str) or value not in TRAITS or not did_you_mean(key, ("type",)):
        return False
    return key not in _known_keys() and not key.startswith("x-")


def _type_by_keys(keys: Set[str], *, but: str | None = None) -> str | None:
    """The only type that takes these keys and needs no others; none where the type `but` takes them all."""
    keys, fitting = keys & _known_keys(), list[str]()
    if but is not None and keys <= _keys_of(but):
        return None
    for kind in TRAITS:
        fields = spec_of(kind).model_fields.items()
        required = {field.alias or name for name, field in fields if field.is_required()}
        if required - {"type"} <= keys - {"type"} <= _keys_of(kind):
            fitting.append(kind)
    return fitting[0] if len(fitting) == 1 else None


def _proposed_name(hint: str) -> str | None:
    match = re.fullmatch(r"; did you mean '([^']+)'\?", hint)
    return None if match is None else match[1]


class _Copy:
    """A copy of maps and lists in one another that can be changed; each is copied when it is changed first."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data: dict[Any, Any] = dict(data)
        self._copied: dict[int, Any] = {id(self.data): self.data}

    def at(self, path: KeyPath) -> Any:
        """The value at a path; None where there is none."""
        value: Any = self.data
        for key in path:
            value = _member(value, key)
        return value

    def put(self, path: KeyPath, new: Any) -> None:
        """Another value at a path, or none, where the new one is None; then a list that it is in goes as a whole."""
        above, last = path[:-1], path[-1:][0]
        holder = self._holder(above)
        if not isinstance(holder, dict | list) or (isinstance(holder, list) and new is None):
            self.put(above, None)
        elif new is None:
            cast("dict[Any, Any]", holder).pop(last, None)
        else:
            cast("dict[Any, Any]", holder)[last] = deepcopy(new)

    def rename(self, path: KeyPath, name: str) -> None:
        """The key at a path has another name; its place among the others stays."""
        holder: Any = self._holder(path[:-1])
        pairs = [(name if key == path[-1] else key, value) for key, value in holder.items()]
        holder.clear()
        holder.update(pairs)

    def _holder(self, path: KeyPath) -> Any:
        """The map or list at a path, with those round it, as copies."""
        value: Any = self.data
        for key in path:
            inner = _member(value, key)
            if is_map(inner) or isinstance(inner, list):
                inner = self._copy_member(value, key, cast("Any", inner))
            value = inner
        return value

    def _copy_member(self, holder: Any, key: str | int, inner: Any) -> Any:
        """A member as a copy that stands in its holder."""
        if id(inner) not in self._copied:
            inner = inner.copy()
            self._copied[id(inner)] = inner
            holder[key] = inner
        return inner


def _member(value: Any, key: str | int) -> Any:
    """The member of a map or a list; None where there is none."""
    if is_map(value):
        return value.get(cast("str", key))
    if isinstance(value, list) and isinstance(key, int):
        inner = cast("list[Any]", value)
        return inner[key] if key < len(inner) else None
    return None
