"""Gives names that the flow format takes: ids of nodes, and names of inputs, outputs and state."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

_TAKEN: Final = frozenset({"inputs", "nodes", "outputs", "result", "item", "each", "round", "run", "env", "output"})


class Names:
    """Gives ids that the flow format takes, each once.

    >>> names = Names()
    >>> [names.id(each) for each in ("Fetch-Text", "fetch text", "2nd try", "问题", "")]
    ['fetch_text', 'fetch_text_2', 'n_2nd_try', 'step', 'step_2']
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {*_TAKEN, *names}
        self._last: dict[str, int] = {}

    def id(self, name: object, otherwise: str = "step") -> str:
        """An id for a name of the source."""
        plain = unicodedata.normalize("NFKD", str(name)[:200]).encode("ascii", "ignore").decode()
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
        base = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")[:80].strip("_")
        base = base if not base[:1].isdigit() else f"n_{base}"
        base = base or otherwise
        number, candidate = self._last.get(base, 1), base
        while candidate in self._names or keyword.iskeyword(candidate):
            number += 1
            candidate = f"{base}_{number}"
        self._last[base] = number
        self._names.add(candidate)
        return candidate


class FieldNames(Names):
    """Names of inputs, outputs and state, where words that no node may be called are free.

    >>> FieldNames().id("result"), Names().id("result")
    ('result', 'result_2')
    """

    def __init__(self) -> None:
        super().__init__()
        self._names = set[str]()
