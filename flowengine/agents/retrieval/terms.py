"""Splits texts into the terms by which they are found, in any script. Pure; the same for indexing and asking.

Words of scripts that write without spaces (and of Korean, whose particles stick to its words) count by pairs of
characters. Identifiers count by their parts and as a whole. It also writes terms as SQLite's FTS5 takes them. It knows
no index and no language's grammar but a few endings of English.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import cache, cached_property, lru_cache
from typing import Final, NamedTuple

VERSION: Final = 2
"""Raised when the terms of any text change: an index that was made with other terms is made anew."""

_SPACELESS: Final = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"  # kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u1100-\u11ff\uac00-\ud7a3"  # Hangul
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ede\u1000-\u1049\u1780-\u17d3"  # Thai, Lao, Myanmar, Khmer
)
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
"""Vowel signs and the like: parts of words that `\\w` leaves out."""
_FLAG: Final = "[\U0001f1e6-\U0001f1ff]{2}"
_EMOJI: Final = "\u231a-\u23ff\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
"""Each a term by itself, without the tone of a skin and what joins it to others."""

_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9_]+")
_PARTS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


class _Patterns(NamedTuple):
    """The patterns for texts that are not ASCII: to compile them takes 4 ms."""

    word: re.Pattern[str]
    run: re.Pattern[str]
    """Characters of scripts without spaces."""


@cache
def _patterns() -> _Patterns:
    return _Patterns(
        re.compile(f"([{_SPACELESS}]+)|(?:[^\\W{_SPACELESS}]|[{_MARKS}])+|{_FLAG}|[{_EMOJI}]"),
        re.compile(f"[{_SPACELESS}]+"),
    )


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
    >>> terms("Tea🍵👍🏽 in 🇯🇵")
    ['tea', '🍵', '👍', 'in', '🇯🇵']
    """
    words: list[str] = []
    if text.isascii():
        for word in _ASCII_WORD.findall(text):
            words += _split_word(word)
        return words
    for match in _patterns().word.finditer(unicodedata.normalize("NFKC", text)):
        word = match[0]
        words += _split_word(word) if match[1] is None else _split_pairs(word)
    return words


def drop_surrogates(text: str) -> str:
    """The text with `?` for halves of surrogate pairs, which are no text."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def trailing(text: str) -> list[str]:
    """The last character of each run without spaces. With the pairs of `terms`, every character of a run begins one.

    >>> trailing("緑茶を飲む。水")
    ['む']
    """
    if text.isascii():
        return []
    plain = unicodedata.normalize("NFKC", text)
    return [run[-1] for run in _patterns().run.findall(plain) if len(run) > 1]


def is_one_spaceless(term: str) -> bool:
    """Tells whether it is a single character of a script without spaces, which stands for all pairs that begin with
    it.
    """
    return len(term) == 1 and not term.isascii() and _patterns().run.fullmatch(term) is not None


def asked_terms(query: str, *, is_stemmed: bool = True) -> list[str]:
    """The different terms of a query; words that say nothing are left out unless there is nothing else.

    >>> asked_terms("How are the orders counted?"), asked_terms("who are you")
    (['order', 'count'], ['who', 'are', 'you'])
    """
    all_terms = dict.fromkeys(terms(query))
    subject = [term for term in all_terms if term not in _COMMON]
    return list(dict.fromkeys(map(stem, subject or all_terms))) if is_stemmed else subject or list(all_terms)


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
    word = _to_singular(term)
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and _VOWEL.search(base):
            return _undouble(base)
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


_VOWEL: Final = re.compile("[aeiouy]")


def _to_singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _undouble(base: str) -> str:
    """`stopp` is `stop` and `queri` is `query`; an `e` at the end goes, as it went with the ending of the others."""
    if base.endswith("i"):
        return base[:-1] + "y"
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    return base[:-1] if base.endswith("e") and len(base) > 4 else base


@lru_cache(maxsize=65_536)
def _split_word(word: str) -> tuple[str, ...]:
    """A word, or the parts of an identifier and the whole of it without underscores."""
    if word.islower() and word.isalpha():
        return (word.casefold(),)
    pieces = _PARTS.findall(word) if word.isascii() else word.split("_")
    parts = [part.casefold() for part in pieces if part]
    return (*parts, "".join(parts)) if len(parts) > 1 else tuple(parts)


def _split_pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] if len(run) > 1 else [run]


# --- The subject of a question

_HIRAGANA: Final = re.compile(r"[\u3041-\u3096\u309d-\u309f]+")
_KANA: Final = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")
_CHINESE: Final = (
    "为什么|怎么样|怎么|如何|是什么|什么|哪里|哪些|哪个|是多少|多少|是否|可以|请问|请?告诉|我们|你们|他们|一下|需要|应该|"
    r"[我你您他她吗呢]|(?<![\u4e00-\u9fff])请|(?<!目)的|了(?!解)"
)
_KOREAN: Final = (
    r"(?:언제|어디서?|무엇을?|뭐|누가|어떻게|얼마나?|왜|하나요|인가요|입니까|입니다|있나요|됩니까|되나요|합니까|해\s?주세요|알려\s?주세요|주세요)"
    r"(?![\uac00-\ud7a3])"
)
_PARTICLE: Final = (
    r"(?<=[\uac00-\ud7a3]{2})(?:에서|으로|까지|부터|은|는|이|가|을|를|에|의|로|와|과|도|만)(?![\uac00-\ud7a3])"
)


def subject_terms(question: str) -> list[str]:
    """The different terms that say what a question is about; all of its terms where none does.

    >>> subject_terms("When are invoices paid?"), subject_terms("緑茶の入れ方を教えて")
    (['invoic', 'paid'], ['緑茶'])
    >>> subject_terms("怎么申请退款？"), subject_terms("회의는 언제 하나요?")
    (['申请', '请退', '退款'], ['회의'])
    """
    if question.isascii():
        return asked_terms(question)
    plain = unicodedata.normalize("NFKC", question)
    plain = re.sub(_PARTICLE, " ", re.sub(_KOREAN, " ", plain))
    if not _KANA.search(plain):
        return asked_terms(re.sub(_CHINESE, " ", plain)) or asked_terms(question)
    subject = asked_terms(_HIRAGANA.sub(" ", plain))
    # Characters that stand alone between kana are mostly the stems of verbs.
    return [term for term in subject if not is_one_spaceless(term)] or subject or asked_terms(question)


class Holding:
    """The terms that a text holds.

    >>> Holding("お茶は80度、水は20度").share(["茶", "80", "紅茶"])
    0.6666666666666666
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def share(self, terms: Collection[str]) -> float:
        """Returns the share of the required items that is present; 0.0 if none is required."""
        return sum(map(self._holds, terms)) / len(terms) if terms else 0.0

    def _holds(self, term: str) -> bool:
        return term in self._plain if is_one_spaceless(term) else term in self._terms

    @cached_property
    def _terms(self) -> frozenset[str]:
        return frozenset((*stems(self._text), *trailing(self._text)))

    @cached_property
    def _plain(self) -> str:
        return unicodedata.normalize("NFKC", self._text)


# --- Terms for FTS5

TOKENIZER: Final = "unicode61 remove_diacritics 0 categories 'L* N* M* Co So'"
"""Leaves our terms whole."""

_MOST: Final = 64
"""Terms that are asked for of either end of a query: a long prompt says what it wants at its beginning or its end."""


def to_index_text(text: str) -> str:
    """A text as it goes into the index.

    >>> to_index_text("Cached orders: 緑茶を")
    'cach order 緑茶 茶を を'
    """
    return " ".join([*stems(text), *trailing(text)])


def match_any(query: str, columns: Sequence[str] = ()) -> str:
    """The MATCH expression for all documents that hold any term of a query; empty where it has none.

    >>> match_any('Orders AND "茶"', ["name"])
    '{name}: ("order" OR "茶"*)'
    """
    query_terms = asked_terms(query)
    ends = dict.fromkeys((*query_terms[:_MOST], *query_terms[-_MOST:]))
    quoted = " OR ".join(f'"{term}"*' if is_one_spaceless(term) else f'"{term}"' for term in ends)
    return f"{{{' '.join(columns)}}}: ({quoted})" if quoted and columns else quoted
