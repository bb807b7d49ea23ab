"""Puts a token in the place of each value that a recognizer finds.

The same value has the same token for as long as the masker lives, so a reader of the masked text can still see that two
places speak of one address. A token is a keyed hash: without the key nobody can find the value by trying all phone
numbers. The masker keeps no value.
"""

from __future__ import annotations

import hashlib
import secrets
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from flowengine.masking.folding import folded
from flowengine.masking.recognizer import Recognizer, Span
from flowengine.masking.registry import DEFAULT

__all__ = ["Masker"]

_MAX_DEPTH: Final = 100
_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
"""A token has no digits, so that none is taken for a number when a text is masked again."""


class Masker:
    """Masks texts; made once a run.

    >>> masker = Masker(key=b"of this run")
    >>> masker.mask("連絡先はada@example.jpです。")
    '連絡先は<MAIL:mpjhklbn>です。'
    >>> masker.mask("Write to ada@example.jp!")
    'Write to <MAIL:mpjhklbn>!'
    """

    def __init__(self, recognizers: Sequence[Recognizer] = DEFAULT, key: bytes | None = None) -> None:
        """Of recognizers that find the same text, the earlier one names it. `key`: a secret; processes that share it
        give the same tokens. None: a new one."""
        self.recognizers = tuple(recognizers)
        self._key = hashlib.sha256(secrets.token_bytes(16) if key is None else key).digest()

    def mask(self, text: str) -> str:
        """The text with a token in the place of each value. A masked text stays as it is."""
        parts: list[str] = []
        at = 0
        for span in self.spans(text):
            parts += (text[at : span.start], self._token(span.kind, text[span.start : span.end]))
            at = span.end
        return "".join([*parts, text[at:]]) if parts else text

    def spans(self, text: str) -> list[Span]:
        """Where the values are, in the text's order and without overlaps."""
        read = folded(text)
        found = _disjoint(span for each in self.recognizers for span in each.find(read.text))
        return [Span(read.start(each.start), read.end(each.end), each.kind) for each in found]

    def value(self, value: Any) -> Any:
        """A JSON value with all its texts masked, keys included; what is none passes as it is."""
        return self._value(value, 0)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if depth >= _MAX_DEPTH:
            return "<nested too deeply>" if isinstance(value, Mapping | list | tuple) else value
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value).items()
            return {self._value(key, depth + 1): self._value(each, depth + 1) for key, each in entries}
        if isinstance(value, list | tuple):
            return [self._value(each, depth + 1) for each in cast("Iterable[Any]", value)]
        return value

    def _token(self, kind: str, value: str) -> str:
        """Of the value as it is folded: an address in full-width letters is the same address."""
        said = f"{kind}\0{folded(value).text}".encode("utf-8", "replace")
        digest = hashlib.blake2s(said, key=self._key, digest_size=4).hexdigest()
        return f"<{kind}:{digest.translate(_LETTERS)}>"


def _disjoint(found: Iterable[Span]) -> list[Span]:
    """The spans that no earlier found one overlaps, in the text's order."""
    taken: list[Span] = []
    for span in found:
        place = bisect(taken, span)
        before, after = taken[max(place - 1, 0) : place], taken[place : place + 1]
        if all(each.end <= span.start for each in before) and all(span.end <= each.start for each in after):
            taken.insert(place, span)
    return taken
