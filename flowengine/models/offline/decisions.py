"""Makes the offline stand-in's two decisions: which label fits a text, and how good a text is.

Both only compare words, and both say so in the reason that goes with them. Latin words count by their beginning, so
that `improve` meets `improvement`; scripts without spaces count by pairs of characters.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from flowengine.models.messages import Message

# --- The stand-in's own sentences, by language


@cache
def _load_texts() -> dict[str, dict[str, str]]:
    source = files("flowengine.models.offline").joinpath("texts.toml").read_text("utf-8")
    return cast("dict[str, dict[str, str]]", tomllib.loads(source))


def offline_texts(language: Language) -> dict[str, str]:
    """Key → text with its placeholders."""
    return _load_texts()[language]


@cache
def list_notices() -> frozenset[str]:
    """The lines by which an answer says where it comes from, in all languages."""
    return frozenset(texts["notice"] for texts in _load_texts().values())


# --- Reading a chat

_LONGEST: Final = 12_000
"""Characters of each part that are looked at, half from its head and half from its tail."""

_LABEL: Final = re.compile(r"^[^\n:：]{1,24}[:：]\s*")
"""The label before a section of a prompt: `User input: `, `コンテキスト:`."""

_FENCED: Final = re.compile(r"<(prompt|result)((?:_\d+)?)>\n?(.*?)\n?</\1\2>", re.DOTALL)
"""How agents set off the texts that are to be judged or routed."""


class OfflineMaterial:
    """One chat, read once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._users = [_clean_text(each.content) for each in messages if each.role == "user"]
        self._drafts = [_clean_text(each.content) for each in messages if each.role in ("assistant", "tool")]
        self.system = _clean_text("\n".join(each.content for each in messages if each.role == "system"))

    @property
    def _last(self) -> str:
        return self._users[-1] if self._users else ""

    @cached_property
    def language(self) -> Language:
        """The language of the question and its label: what stands around it may be quoted from anywhere."""
        return language_of(self._find_question or self.system)

    @cached_property
    def question(self) -> str:
        """The last section of the last user message, without its label; of a request to improve, all of it."""
        return self._last if self.draft else _LABEL.sub("", self._find_question)

    @property
    def _find_question(self) -> str:
        return _last_section(self._last)

    @cached_property
    def draft(self) -> list[str]:
        """Sentences of the model's own last answer, where the last message asks for a better one.

        In a conversation every question stands under the same label; a request to improve an
        answer does not.
        """
        first = _LABEL.match(_last_section(self._users[0])) if len(self._users) > 1 and self._drafts else None
        if first is None or self._find_question.startswith(first[0].strip()):
            return []
        return sentences(self._drafts[-1])

    @cached_property
    def context(self) -> list[str]:
        """Sentences of everything else that was said to or by the model, the nearest message first.

        A request to improve an answer is about the answer; it is no source of what to say.
        """
        if self.draft:
            return list(dict.fromkeys([*self.draft, *sentences(_without_labels(self._users[0]))]))
        sections = _without_labels(self._last.strip().rpartition("\n\n")[0])
        texts = [sections, *reversed(self._drafts), *reversed(self._users[:-1])]
        return sentences("\n".join(texts))

    @cached_property
    def all_sentences(self) -> list[str]:
        """Context, question and, where both are empty, the system message."""
        candidates = [*self.context, *sentences(self.question)]
        return list(dict.fromkeys(candidates)) or sentences(self.system)

    @cached_property
    def subject(self) -> str:
        """The text to judge or to route: what is set off as the result, else all that the user said last."""
        return self._fenced.get("result", self._last)

    @cached_property
    def subject_prompt(self) -> str:
        """The prompt that the subject answers, if known."""
        return self._fenced.get("prompt", "")

    @cached_property
    def _fenced(self) -> dict[str, str]:
        return {kind: text for kind, _, text in _FENCED.findall(self._last)}


def _clean_text(text: str) -> str:
    """A message's text, within bounds; an earlier stand-in's remark about itself is no part of what it said."""
    for notice in list_notices():
        text = text.replace(notice, "")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"


def _last_section(text: str) -> str:
    return text.strip().rpartition("\n\n")[2].strip()


def _without_labels(text: str) -> str:
    return "\n".join(_LABEL.sub("", each.strip()) for each in text.split("\n\n"))


_NO_MATCH: Final = 0.1
"""Confidence of a choice that nothing speaks for."""


class LabelChoice(NamedTuple):
    label: str
    confidence: float
    shared: tuple[str, ...]
    """Words of the text that speak for it."""


def choose(text: str, labels: Sequence[str], described: str) -> LabelChoice:
    """The label whose name and description share most with the text; the first where none does.

    `described` holds lines or clauses `label: description`. A word that several labels share counts
    less; a label that the text names itself counts most.
    """
    text_terms = terms(text)
    meanings = [_terms_of_label(label, labels, described) for label in labels]
    spread: dict[str, int] = {}
    for meaning in meanings:
        for term in meaning:
            spread[term] = spread.get(term, 0) + 1
    scores = [
        sum((2 if term in terms(label) else 1) / spread[term] ** 2 for term in meaning if term in text_terms)
        + 3 * _mentions(text, label)
        for label, meaning in zip(labels, meanings, strict=True)
    ]
    best = max(range(len(labels)), key=lambda index: (scores[index], -index))
    shared = tuple(text_terms[term] for term in meanings[best] if term in text_terms)
    return LabelChoice(labels[best], _confidence(scores, best), shared)


def _confidence(scores: Sequence[float], best: int) -> float:
    """By how much the best is ahead of the next: 0.3 for a tie, 0.95 where nothing speaks for another."""
    if not scores[best]:
        return _NO_MATCH
    second = max((score for index, score in enumerate(scores) if index != best), default=0.0)
    return round(0.3 + 0.65 * (scores[best] - second) / scores[best], 2)


def _terms_of_label(label: str, labels: Sequence[str], described: str) -> dict[str, str]:
    others = "|".join(re.escape(each) for each in labels)
    pattern = rf"(?:^|[\n;,]|- )\s*{re.escape(label)}\s*[:：]\s*(.*?)(?=\s*(?:\n|;|$)|[,;]\s*(?:{others})\s*[:：])"
    match = re.search(pattern, described)
    name = terms(re.sub(r"[_\-]", " ", label)) or {label.casefold(): label}
    return {**name, **(terms(match[1]) if match else {})}


def _mentions(text: str, label: str) -> bool:
    if not label.isascii():
        return label in text
    return re.search(rf"(?<![\w-]){re.escape(label)}(?![\w-])", text, re.IGNORECASE) is not None


def route_reason(choice: LabelChoice, material: OfflineMaterial) -> str:
    texts = offline_texts(material.language)
    if not choice.shared:
        return texts["no_route"]
    return texts["route"].format(route=choice.label, words=texts["list_separator"].join(choice.shared[:5]))


# --- Judging


def looks_like_judgement(properties: Mapping[str, Any]) -> bool:
    """Tells whether these properties are those of an evaluation."""
    return "score" in properties and bool({"criteria_scores", "feedback", "suggestions"} & set(properties))


def judge(material: OfflineMaterial, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Score, scores by criterion, feedback and suggestions, as far as `properties` has them.

    A text gains by taking up the terms of its request and of the criteria, and by saying enough.
    """
    texts = offline_texts(material.language)
    subject_terms, prompt_terms = terms(material.subject), terms(material.subject_prompt)
    base = (
        0.75 * (coverage(prompt_terms, subject_terms) if prompt_terms else 1.0)
        + 0.25 * min(1.0, len(subject_terms) / 12)
        if subject_terms
        else 0.0
    )
    scores = {
        name: _score_criterion(base, subject_terms, described) for name, described in _criteria(properties).items()
    }
    missing = [prompt_terms[term] for term in prompt_terms if term not in subject_terms]
    answer: dict[str, Any] = {
        "score": round(sum(scores.values()) / len(scores) if scores else base, 2),
        "criteria_scores": scores,
        "feedback": texts["judgement"].format(covered=len(prompt_terms) - len(missing), total=len(prompt_terms)),
        "suggestions": [texts["suggestion"].format(words=texts["list_separator"].join(missing[:5]))] if missing else [],
    }
    return {name: value for name, value in answer.items() if name in properties}


def _score_criterion(base: float, subject_terms: Mapping[str, str], described: str) -> float:
    """The base, raised by the words of the criterion that the text takes up."""
    return round(min(1.0, base + 0.25 * coverage(terms(described), subject_terms)), 2)


def _criteria(properties: Mapping[str, Any]) -> dict[str, str]:
    """Name → what it asks for, from the schema of `criteria_scores`."""
    scores = cast("Mapping[str, Any]", properties.get("criteria_scores") or {})
    inner = cast("Mapping[str, Any]", scores.get("properties") or {})
    return {name: f"{name} {each.get('description', '')}" for name, each in inner.items()}


# --- Terms that can be compared, in English, Japanese and Chinese alike


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
    words_by_term: dict[str, str] = {}
    for word in _WORD.findall(plain):
        if word[0] >= "\u2e80":
            for pair in _character_pairs(word):
                words_by_term.setdefault(pair, pair)
        elif word not in _COMMON:
            words_by_term.setdefault(word[:6] if len(word) > 6 else word.removesuffix("s"), word)
    return words_by_term


def _character_pairs(run: str) -> Iterable[str]:
    """Neighbouring characters; pairs of hiragana alone are grammar, not subject."""
    if len(run) == 1:
        return (run,)
    pairs = (run[at : at + 2] for at in range(len(run) - 1))
    return (pair for pair in pairs if not _HIRAGANA.fullmatch(pair))


def coverage(sought_terms: Iterable[str], text: Mapping[str, str]) -> float:
    """The share of the wanted terms that a text holds; 0.0 where nothing is wanted."""
    distinct_terms = set(sought_terms)
    return sum(term in text for term in distinct_terms) / len(distinct_terms) if distinct_terms else 0.0


def rank(question: str, texts: Iterable[str]) -> list[tuple[float, str]]:
    """(closeness, text), the nearest to the question first, equals in the order given.

    A term counts the more, the fewer of the texts hold it; long texts gain nothing by their length.
    """
    question_terms = terms(question)
    terms_by_text = [(text, terms(text)) for text in texts]
    spread = {term: sum(term in each for _, each in terms_by_text) for term in question_terms}
    scored = [
        (sum(1 / spread[term] for term in question_terms if term in each) / (1 + len(each)) ** 0.25, text)
        for text, each in terms_by_text
    ]
    return sorted(scored, key=lambda pair: -pair[0])
