"""Notes which keys of a source a reader asks for, so that an import can name those that it does not carry.

It knows no format: which keys say nothing of what a run does, such as the place of a node on a screen, comes with the
question.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping
from typing import Any, cast

from flowengine.core import is_map


class WatchedMap(dict[str, Any]):
    """A map that notes which of its keys were asked for; who walks through it asks for all of them."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        super().__init__({key: _watch_inside(each) for key, each in entries.items()})
        self.unread = set(entries)
        self.is_read = False
        """Whether anything was asked of it."""

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return super().__iter__()

    def keys(self) -> Any:
        self._note_all()
        return super().keys()

    def values(self) -> Any:
        self._note_all()
        return super().values()

    def items(self) -> Any:
        self._note_all()
        return super().items()

    def unnoted_items(self) -> ItemsView[str, Any]:
        """The items, of which nothing is noted."""
        return super().items()

    @property
    def is_off(self) -> bool:
        """Whether `enabled`, or a key that ends so, switches off what else it says."""
        return any(each is False and key.endswith("enabled") for key, each in self.unnoted_items())

    def _note(self, key: str) -> None:
        self.is_read = True
        self.unread.discard(key)

    def _note_all(self) -> None:
        self.is_read = True
        self.unread.clear()


def watch(entries: Mapping[str, Any]) -> WatchedMap:
    """A copy of a map, and of the maps inside it, that notes what is read of it."""
    return entries if isinstance(entries, WatchedMap) else WatchedMap(entries)


def _watch_inside(value: Any) -> Any:
    if is_map(value):
        return watch(value)
    return [_watch_inside(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def take_unread(watched: Mapping[str, Any], other_keys: Collection[str] = ()) -> list[str]:
    """The keys that were not asked for, sorted, as paths without the numbers of lists; a second time there are none.

    `other_keys`, keys without a value, and what a key such as `enabled` switches off are left out. A map of which
    nothing was asked was handed on as a whole.

    >>> watched = watch({"a": 1, "b": {"c": 2, "d": 3}, "e": {"f": 4}, "g": [], "h": {"enabled": False, "i": 5}})
    >>> watched["b"].get("c"), watched["e"], watched["h"].get("enabled")
    (2, {'f': 4}, False)
    >>> take_unread(watched), take_unread(watched)
    (['a', 'b.d'], [])
    """
    paths: set[str] = set()
    _collect(watched, "", other_keys, paths)
    return sorted(paths)


def _collect(value: Any, path: str, other_keys: Collection[str], paths: set[str]) -> None:
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            _collect(each, path, other_keys, paths)
    if not isinstance(value, WatchedMap) or (path and not value.is_read):
        return
    unread, value.unread = value.unread, set()
    for key, each in () if value.is_off else value.unnoted_items():
        at = f"{path}.{key}" if path else key
        if at in other_keys or _says_nothing(each):
            continue
        if key in unread:
            paths.add(at)
        else:
            _collect(each, at, other_keys, paths)


def _says_nothing(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_says_nothing, cast("list[Any]", value)))
    if isinstance(value, WatchedMap):
        return value.is_off or all(_says_nothing(each) for _, each in value.unnoted_items())
    return value is None or value is False or value == ""
