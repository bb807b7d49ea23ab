"""Keeps the shared state as a DAG of write sets, with every rule about merging what several nodes wrote.

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
5. A level inside a node (a round, an item) has a store of its own on top of what that node saw:
   what was not written inside is looked up outside, and what was written inside becomes the node's
   own write once the level counts. A round stands on what the rounds before it wrote as well: all
   of it as one write between the two stores, so that a look-up costs the same in every round.

Source of the rules: rules 6 and 8 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final, cast

from flowengine.core import EMPTY, freeze
from flowengine.engine.merging import FOLDS, Merge, StateKey, check_contribution
from flowengine.errors import StateConflictError, StateError, did_you_mean

ROUTING: Final = "=routing_result"
EVALUATION: Final = "=evaluation_result"
ENGINE_KEYS: Final = ("_last_prompt", "_last_generation")
"""Engine-owned keys that are seen in shared state under these names."""
ENGINE_OWNED: Final = (ROUTING, EVALUATION, *ENGINE_KEYS)
"""All keys that are the engine's; no declared key has such a name."""
_KEPT: Final = "=kept:"
KEPT: Final[Mapping[str, Merge]] = {
    "=kept:conversation": "append",
    "=kept:memory": "append",
    "=kept:skills": "union",
}
"""Names under which nodes keep values for their descendants (`NodeResult.kept`) that are added up; a flow may add some.
Any other name is replaced, and a name of `IN_ORDER` only by a node that comes after the one that kept it."""
IN_ORDER: Final = "context:"
"""How names begin that no two nodes without an order may keep something under: data of typed contexts."""


def kept_key(name: str) -> str:
    """The key under which the store has what nodes keep under a name."""
    return _KEPT + name


def kept_name(key: str) -> str | None:
    """The name under which nodes keep what the store has under a key; None for every other key."""
    return key.removeprefix(_KEPT) if key.startswith(_KEPT) else None


class Layer:
    """The writes of one node, on top of the state that it saw."""

    __slots__ = ("memo", "number", "up", "writes")

    def __init__(self, number: float, writes: Mapping[str, Any], up: Layer | tuple[Layer, ...] | None = None) -> None:
        self.number = number
        """Topological number of the writer; -1 for the root. Half a number less: what was put before a node."""
        self.writes = writes
        self.up = up
        self.memo: dict[str, Any] | None = None


_NOTHING: Final[Mapping[str, Any]] = {}
_Entry = tuple[float, Any] | None


class KeyRules:
    """The declared keys of shared state and their merge rules; computed once for a flow."""

    __slots__ = ("checked", "defaults", "folding", "guarded", "keys")

    def __init__(self, keys: Mapping[str, StateKey], adding: Iterable[str] = ()) -> None:
        """`adding`: names under which nodes keep lists that are added up, beside those of all flows."""
        self.keys = keys
        self.defaults: Mapping[str, Any] = {name: freeze(key.default) for name, key in keys.items()}
        self.folding = {name: FOLDS[key.merge] for name, key in keys.items() if key.merge in FOLDS}
        """Key → its fold, for the keys that take contributions."""
        self.folding |= {name: FOLDS[merge] for name, merge in KEPT.items()}
        self.folding |= {kept_key(name): FOLDS["append"] for name in adding}
        self.checked = {name: key for name, key in keys.items() if key.type or key.merge in FOLDS}
        self.guarded = {name for name, key in keys.items() if key.merge == "error"}


class StateStore:
    """The state of one run.

    >>> store = StateStore({"n": StateKey(0, "sum")})
    >>> one, two = store.write(1, store.root, {"n": 2}), store.write(2, store.root, {"n": 3})
    >>> store.get(store.meet(3, [one, two]), "n")
    5
    """

    def __init__(self, keys: Mapping[str, StateKey] | KeyRules, initial: Mapping[str, Any] = EMPTY) -> None:
        """`initial`: what the run begins with of what nodes keep for one another (`NodeResult.kept`)."""
        rules = keys if isinstance(keys, KeyRules) else KeyRules(keys)
        self.keys, self._defaults, self.folding = rules.keys, rules.defaults, rules.folding
        self._checked, self._guarded = rules.checked, rules.guarded
        self._initial: Mapping[str, Any] = (
            {_KEPT + name: freeze(value) for name, value in initial.items()} if initial else {}
        )
        self._outside: tuple[StateStore, Layer] | None = None
        self._begin()

    def _begin(self) -> None:
        self.root = Layer(-1, _NOTHING)
        self._newest: dict[str, Layer] = {}
        self._written_keys: set[str] = set()

    def inside(self, base: Layer, before: Mapping[str, Any] = _NOTHING) -> StateStore:
        """The store of a level inside a node that saw a layer of this one.

        `before`: what levels wrote that come before it inside the same node (a loop's earlier rounds). It is seen
        inside, and is no part of what the level contributes.
        """
        if before:
            between = self.inside(base)
            return between.inside(between.write(0, between.root, before))
        store = StateStore.__new__(StateStore)
        store.keys, store.folding = self.keys, self.folding
        store._checked, store._guarded = self._checked, self._guarded
        store._defaults = _Outside(self, base)
        store._initial = _KeptOutside(self, base)
        store._outside = self, base
        store._begin()
        return store

    # --- writing

    def admit(self, number: float, base: Layer, writes: Mapping[str, Any]) -> dict[str, Any]:
        """The writes, frozen and allowed: declared keys, fitting types, no conflict.

        Raises `StateError`, or `StateConflictError` with the numbers of both writers in `args`.
        """
        admitted: dict[str, Any] = {}
        newest = self._newest
        for key, value in writes.items():
            if key not in self._defaults:
                raise StateError(f"shared state has no key '{key}'{did_you_mean(key, self.keys)}")
            if key in self._checked:
                check_contribution(key, self._checked[key], value)
            if key in newest and key in self._guarded and not (key in base.writes and base is newest[key]):
                self._check_order(number, base, key)
            admitted[key] = freeze(value)
        return admitted

    def check_kept(self, number: float, base: Layer, names: Iterable[str]) -> None:
        """Raise a `StateConflictError`, as `admit` does, where a node without an order has kept data of a typed context
        that this one keeps as well."""
        for name in names:
            if name.startswith(IN_ORDER) and _KEPT + name in self._newest:
                self._check_order(number, base, _KEPT + name)

    def _check_order(self, number: float, base: Layer, key: str) -> None:
        last, entry = self._newest[key], self._find(base, key)
        if entry is None or entry[0] != last.number:
            raise Conflict(key, last.number, number)

    def write(self, number: float, base: Layer, writes: Mapping[str, Any]) -> Layer:
        """The layer of a node that wrote (writes are admitted already)."""
        layer = Layer(number, writes, base)
        for key in writes:
            self._newest[key] = layer
        self._written_keys.update(writes)
        return layer

    def meet(self, number: int, layers: Sequence[Layer]) -> Layer:
        """Returns the state seen by a node with these parents: their common layer, or a merge of their layers."""
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
        if key not in self._written_keys:
            return self._defaults[key]
        if key in self.folding:
            return self._fold(layer, key)
        if key in layer.writes:
            return layer.writes[key]
        entry = self._find(layer, key)
        return self._defaults.get(key) if entry is None else entry[1]

    def owned(self, layer: Layer, key: str) -> Any:
        """The value of an engine-owned key, or None where no ancestor set it."""
        entry = self._find(layer, key) if key in self._written_keys else None
        if entry is not None:
            return entry[1]
        return None if self._outside is None else self._outside[0].owned(self._outside[1], key)

    def kept(self, layer: Layer, name: str) -> Any:
        """Returns the values that the writers above a layer keep under a name; raises `KeyError` if there are none."""
        key = _KEPT + name
        if key in self._written_keys:
            entry = (0, self._fold(layer, key)) if key in self.folding else self._find(layer, key)
            if entry is not None and (entry[1] or key not in self.folding):
                return entry[1]
        return self._initial[key]

    def contributions(self, layer: Layer, name: str) -> Iterator[tuple[float, Any]]:
        """Yields what each writer above a layer keeps under a name that is added up: its number, and its own part."""
        key = _KEPT + name
        if key in self._written_keys:
            yield from ((each.number, each.writes[key]) for each in self._writers(layer, key))

    def may_keep(self, name: str) -> bool:
        """Tells whether anybody at all keeps something under a name, above whatever layer."""
        key = _KEPT + name
        return key in self._written_keys or key in self._initial

    def kept_names(self) -> Iterator[str]:
        """Every name that somebody keeps something under."""
        names = (each for each in self._written_keys if each.startswith(_KEPT) and each not in self._initial)
        return (each.removeprefix(_KEPT) for each in sorted([*self._initial, *names]))

    def has(self, layer: Layer, key: str) -> bool:
        """Tells whether an engine-owned key was set by an ancestor."""
        if key in self._written_keys and self._find(layer, key) is not None:
            return True
        return self._outside is not None and self._outside[0].has(self._outside[1], key)

    def _find(self, layer: Layer, key: str) -> _Entry:
        """The topologically last write above a layer, itself included: (writer, value)."""
        if key in layer.writes:
            return layer.number, layer.writes[key]
        if layer.memo is not None and key in layer.memo:
            return layer.memo[key]
        stack = [layer]
        while stack:
            at = stack[-1]
            memo = _recall(at, key)
            if memo is None:
                above = _layers_above(at)
                unknown = [each for each in above if _recall(each, key) is None]
                if unknown:
                    stack.extend(unknown)
                    continue
                _remember(at, key, _latest(above, key))
            stack.pop()
        return cast(_Entry, cast(tuple[Any], _recall(layer, key))[0])

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
        start = self._defaults[key] if key in self._defaults else self._initial.get(key)
        return self.folding[key](start, [each.writes[key] for each in self._writers(layer, key)])

    def _writers(self, layer: Layer, key: str) -> list[Layer]:
        """All layers above that wrote a key, itself included, in topological order."""
        visited = {layer}
        stack = [layer]
        writers: list[Layer] = []
        while stack:
            at = stack.pop()
            if key in at.writes:
                writers.append(at)
            for above in _layers_above(at):
                if above not in visited:
                    visited.add(above)
                    stack.append(above)
        writers.sort(key=_number)
        return writers

    # --- what a level adds up to

    def contribution(self, layer: Layer) -> dict[str, Any]:
        """Returns the writes above a layer as one write: a level's contribution to its container."""
        total: dict[str, Any] = {}
        for key in sorted(self._written_keys):
            writers = self._writers(layer, key)
            if writers:
                values = [each.writes[key] for each in writers]
                total[key] = self.folding[key](None, values) if key in self.folding else values[-1]
        return total

    def following(self, before: Mapping[str, Any], contribution: Mapping[str, Any]) -> Mapping[str, Any]:
        """A level's contribution after what the levels before it contributed (a loop's rounds), as one write."""
        if not before or not contribution:
            return contribution or before
        total = {**before, **contribution}
        for key in before.keys() & contribution.keys() & self.folding.keys():
            total[key] = self.folding[key](None, [before[key], contribution[key]])
        return total

    def combined(self, contributions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Contributions of levels that are not ordered among themselves (a map's items), as one, in their order.

        Raises `StateError` where several wrote a key that has no merge rule; what is the engine's and cannot be
        added up is left out.
        """
        gathered: dict[str, list[Any]] = {}
        for each in contributions:
            for key, value in each.items():
                gathered.setdefault(key, []).append(value)
        total: dict[str, Any] = {}
        for key, values in gathered.items():
            if key in self.folding:
                total[key] = self.folding[key](None, values)
            elif key in self._guarded and len(values) > 1:
                raise StateError(
                    f"{len(values)} items wrote the shared state key '{key}', which has no merge rule: "
                    f"declare `merge` for it, as items come in no order"
                )
            elif key in self.keys:
                total[key] = values[-1]
        return total


class _Outside(Mapping[str, Any]):
    """Declared keys as the node saw them that a level is inside."""

    __slots__ = ("_layer", "_store")

    def __init__(self, store: StateStore, layer: Layer) -> None:
        self._store = store
        self._layer = layer

    def __getitem__(self, key: str) -> Any:
        return self._store.get(self._layer, key)

    def __contains__(self, key: object) -> bool:
        return key in self._store.keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.keys)

    def __len__(self) -> int:
        return len(self._store.keys)


class _KeptOutside(_Outside):
    """The values kept for a node, under the store's keys."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return self._store.kept(self._layer, key.removeprefix(_KEPT))

    def __contains__(self, key: object) -> bool:
        return key in [kept_key(each) for each in self]

    def __iter__(self) -> Iterator[str]:
        return (kept_key(name) for name in self._store.kept_names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Conflict(StateConflictError):  # noqa: N818 - a fact that the walk turns into the error
    """A conflict by topological numbers; the walk knows the names."""

    def __init__(self, key: str, first: float, second: float) -> None:
        super().__init__(key, (str(first), str(second)))
        self.numbers = (ceil(min(first, second)), ceil(max(first, second)))


# --- Layers


def _number(layer: Layer) -> float:
    return layer.number


def _layers_above(layer: Layer) -> tuple[Layer, ...]:
    if layer.up is None:
        return ()
    return layer.up if isinstance(layer.up, tuple) else (layer.up,)


def _recall(layer: Layer, key: str) -> tuple[_Entry] | None:
    """Looks up a cached value of a key at a layer; wrapped, so that "known to be unset" differs from unknown."""
    if key in layer.writes:
        return ((layer.number, layer.writes[key]),)
    if layer.memo is not None and key in layer.memo:
        return (layer.memo[key],)
    return None


def _remember(layer: Layer, key: str, value: Any) -> None:
    if layer.memo is None:
        layer.memo = {}
    layer.memo[key] = value


def _latest(layers: Iterable[Layer], key: str) -> _Entry:
    latest: _Entry = None
    for layer in layers:
        entry = cast(tuple[_Entry], _recall(layer, key))[0]
        if entry is not None and (latest is None or entry[0] > latest[0]):
            latest = entry
    return latest
