"""Splits texts into sentences and into terms that can be compared, in English, Japanese and Chinese alike.

Latin words count by their beginning, so that `improve` meets `improvement`; scripts without spaces count by pairs of
characters. Nothing is decided here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

__all__ = ["Language", "coverage", "language_of", "rank", "sentences", "terms"]

Language: TypeAlias = Literal["en", "ja", "zh"]

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\s*\n\s*")
_WORD: Final = re.compile(
    r"[^\W_\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]{3,}|[\u3040-\u9fff\uac00-\ud7af]+|\d+"
)
_HIRAGANA: Final = re.compile(r"[\u3041-\u309f]+")
_KANA: Final = re.compile(r"[\u3041-\u30ff]")
_HAN: Final = re.compile(r"[\u4e00-\u9fff]")
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "the and for are was were with that this from into which what who whom how why when where your you our not "
        "can will shall would should could has have had its their them they one two all any each other more most",
    )
)
"""English words that say nothing about a subject."""


def language_of(text: str) -> Language:
    """By script: kana makes it Japanese, Chinese characters without kana Chinese, all else English.

    >>> language_of("お茶をください"), language_of("请给我茶"), language_of("Tea, please")
    ('ja', 'zh', 'en')
    """
    if _KANA.search(text):
        return "ja"
    return "zh" if _HAN.search(text) else "en"


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, each once.

    >>> sentences("Tea is hot. お茶は熱い。水は冷たい。")
    ['Tea is hot.', 'お茶は熱い。', '水は冷たい。']
    """
    return list(
        dict.fromkeys(each.strip(" \t-*#>") for each in _SENTENCE.split(text) if len(each.strip(" \t-*#>")) > 1)
    )


def terms(text: str) -> dict[str, str]:
    """Term → how it stands in the text, in order of appearance.

    >>> terms("Improved teas")
    {'improv': 'improved', 'tea': 'teas'}
    >>> terms("緑茶を飲む")
    {'緑茶': '緑茶', '茶を': '茶を', 'を飲': 'を飲', '飲む': '飲む'}
    """
    plain = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    found: dict[str, str] = {}
    for word in _WORD.findall(plain):
        if word[0] >= "\u2e80":
            for pair in _character_pairs(word):
                found.setdefault(pair, pair)
        elif word not in _COMMON:
            found.setdefault(word[:6] if len(word) > 6 else word.removesuffix("s"), word)
    return found


def _character_pairs(run: str) -> Iterable[str]:
    """Neighbouring characters; pairs of hiragana alone are grammar, not subject."""
    if len(run) == 1:
        return (run,)
    pairs = (run[at : at + 2] for at in range(len(run) - 1))
    return (pair for pair in pairs if not _HIRAGANA.fullmatch(pair))


def coverage(wanted: Iterable[str], text: Mapping[str, str]) -> float:
    """The share of the wanted terms that a text holds; 0.0 where nothing is wanted."""
    asked = set(wanted)
    return sum(term in text for term in asked) / len(asked) if asked else 0.0


def rank(question: str, texts: Iterable[str]) -> list[tuple[float, str]]:
    """(closeness, text), the nearest to the question first, equals in the order given.

    A term counts the more, the fewer of the texts hold it; long texts gain nothing by their length.
    """
    asked = terms(question)
    held = [(text, terms(text)) for text in texts]
    spread = {term: sum(term in each for _, each in held) for term in asked}
    scored = [
        (sum(1 / spread[term] for term in asked if term in each) / (1 + len(each)) ** 0.25, text) for text, each in held
    ]
    return sorted(scored, key=lambda pair: -pair[0])
