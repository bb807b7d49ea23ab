"""Shows the state to one node: read-only mappings over the layers, nothing copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

from flowengine.core import UNCHANGEABLE, WRITES_ARE_RETURNED
from flowengine.engine.state import ENGINE_KEYS, Layer, StateStore
from flowengine.errors import did_you_mean

Give: TypeAlias = Callable[[Any], Any]
"""How a value is handed to its reader: as a copy of its own where it could be changed, or as it is."""


class _LayerView(Mapping[str, Any]):
    """Values of one layer, as `give` hands them out."""

    __slots__ = ("_give", "_layer", "_store")

    def __init__(self, store: StateStore, layer: Layer, give: Give) -> None:
        self._store = store
        self._layer = layer
        self._give = give

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class KeptView(_LayerView):
    """The values that a node's ancestors keep for it."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        return self._give(self._store.kept(self._layer, name))

    def __contains__(self, name: object) -> bool:
        return self._store.may_keep(str(name)) and super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._store.kept_names() if name in self)


class StateView(_LayerView):
    """Shared state as one node sees it."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        raise TypeError(WRITES_ARE_RETURNED.format(key=key))

    def __getitem__(self, key: str) -> Any:
        store, layer = self._store, self._layer
        try:
            value = layer.writes[key] if key in layer.writes and key not in store.folding else store.get(layer, key)
        except KeyError:
            if key not in ENGINE_KEYS or not store.has(layer, key):
                raise KeyError(f"shared state has no key '{key}'{did_you_mean(key, store.keys)}") from None
            value = store.owned(layer, key)
        return value if type(value) in UNCHANGEABLE else self._give(value)  # Most need no call.

    def __iter__(self) -> Iterator[str]:
        yield from self._store.keys
        yield from (key for key in ENGINE_KEYS if self._store.has(self._layer, key))

    def __contains__(self, key: object) -> bool:
        return key in self._store.keys or (key in ENGINE_KEYS and self._store.has(self._layer, str(key)))
