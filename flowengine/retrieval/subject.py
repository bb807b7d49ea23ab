"""What a question is about: its terms without what questions are made of, in English, Japanese, Chinese and Korean.

Retrieval can do without, since common terms weigh little there. It is for judging how much of a question a text
answers, where each term counts the same. Pure functions; small lists instead of a language's grammar.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cached_property
from typing import Final

from flowengine.retrieval.terms import asked_terms, is_one_spaceless, stems, trailing

__all__ = ["Holding", "subject_terms"]

_HIRAGANA: Final = re.compile(r"[\u3041-\u3096\u309d-\u309f]+")
_KANA: Final = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")
_CHINESE: Final = re.compile(
    "为什么|怎么样|怎么|如何|是什么|什么|哪里|哪些|哪个|是多少|多少|是否|可以|请问|请?告诉|我们|你们|他们|一下|需要|应该|"
    r"[我你您他她吗呢]|(?<![\u4e00-\u9fff])请|(?<!目)的|了(?!解)"
)
_KOREAN: Final = re.compile(
    r"(?:언제|어디서?|무엇을?|뭐|누가|어떻게|얼마나?|왜|하나요|인가요|입니까|입니다|있나요|됩니까|되나요|합니까|해\s?주세요|알려\s?주세요|주세요)"
    r"(?![\uac00-\ud7a3])"
)
_PARTICLE: Final = re.compile(
    r"(?<=[\uac00-\ud7a3]{2})(?:에서|으로|까지|부터|은|는|이|가|을|를|에|의|로|와|과|도|만)(?![\uac00-\ud7a3])"
)


def subject_terms(question: str) -> list[str]:
    """The different terms that say what a question is about; all of its terms where none does.

    >>> subject_terms("When are invoices paid?"), subject_terms("緑茶の入れ方を教えて")
    (['invoic', 'paid'], ['緑茶'])
    >>> subject_terms("怎么申请退款？"), subject_terms("회의는 언제 하나요?")
    (['申请', '请退', '退款'], ['회의'])
    """
    plain = unicodedata.normalize("NFKC", question)
    plain = _PARTICLE.sub(" ", _KOREAN.sub(" ", plain))
    if not _KANA.search(plain):
        return asked_terms(_CHINESE.sub(" ", plain)) or asked_terms(question)
    found = asked_terms(_HIRAGANA.sub(" ", plain))
    # Characters that stand alone between kana are mostly the stems of verbs.
    return [term for term in found if not is_one_spaceless(term)] or found or asked_terms(question)


class Holding:
    """The terms that a text holds.

    >>> Holding("お茶は80度、水は20度").share(["茶", "80", "紅茶"])
    0.6666666666666666
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def share(self, asked: Collection[str]) -> float:
        """How much is held of what is asked for; 0.0 where nothing is."""
        return sum(map(self._holds, asked)) / len(asked) if asked else 0.0

    def _holds(self, term: str) -> bool:
        return term in self._plain if is_one_spaceless(term) else term in self._terms

    @cached_property
    def _terms(self) -> frozenset[str]:
        return frozenset((*stems(self._text), *trailing(self._text)))

    @cached_property
    def _plain(self) -> str:
        return unicodedata.normalize("NFKC", self._text)
