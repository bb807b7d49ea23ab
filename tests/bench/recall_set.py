"""A generated set of things that people said over many months, and of questions about them.

It knows the templates (`recall/*.toml`, written apart from any ranking) and nothing of how memories are found.
Every scope has people of the same names with other lives, so that whatever leaks from one scope into another is
seen.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["NOW", "Question", "Said", "recall_set"]

TEMPLATES = Path(__file__).parent / "recall"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2025, 7, 1, tzinfo=UTC)
DAYS = (NOW - BEGIN).days - 2


class Said(NamedTuple):
    """One thing to remember."""

    id: str
    scope: str
    text: str
    at: datetime
    subject: str | None = None
    """What it is a fact about; None of what merely happened or was said."""
    name: str = ""


class Question(NamedTuple):
    """What is asked in one scope, and what answers it."""

    kind: str
    """`facts`, `updates`, `time`, `sessions`, `unanswerable_stranger`, `unanswerable_unasked`, `synonyms`."""
    scope: str
    text: str
    expected: frozenset[str]
    """Ids of all that answer it; none where it cannot be answered."""
    stale: frozenset[str] = frozenset()
    """Ids of what answered it once."""


class RecallSet(NamedTuple):
    said: list[Said]
    questions: list[Question]


def recall_set(language: str, *, scopes: int = 6, people: int = 12, seed: int = 1) -> RecallSet:
    """The set of a language; equal arguments make equal sets.

    >>> recall_set("en", scopes=1) == recall_set("en", scopes=1)
    True
    """
    texts = tomllib.loads((TEMPLATES / f"{language}.toml").read_text(encoding="utf-8"))
    made = RecallSet([], [])
    for number in range(scopes):
        scope = _Scope(f"s{number}", texts, people, random.Random(f"{language} {seed} {number}"))
        scope.fill()
        made.said.extend(scope.said)
        made.questions.extend(scope.questions)
    return made


class _Scope:
    """One scope while it is made."""

    def __init__(self, name: str, texts: dict[str, Any], people: int, chance: random.Random) -> None:
        self.name = name
        self.texts = texts
        self.chance = chance
        self.said: list[Said] = []
        self.questions: list[Question] = []
        self.people = chance.sample(texts["names"], people)
        self.current: dict[tuple[str, str], str] = {}
        """Person and attribute → id of the fact that holds."""

    def fill(self) -> None:
        for name in self.people:
            for attribute, texts in self.texts["attributes"].items():
                self._fact(name, attribute, texts)
            for event in self.chance.sample(sorted(self.texts["events"]), 3):
                self._event(name, self.texts["events"][event])
            for _ in range(12):
                self._say(self.chance.choice(self.texts["chatter"]), self._day(0, DAYS), name)
        for name in self.people:
            self._ask_about_months(name)
            self._ask_about_two(name)
            self._ask_what_nobody_said(name)
        self.said.sort(key=lambda each: each.at)

    def _fact(self, name: str, attribute: str, texts: dict[str, Any]) -> None:
        """A fact, with a chance of later ones in its place, and what is asked about it."""
        subject = f"{name}/{attribute}"
        versions = self.chance.choice([1, 1, 1, 2, 2, 3])
        values = self.chance.sample(texts["values"], versions)
        days = sorted(self.chance.sample(range(0, DAYS, 75), versions))
        ids: list[str] = []
        for number, (value, day) in enumerate(zip(values, days, strict=True)):
            template = self.chance.choice(texts["updates"] if number else texts["facts"])
            ids.append(self._say(template, day + self.chance.randrange(10), name, subject, value=value))
        self.current[name, attribute] = ids[-1]
        kind = "updates" if versions > 1 else "facts"
        self._ask(kind, self.chance.choice(texts["questions"]), ids[-1:], ids[:-1], name=name)
        self._ask("synonyms", self.chance.choice(texts["synonyms"]), ids[-1:], ids[:-1], name=name)
        if versions > 1:
            # The month after the one in which it was said: there it held, and nothing had taken its place.
            then = BEGIN + timedelta(days=days[0] + 42)
            self._ask("time", self.chance.choice(texts["past"]), ids[:1], name=name, month=self._month(then))

    def _event(self, name: str, texts: dict[str, Any]) -> None:
        said = self._say(self.chance.choice(texts["facts"]), self._day(0, DAYS), name)
        self._ask("time", self.chance.choice(texts["when"]), [said], name=name)

    def _ask_about_months(self, name: str) -> None:
        """What happened to somebody in a month in which something did, and no more than a prompt can hold."""
        months: dict[str, list[str]] = {}
        for each in self.said:
            if each.name == name:
                months.setdefault(self._month(each.at), []).append(each.id)
        month = self.chance.choice([month for month, ids in months.items() if len(ids) <= 4])
        template = self.chance.choice(self.texts["period"]["questions"])
        self._ask("time", template, months[month], name=name, month=month)

    def _ask_about_two(self, name: str) -> None:
        """What was said about two people in different sessions."""
        other = self.chance.choice([each for each in self.people if each != name])
        attribute = self.chance.choice(sorted(self.texts["attributes"]))
        ids = [self.current[name, attribute], self.current[other, attribute]]
        template = self.chance.choice(self.texts["attributes"][attribute]["both"])
        self._ask("sessions", template, ids, name=name, other=other)

    def _ask_what_nobody_said(self, name: str) -> None:
        elsewhere = [each for each in self.texts["names"] if each not in self.people]
        stranger = self.chance.choice([*elsewhere, *self.texts["strangers"]])
        attribute = self.chance.choice(sorted(self.texts["attributes"]))
        template = self.chance.choice(self.texts["attributes"][attribute]["questions"])
        self._ask("unanswerable_stranger", template, [], name=stranger)
        self._ask("unanswerable_unasked", self.chance.choice(self.texts["unasked"]), [], name=name)

    def _say(self, template: str, day: int, name: str, subject: str | None = None, *, value: str = "") -> str:
        id = f"{self.name}-{len(self.said)}"
        at = BEGIN + timedelta(days=day, minutes=self.chance.randrange(24 * 60))
        self.said.append(Said(id, self.name, template.format(name=name, value=value), at, subject, name))
        return id

    def _ask(self, kind: str, template: str, ids: list[str], stale: list[str] | None = None, **values: str) -> None:
        text = template.format(**values)
        self.questions.append(Question(kind, self.name, text, frozenset(ids), frozenset(stale or ())))

    def _day(self, first: int, last: int) -> int:
        return self.chance.randrange(first, last)

    def _month(self, at: datetime) -> str:
        names = self.texts.get("months")
        month_name = names[at.month - 1] if names else ""
        return self.texts["month"].format(year=at.year, month=at.month, month_name=month_name)


def filler(language: str, count: int, *, seed: int = 7) -> Iterator[Said]:
    """The same kinds of things about other people, of whom nobody asks: for a scope of any size."""
    texts = tomllib.loads((TEMPLATES / f"{language}.toml").read_text(encoding="utf-8"))
    chance = random.Random(f"{language} {seed}")
    names = [_invented(language, chance) for _ in range(max(count // 40, 1))]
    attributes = [*texts["attributes"].values()]
    for number in range(count):
        attribute = chance.choice(attributes)
        template = chance.choice([*texts["chatter"], *attribute["facts"], *attribute["updates"]])
        text = template.format(name=chance.choice(names), value=chance.choice(attribute["values"]))
        at = BEGIN + timedelta(minutes=chance.randrange(DAYS * 24 * 60))
        yield Said(f"filler-{number}", "large", text, at)


def _invented(language: str, chance: random.Random) -> str:
    """A name that nobody has who is asked about."""
    if language == "ja":
        return "".join(chance.choice("アイウエオカキクケコサシスセソタチツテトナニヌネノ") for _ in range(4)) + "さん"
    if language == "zh":
        return chance.choice("曹邓冯袁潘蒋蔡魏") + "".join(chance.choice("嘉梓宇浩欣怡晨轩佳琪俊熙") for _ in range(2))
    return "".join(chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(3)).capitalize()
