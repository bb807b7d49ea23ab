"""An environment that remembers what was read from it, so that what came of it can be used again.

It knows names and values, and nothing of what they are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["Readings"]


class Readings(Mapping[str, str]):
    """Reads another environment.

    >>> environ = {"A": "1"}
    >>> readings = Readings(environ)
    >>> readings.get("A"), readings.get("B"), readings.still_hold()
    ('1', None, True)
    >>> environ["B"] = "2"
    >>> readings.still_hold()
    False
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._read: dict[str, str | None] = {}
        self._all_names = False

    def still_hold(self) -> bool:
        """Whether reading once more would give the same; not known where all names were asked for."""
        get = self._environ.get
        for name, value in self._read.items():
            if get(name) != value:
                return False
        return not self._all_names

    def __getitem__(self, name: str) -> str:
        value = self._read[name] = self._environ.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        self._all_names = True
        return iter(self._environ)

    def __len__(self) -> int:
        self._all_names = True
        return len(self._environ)

    def __repr__(self) -> str:
        return f"<{len(self._read)} variables read>"  # Their values may be keys.
