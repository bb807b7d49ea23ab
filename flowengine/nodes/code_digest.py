"""Makes digests of values: what a node was handed, and what it can see of its run. Equal digests, equal values.

Theory of operation:

1. A value's digest is the hash of its text in a journal, so it is the same in every process. What a journal cannot
   hold has none (`NotJournalableError`).
2. What a node leaves is its id, its kind, its result (or its failure) and what it saw itself; what a node sees is what
   its parents left, on top of what its whole level sees: inputs, environment, variables, state. So each node costs
   its edges and its own result, whatever the size of the graph.
3. Where several parents meet, the order of all ancestors is part of it, since state is folded in that order.
4. The run's id, times and the calls that were made are no part of what a node sees.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

from flowengine.core.context import Context, NodeResult
from flowengine.core.user_code import is_of_project, unprefixed_text
from flowengine.core.values import FrozenDict, FrozenList
from flowengine.engine.graph import Graph
from flowengine.engine.merging import state_rules
from flowengine.engine.state import ENGINE_OWNED
from flowengine.engine.state_view import KeptView, StateView
from flowengine.engine.walk import Walk
from flowengine.errors import NotJournalableError

__all__ = ["ViewDigests", "digest_handed", "digest_of", "left_by", "level_digest", "source_of", "views_of"]

# --- What a function does, as a text that is the same on every machine

_PLAIN: Final = (str, bytes, int, float, complex, type(None))


def source_of(function: Callable[..., Any]) -> str:
    """The function's name and what it does, for its node's fingerprint: constants, names and bytecode.

    Cheaper than the source text and needs no file; comments and places do not count, nor does the folder of a
    project's module, so that the same function on two machines is the same.
    """
    parts: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", function)]
    seen: dict[int, Any] = {id(function): function}  # With the values, so that no other one comes to have such an id.
    while waiting:
        name, value = waiting.pop()
        text, leads_to = _read(value)
        parts[f"{name} {_name(value)}"] = text
        for each in leads_to:
            if id(each[1]) not in seen:
                seen[id(each[1])] = each[1]
                waiting.append(each)
    own, *others = parts.items()
    return unprefixed_text(" ".join(f"{name}{text}" for name, text in (own, *sorted(others))))


def _name(value: Any) -> str:
    kind = type(value).__qualname__
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', kind)}"


def _read(value: Any) -> tuple[str, list[tuple[str, Any]]]:
    """Returns a digest text of a value's code or data, and the project's values that it refers to, by name."""
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        return _body(code), list(_used_names(function, code))
    if isinstance(value, type):
        members = {name: each for name, each in vars(value).items() if not name.startswith("__") or callable(each)}
        inner = [(name, each) for name, each in members.items() if isinstance(each, FunctionType)]
        plain = {name: each for name, each in members.items() if _is_plain(each)}
        bases = [(each.__qualname__, each) for each in value.__bases__ if is_of_project(each.__module__)]
        return repr(sorted(plain.items())), [*inner, *bases]
    return (value.text if isinstance(value, _Assigned) else repr(value)), []


class _Assigned(NamedTuple):
    """The assignments of a name in a module."""

    text: str


def _used_names(function: Any, code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yields the values of the names in a function's code, if they belong to the project or are plain constants."""
    if not is_of_project(getattr(function, "__module__", None) or ""):
        return
    names = set(_names(code))
    known: Mapping[str, Any] = getattr(function, "__globals__", {})
    for name in sorted(names):
        value = known.get(name)
        if isinstance(value, ModuleType):
            yield from _of_module(value, names)
        elif value is not None:
            yield from _of_name(known, name, value)


def _of_module(module: ModuleType, names: set[str]) -> Iterator[tuple[str, Any]]:
    if is_of_project(module.__name__):
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if not isinstance(value, ModuleType):
                yield from _of_name(vars(module), name, value)


def _of_name(known: Mapping[str, Any], name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the relevant values of a module's name."""
    if _is_plain(value):
        yield f"{known.get('__name__', '')}.{name}", value
    elif isinstance(value, FunctionType | type):
        if is_of_project(value.__module__):
            yield name, value
    elif assigned := _assignments(str(known.get("__file__") or "")).get(name):
        yield f"{known.get('__name__', '')}.{name}", _Assigned(assigned)


def _is_plain(value: Any) -> bool:
    """Tells whether a value is one that stays as it is, and its text says all of it."""
    if isinstance(value, tuple):
        return all(_is_plain(each) for each in cast("tuple[Any, ...]", value))
    return isinstance(value, _PLAIN)


def _assignments(file: str) -> Mapping[str, str]:
    """Name → what the top level of a file assigns to it, without places and comments."""
    try:
        return _read_assignments(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return {}


@cache
def _read_assignments(file: str, changed: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(Path(file).read_bytes()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and getattr(node, "value", None) is not None:
                found[target.id] = found.get(target.id, "") + ast.dump(node)
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _body(code: CodeType) -> str:
    constants = [_constant(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _body(value)
    # A set's order differs from process to process.
    return repr(sorted(map(repr, cast(frozenset[Any], value)))) if isinstance(value, frozenset) else repr(value)


_SHORT: Final = 1_000
"""Characters of a text that is not worth remembering the digest of."""
_REMEMBERED: Final = 256
_ATOMS: Final[frozenset[type[Any]]] = frozenset({type(None), bool, int, float})


def digest_of(value: Any) -> str:
    """The digest of a value that a journal can hold; `NotJournalableError` for any other."""
    from flowengine.journal.codec import encode_value  # Most runs hand on nothing whose digest is asked for.

    return hashlib.sha256(encode_value(value).encode()).hexdigest()[:32]


class Handed:
    """Digests of what the nodes of one run are handed. What many of them share is looked at once.

    >>> Handed().digest({"a": [1]}) == Handed().digest({"a": [1]})
    True
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}
        """By the value's `id`, which is its own while the value is held here."""

    def digest(self, values: Mapping[str, Any]) -> str | None:
        """The digest of some values by name; None where one of them cannot be written down."""
        try:
            return digest_of({name: self._part(each) for name, each in values.items()})
        except NotJournalableError:
            return None

    def _part(self, value: Any) -> Any:
        kind = cast(Any, type(value))
        if kind in _ATOMS or (kind is str and len(value) <= _SHORT):
            return value
        if kind is not str and kind is not FrozenDict and kind is not FrozenList:
            return (digest_of(value),)  # It may change, or only this code sees it.
        known = self._known.get(id(value))
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[id(value)] = (value, digest_of(value))
        return (known[1],)


def digest_handed(context: Context, values: Mapping[str, Any]) -> str | None:
    """The digest of what a node's body is handed; None where it cannot be written down."""
    handed = Handed() if context.runtime.scope is None else context.runtime.scope.once(Handed, Handed)
    return handed.digest(values)


class ViewDigests:
    """Digests of what each node of a level can see."""

    def __init__(
        self,
        graph: Graph,
        level: str,
        left: Callable[[int], Any],
        patches: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """`level`: the digest of what all its nodes see. `left`: what became of a node that is settled (`left_by`).
        `patches`: node → what it finds in shared state beside what its ancestors wrote."""
        self.graph = graph
        self._level = level
        self._left_by = left
        self._patches = patches
        self._left: dict[int, str] = {}

    def digest_view(self, number: int) -> str:
        """The digest of all that a node sees, whose ancestors are settled."""
        todo = [number]
        while todo:  # Not by recursion: a chain may have thousands of nodes.
            at = todo[-1]
            unknown = [each for each in self.graph.parents[at] if each not in self._left]
            if unknown:
                todo += unknown
                continue
            todo.pop()
            if at != number and at not in self._left:
                vertex = self.graph.vertices[at]
                self._left[at] = digest_of([vertex.id, vertex.kind, self._above(at), self._left_by(at)])
        return self._above(number)

    def _above(self, number: int) -> str:
        graph, parents = self.graph, self.graph.parents[number]
        order = [graph.ids[each] for each in graph.ancestry.of(number)] if len(parents) > 1 else ()
        patch = self._patches.get(number)
        return digest_of([self._level, dict(patch or {}), [self._left[each] for each in parents], list(order)])


def left_by(result: NodeResult | None, failure: Sequence[str] | None, status: str) -> Any:
    """Returns a node's outcome as its successors see it. `failure`: its message, and the definition that decides what
    follows.
    """
    if result is not None:
        return result._replace(given=None)
    return status if failure is None else list(failure)


def level_digest(inputs: Mapping[str, Any], env: Mapping[str, str], state: Any, kept: Mapping[str, Any]) -> str:
    """The digest of what all nodes of a flow's own level see."""
    return digest_of([sorted(inputs.items()), sorted(env.items()), state, sorted(kept.items())])


def views_of(walk: Walk, definition: Callable[[str], str], outside: str = "") -> ViewDigests:
    """Returns digests of what a walk's nodes can see. `definition`: a node's, by path; `outside`: the container's
    view.
    """

    def left(number: int) -> Any:
        error = walk.error_of(number)
        failure = None if error is None else (error.message, definition(walk.path_of(number)))
        return left_by(walk.result_of(number), failure, walk.status_of(number))

    store, root = walk.store, walk.store.root
    rules, kept = state_rules(store.keys), dict(KeptView(store, root, _as_it_is))
    level = level_digest(walk.inputs, walk.env, rules, kept)
    if walk.prefix:
        found = dict(StateView(store, root, _as_it_is)), [store.owned(root, key) for key in ENGINE_OWNED]
        level = digest_of([level, outside, dict(walk.variables), *found])
    return ViewDigests(walk.graph, level, left, walk.patches)


def _as_it_is(value: Any) -> Any:
    """Returns the value itself, because computing a digest changes nothing."""
    return value
