"""Shared state as a DAG of write sets, and every rule about merging what several nodes wrote.

Theory of operation:

1. A node that writes makes a `Layer` on top of the state it saw; a node that writes nothing passes
   on the layer it saw. A node with several parents sees a meeting point of their layers, or their
   one layer where all agree.
2. So a layer's ancestors are exactly what a node's ancestors wrote, and a look-up walks up and
   remembers. Nothing is copied.
3. Under `error` the writers of a key form a line (each saw the one before it), so a write conflicts
   only if the key's newest write is not the one that this node saw. Under `replace`, and for the
   engine's own keys, the topologically last ancestor that wrote it wins.
4. `append`, `union`, `sum`, `max`, `min` and `update` take contributions and fold them in
   topological order, starting at the default.

Source of the rules: rules 6 and 8 of the flow format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from flowengine.context import EMPTY
from flowengine.errors import StateConflictError, StateError, did_you_mean
from flowengine.values import FrozenDict, FrozenList, freeze, is_json_type, shown

__all__ = [
    "ENGINE_KEYS",
    "ENGINE_OWNED",
    "EVALUATION",
    "KEPT",
    "ROUTING",
    "Conflict",
    "KeptView",
    "Layer",
    "Merge",
    "StateKey",
    "StateStore",
    "StateView",
    "kept_key",
]

Merge = Literal["error", "replace", "append", "union", "sum", "max", "min", "update"]

ROUTING: Final = "=routing_result"
EVALUATION: Final = "=evaluation_result"
ENGINE_KEYS: Final = ("_last_prompt", "_last_generation")
"""Engine-owned keys that are seen in shared state under these names."""
ENGINE_OWNED: Final = (ROUTING, EVALUATION, *ENGINE_KEYS)
"""All keys that are the engine's; no declared key has such a name."""
_KEPT: Final = "=kept:"
KEPT: Final[Mapping[str, Merge]] = {"=kept:conversation": "append", "=kept:skills": "union"}
"""What nodes keep for their descendants (`NodeResult.kept`) and is added up; any other name is replaced."""


class StateKey(NamedTuple):
    """A declared key: its default, how writes meet, and the type that values must have."""

    default: Any = None
    merge: Merge = "error"
    type: str | None = None
    """`string`, `number`, `integer`, `boolean`, `array` or `object`; None: anything."""


def kept_key(name: str) -> str:
    """The key under which the store has what nodes keep under a name."""
    return _KEPT + name


class Layer:
    """What one node wrote, on top of what it saw."""

    __slots__ = ("memo", "number", "up", "writes")

    def __init__(self, number: int, writes: Mapping[str, Any], up: Layer | tuple[Layer, ...] | None = None) -> None:
        self.number = number
        """Topological number of the writer; -1 for the root."""
        self.writes = writes
        self.up = up
        self.memo: dict[str, Any] | None = None


_NOTHING: Final[Mapping[str, Any]] = {}
_Found = tuple[int, Any] | None


class StateStore:
    """The state of one run.

    >>> store = StateStore({"n": StateKey(0, "sum")})
    >>> one, two = store.write(1, store.root, {"n": 2}), store.write(2, store.root, {"n": 3})
    >>> store.get(store.meet(3, [one, two]), "n")
    5
    """

    def __init__(self, keys: Mapping[str, StateKey], kept: Mapping[str, Any] = EMPTY) -> None:
        """`kept`: what the run begins with of what nodes keep for one another (`NodeResult.kept`)."""
        self.keys = keys
        self.root = Layer(-1, _NOTHING)
        self._defaults = {name: freeze(key.default) for name, key in keys.items()}
        # Key → its fold, for the keys that take contributions.
        self.folding = {name: _FOLDS[key.merge] for name, key in keys.items() if key.merge in _FOLDS}
        self.folding |= {name: _FOLDS[merge] for name, merge in KEPT.items()}
        self._kept = {_KEPT + name: freeze(value) for name, value in kept.items()}
        self._checked = {name: key for name, key in keys.items() if key.type or key.merge in _FOLDS}
        self._guarded = {name for name, key in keys.items() if key.merge == "error"}
        self._newest: dict[str, Layer] = {}
        self._written: set[str] = set()

    # --- writing

    def admit(self, number: int, seen: Layer, writes: Mapping[str, Any]) -> dict[str, Any]:
        """The writes, frozen and allowed: declared keys, fitting types, no conflict.

        Raises `StateError`, or `StateConflictError` with the numbers of both writers in `args`.
        """
        admitted: dict[str, Any] = {}
        newest = self._newest
        for key, value in writes.items():
            if key not in self._defaults:
                raise StateError(f"shared state has no key '{key}'{did_you_mean(key, self.keys)}")
            if key in self._checked:
                _check(key, self._checked[key], value)
            if key in newest and key in self._guarded:
                last = newest[key]
                if key not in seen.writes or seen is not last:
                    found = self._find(seen, key)
                    if found is None or found[0] != last.number:
                        raise Conflict(key, last.number, number)
            admitted[key] = freeze(value)
        return admitted

    def write(self, number: int, seen: Layer, writes: Mapping[str, Any]) -> Layer:
        """The layer of a node that wrote (writes are admitted already)."""
        layer = Layer(number, writes, seen)
        for key in writes:
            self._newest[key] = layer
        self._written.update(writes)
        return layer

    def meet(self, number: int, layers: Sequence[Layer]) -> Layer:
        """What a node with these parents' layers sees: their one layer, or a meeting point."""
        first = layers[0]
        for layer in layers:
            if layer is not first:
                break
        else:
            return first
        return Layer(number, _NOTHING, tuple(dict.fromkeys(layers)))

    # --- reading

    def get(self, layer: Layer, key: str) -> Any:
        """The value of a declared key as seen from a layer; `KeyError` for an undeclared one."""
        if key not in self._written:
            return self._defaults[key]
        if key in self.folding:
            return self._fold(layer, key)
        if key in layer.writes:
            return layer.writes[key]
        found = self._find(layer, key)
        return self._defaults.get(key) if found is None else found[1]

    def owned(self, layer: Layer, key: str) -> Any:
        """The value of an engine-owned key, or None where no ancestor set it."""
        if key not in self._written:
            return None
        found = self._find(layer, key)
        return None if found is None else found[1]

    def kept(self, layer: Layer, name: str) -> Any:
        """What the writers above a layer keep under a name; `KeyError` where nobody does."""
        key = _KEPT + name
        if key in self._written:
            found = (0, self._fold(layer, key)) if key in self.folding else self._find(layer, key)
            if found is not None and (found[1] or key not in self.folding):
                return found[1]
        return self._kept[key]

    def kept_names(self) -> Iterator[str]:
        """Every name that somebody keeps something under."""
        written = (each for each in self._written if each.startswith(_KEPT) and each not in self._kept)
        return (each.removeprefix(_KEPT) for each in sorted([*self._kept, *written]))

    def has(self, layer: Layer, key: str) -> bool:
        """Whether an engine-owned key was set by an ancestor."""
        return key in self._written and self._find(layer, key) is not None

    def _find(self, layer: Layer, key: str) -> _Found:
        """The topologically last write above a layer, itself included: (writer, value)."""
        if key in layer.writes:
            return layer.number, layer.writes[key]
        if layer.memo is not None and key in layer.memo:
            return layer.memo[key]
        stack = [layer]
        while stack:
            at = stack[-1]
            known = _known(at, key)
            if known is None:
                above = _above(at)
                unknown = [each for each in above if _known(each, key) is None]
                if unknown:
                    stack.extend(unknown)
                    continue
                _remember(at, key, _latest(above, key))
            stack.pop()
        return cast(_Found, cast(tuple[Any], _known(layer, key))[0])

    def _fold(self, layer: Layer, key: str) -> Any:
        """The contributions above a layer, folded in topological order.

        Along a line of single parents the value so far is extended; at a meeting point all
        contributions are gathered.
        """
        line: list[Layer] = []
        at = layer
        while not (at.memo is not None and key in at.memo) and isinstance(at.up, Layer):
            if key in at.writes:
                line.append(at)
            at = at.up
        value = at.memo[key] if at.memo is not None and key in at.memo else self._gather(at, key)
        _remember(at, key, value)
        fold = self.folding[key]
        for each in reversed(line):
            value = fold(value, [each.writes[key]])
        _remember(layer, key, value)
        return value

    def _gather(self, layer: Layer, key: str) -> Any:
        seen = {layer}
        stack = [layer]
        found: list[Layer] = []
        while stack:
            at = stack.pop()
            if key in at.writes:
                found.append(at)
            for above in _above(at):
                if above not in seen:
                    seen.add(above)
                    stack.append(above)
        found.sort(key=_number)
        start = self._defaults[key] if key in self._defaults else self._kept.get(key)
        return self.folding[key](start, [each.writes[key] for each in found])


class Conflict(StateConflictError):  # noqa: N818 - a fact that the walk turns into the error
    """A conflict by topological numbers; the walk knows the names."""

    def __init__(self, key: str, first: int, second: int) -> None:
        super().__init__(key, (str(first), str(second)))
        self.numbers = (min(first, second), max(first, second))


class KeptView(Mapping[str, Any]):
    """What the ancestors of one node keep for it."""

    __slots__ = ("_layer", "_store")

    def __init__(self, store: StateStore, layer: Layer) -> None:
        self._store = store
        self._layer = layer

    def __getitem__(self, name: str) -> Any:
        return self._store.kept(self._layer, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._store.kept_names() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class StateView(Mapping[str, Any]):
    """Shared state as one node sees it."""

    __slots__ = ("_layer", "_store")

    def __init__(self, store: StateStore, layer: Layer) -> None:
        self._store = store
        self._layer = layer

    def __getitem__(self, key: str) -> Any:
        store, layer = self._store, self._layer
        if key in layer.writes and key not in store.folding:
            return layer.writes[key]
        try:
            return store.get(layer, key)
        except KeyError:
            pass
        if key in ENGINE_KEYS and self._store.has(self._layer, key):
            return self._store.owned(self._layer, key)
        raise KeyError(f"shared state has no key '{key}'{did_you_mean(key, self._store.keys)}")

    def __iter__(self) -> Iterator[str]:
        yield from self._store.keys
        yield from (key for key in ENGINE_KEYS if self._store.has(self._layer, key))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        return key in self._store.keys or (key in ENGINE_KEYS and self._store.has(self._layer, str(key)))

    def __repr__(self) -> str:
        return repr(dict(self))


# --- layers -----------------------------------------------------------------------------------------


def _number(layer: Layer) -> int:
    return layer.number


def _above(layer: Layer) -> tuple[Layer, ...]:
    if layer.up is None:
        return ()
    return layer.up if isinstance(layer.up, tuple) else (layer.up,)


def _known(layer: Layer, key: str) -> tuple[_Found] | None:
    """What is known of a key at a layer, wrapped so that "known to be unset" differs from unknown."""
    if key in layer.writes:
        return ((layer.number, layer.writes[key]),)
    if layer.memo is not None and key in layer.memo:
        return (layer.memo[key],)
    return None


def _remember(layer: Layer, key: str, value: Any) -> None:
    if layer.memo is None:
        layer.memo = {}
    layer.memo[key] = value


def _latest(layers: Iterable[Layer], key: str) -> _Found:
    latest: _Found = None
    for layer in layers:
        found = cast(tuple[_Found], _known(layer, key))[0]
        if found is not None and (latest is None or found[0] > latest[0]):
            latest = found
    return latest


# --- merge rules --------------------------------------------------------------------------------------


def _append(value: Any, contributions: Sequence[Any]) -> Any:
    return FrozenList([*(value or ()), *(each for items in contributions for each in items)])


def _union(value: Any, contributions: Sequence[Any]) -> Any:
    """As `append`, each item once, at its first place. Items need not be hashable."""
    kept: list[Any] = []
    known: set[Any] = set()
    for each in _append(value, contributions):
        mark = _mark(each)
        if mark not in known:
            known.add(mark)
            kept.append(each)
    return FrozenList(kept)


def _mark(value: Any) -> Any:
    """A hashable stand-in that is equal where values are equal (1 and true stay apart)."""
    if isinstance(value, list):
        return ("list", tuple(_mark(each) for each in cast(list[Any], value)))
    if isinstance(value, dict):
        return ("dict", frozenset((key, _mark(each)) for key, each in cast(dict[Any, Any], value).items()))
    try:
        hash(value)
    except TypeError:
        return (type(value).__name__, repr(value))
    return (isinstance(value, bool), value)


def _sum(value: Any, contributions: Sequence[Any]) -> Any:
    # Not the builtin: it may compensate rounding, and then a fold in two steps would differ from one.
    for each in contributions:
        value = each if value is None else value + each
    return value


def _max(value: Any, contributions: Sequence[Any]) -> Any:
    return max([*([] if value is None else [value]), *contributions], default=None)


def _min(value: Any, contributions: Sequence[Any]) -> Any:
    return min([*([] if value is None else [value]), *contributions], default=None)


def _update(value: Any, contributions: Sequence[Any]) -> Any:
    merged: dict[str, Any] = dict(value or {})
    for each in contributions:
        merged.update(each)
    return FrozenDict(merged)


_FOLDS: Final[Mapping[str, Callable[[Any, Sequence[Any]], Any]]] = {
    "append": _append,
    "union": _union,
    "sum": _sum,
    "max": _max,
    "min": _min,
    "update": _update,
}

_CONTRIBUTION: Final[Mapping[str, str]] = {
    "append": "array",
    "union": "array",
    "sum": "number",
    "max": "number",
    "min": "number",
    "update": "object",
}
"""What one contribution must be; it goes before the declared type."""


def _check(key: str, declared: StateKey, value: Any) -> None:
    expected = _CONTRIBUTION.get(declared.merge, declared.type)
    if expected is None or (value is None and expected == declared.type):
        return
    if expected == "number" and declared.type in ("string",) and declared.merge in ("max", "min"):
        expected = "string"
    if not is_json_type(value, expected):
        rule = f" (merge: {declared.merge} takes contributions)" if declared.merge in _FOLDS else ""
        raise StateError(f"shared state key '{key}' takes {expected} values{rule}, found {shown(value)}")
