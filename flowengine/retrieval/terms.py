"""Texts as the terms by which they are found, in any script: pure functions, the same for indexing and asking.

Words of scripts that write without spaces (and of Korean, whose particles stick to its words) count by pairs of
characters. Identifiers count by their parts and as a whole. It knows no index and no language's grammar but a few
endings of English.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

__all__ = ["VERSION", "asked_terms", "is_one_spaceless", "stem", "stems", "terms", "trailing"]

VERSION: Final = 1
"""Raised when the terms of any text change: an index that was made with other terms is made anew."""

_SPACELESS: Final = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"  # kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u1100-\u11ff\uac00-\ud7a3"  # Hangul
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ede\u1000-\u1049\u1780-\u17d3"  # Thai, Lao, Myanmar, Khmer
)
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
"""Vowel signs and the like: parts of words that `\\w` leaves out."""

_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9_]+")
_WORD: Final = re.compile(f"([{_SPACELESS}]+)|(?:[^\\W{_SPACELESS}]|[{_MARKS}])+")
_PARTS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a an the of to in is it and or for on by with as at be this that from are was were which its will has have "
        "can then than may such used using also these those there their they you your we our should would could does "
        "do did been being but no not so if what how when where who why i me my",
    )
)
"""English words that say nothing about a subject."""


def terms(text: str) -> list[str]:
    """The terms of a text in their order, repeated ones included.

    >>> terms("parseHTTPHeader of max_files")
    ['parse', 'http', 'header', 'parsehttpheader', 'of', 'max', 'files', 'maxfiles']
    >>> terms("緑茶を飲む。ﾃｽﾄ 水")
    ['緑茶', '茶を', 'を飲', '飲む', 'テス', 'スト', '水']
    """
    found: list[str] = []
    if text.isascii():
        for word in _ASCII_WORD.findall(text):
            found += _of_word(word)
        return found
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text)):
        word = match[0]
        found += _of_word(word) if match[1] is None else _pairs(word)
    return found


def trailing(text: str) -> list[str]:
    """The last character of each run without spaces. With the pairs of `terms`, every character of a run begins one.

    >>> trailing("緑茶を飲む。水")
    ['む']
    """
    if text.isascii():
        return []
    plain = unicodedata.normalize("NFKC", text)
    return [run[-1] for run in _RUN.findall(plain) if len(run) > 1]


_RUN: Final = re.compile(f"[{_SPACELESS}]+")


def is_one_spaceless(term: str) -> bool:
    """Whether it is a single character of a script without spaces, which stands for all pairs that begin with it."""
    return len(term) == 1 and _RUN.fullmatch(term) is not None


def asked_terms(query: str, *, is_stemmed: bool = True) -> list[str]:
    """The different terms of a query; words that say nothing are left out unless there is nothing else.

    >>> asked_terms("How are the orders counted?"), asked_terms("who are you")
    (['order', 'count'], ['who', 'are', 'you'])
    """
    found = dict.fromkeys(terms(query))
    subject = [term for term in found if term not in _COMMON]
    return list(dict.fromkeys(map(stem, subject or found))) if is_stemmed else subject or list(found)


def stems(text: str) -> list[str]:
    """The terms of a text, stemmed."""
    return [stem(term) for term in terms(text)]


@lru_cache(maxsize=65_536)
def stem(term: str) -> str:
    """An English word without its commonest endings; any other term as it is.

    >>> [stem(word) for word in ("queries", "caching", "stopped", "matches", "class", "bus", "緑茶")]
    ['query', 'cach', 'stop', 'match', 'class', 'bus', '緑茶']
    """
    if len(term) < 4 or not (term.isascii() and term.isalpha()):
        return term
    word = _singular(term)
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and _VOWEL.search(base):
            return _undoubled(base)
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


_VOWEL: Final = re.compile("[aeiouy]")


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _undoubled(base: str) -> str:
    """`stopp` is `stop` and `queri` is `query`; an `e` at the end goes, as it went with the ending of the others."""
    if base.endswith("i"):
        return base[:-1] + "y"
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    return base[:-1] if base.endswith("e") and len(base) > 4 else base


@lru_cache(maxsize=65_536)
def _of_word(word: str) -> tuple[str, ...]:
    """A word, or the parts of an identifier and the whole of it without underscores."""
    if word.islower() and word.isalpha():
        return (word.casefold(),)
    found = _PARTS.findall(word) if word.isascii() else word.split("_")
    parts = [part.casefold() for part in found if part]
    return (*parts, "".join(parts)) if len(parts) > 1 else tuple(parts)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] if len(run) > 1 else [run]
