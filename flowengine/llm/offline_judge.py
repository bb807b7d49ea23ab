"""The offline stand-in's two decisions, which of some labels fits a text and how good a text is.

Both only compare words, and both say so in the reason that goes with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from flowengine.llm.offline_material import Material
from flowengine.llm.offline_texts import offline_texts
from flowengine.llm.terms import coverage, terms

__all__ = ["Choice", "choose", "judge", "looks_like_judgement", "route_reason"]

_NO_MATCH: Final = 0.1
"""Confidence of a choice that nothing speaks for."""


class Choice(NamedTuple):
    label: str
    confidence: float
    shared: tuple[str, ...]
    """Words of the text that speak for it."""


def choose(text: str, labels: Sequence[str], described: str) -> Choice:
    """The label whose name and description share most with the text; the first where none does.

    `described` holds lines or clauses `label: description`. A word that several labels share counts
    less; a label that the text names itself counts most.
    """
    held = terms(text)
    meanings = [_meaning(label, labels, described) for label in labels]
    spread: dict[str, int] = {}
    for meaning in meanings:
        for term in meaning:
            spread[term] = spread.get(term, 0) + 1
    scores = [
        sum((2 if term in terms(label) else 1) / spread[term] ** 2 for term in meaning if term in held)
        + 3 * _names(text, label)
        for label, meaning in zip(labels, meanings, strict=True)
    ]
    best = max(range(len(labels)), key=lambda index: (scores[index], -index))
    shared = tuple(held[term] for term in meanings[best] if term in held)
    return Choice(labels[best], _confidence(scores, best), shared)


def _confidence(scores: Sequence[float], best: int) -> float:
    """By how much the best is ahead of the next: 0.3 for a tie, 0.95 where nothing speaks for another."""
    if not scores[best]:
        return _NO_MATCH
    second = max((score for index, score in enumerate(scores) if index != best), default=0.0)
    return round(0.3 + 0.65 * (scores[best] - second) / scores[best], 2)


def _meaning(label: str, labels: Sequence[str], described: str) -> dict[str, str]:
    others = "|".join(re.escape(each) for each in labels)
    pattern = rf"(?:^|[\n;,]|- )\s*{re.escape(label)}\s*[:：]\s*(.*?)(?=\s*(?:\n|;|$)|[,;]\s*(?:{others})\s*[:：])"
    found = re.search(pattern, described)
    name = terms(re.sub(r"[_\-]", " ", label)) or {label.casefold(): label}
    return {**name, **(terms(found[1]) if found else {})}


def _names(text: str, label: str) -> bool:
    if not label.isascii():
        return label in text
    return re.search(rf"(?<![\w-]){re.escape(label)}(?![\w-])", text, re.IGNORECASE) is not None


def route_reason(choice: Choice, material: Material) -> str:
    texts = offline_texts(material.language)
    if not choice.shared:
        return texts["no_route"]
    return texts["route"].format(route=choice.label, words=texts["list_separator"].join(choice.shared[:5]))


# --- judging ------------------------------------------------------------------------------------


def looks_like_judgement(properties: Mapping[str, Any]) -> bool:
    """Whether these properties are those of an evaluation."""
    return "score" in properties and bool({"criteria_scores", "feedback", "suggestions"} & set(properties))


def judge(material: Material, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Score, scores by criterion, feedback and suggestions, as far as `properties` has them.

    A text gains by taking up the terms of its request and of the criteria, and by saying enough.
    """
    texts = offline_texts(material.language)
    said, asked = terms(material.subject), terms(material.subject_prompt)
    base = 0.75 * (coverage(asked, said) if asked else 1.0) + 0.25 * min(1.0, len(said) / 12) if said else 0.0
    scores = {name: _criterion(base, said, described) for name, described in _criteria(properties).items()}
    missing = [asked[term] for term in asked if term not in said]
    answer: dict[str, Any] = {
        "score": round(sum(scores.values()) / len(scores) if scores else base, 2),
        "criteria_scores": scores,
        "feedback": texts["judgement"].format(covered=len(asked) - len(missing), total=len(asked)),
        "suggestions": [texts["suggestion"].format(words=texts["list_separator"].join(missing[:5]))] if missing else [],
    }
    return {name: value for name, value in answer.items() if name in properties}


def _criterion(base: float, said: Mapping[str, str], described: str) -> float:
    """The base, raised by the words of the criterion that the text takes up."""
    return round(min(1.0, base + 0.25 * coverage(terms(described), said)), 2)


def _criteria(properties: Mapping[str, Any]) -> dict[str, str]:
    """Name → what it asks for, from the schema of `criteria_scores`."""
    scores = cast("Mapping[str, Any]", properties.get("criteria_scores") or {})
    inner = cast("Mapping[str, Any]", scores.get("properties") or {})
    return {name: f"{name} {each.get('description', '')}" for name, each in inner.items()}
