"""Measures what progressive disclosure saves: tokens against loading everything, and which skill is chosen.

The tokens are those of the prompts and answers that agents really get. The chooser is given: a model, or the lexical
stand-in, which is no language model and only shows whether the words that a choice needs are there.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

from anyio import to_thread

from flowengine.agents.retrieval import Document, FtsRetriever, asked_terms, stems
from flowengine.agents.skills.answers import format_line, skill_messages
from flowengine.agents.skills.disclosure import SkillAccess
from flowengine.agents.skills.outline import LONG_TEXT, Section, make_outline
from flowengine.agents.skills.skill import Skill
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.models import Message, Model, Request, count_tokens, fence

_SECTIONS_READ: Final = 3
"""Sections of a long body that a task is taken to need."""


class Measured(NamedTuple):
    """One skill in use, among all that there are."""

    skill: str
    tokens_eager: int
    """Everything in the prompt: the list and all bodies, no tools."""
    tokens_actual: int
    """The list, the schemas of the tools, the calls and what they answered: the last prompt."""
    tokens_paid: int
    """The prompts of all requests together: each round sends again what the ones before it sent."""

    @property
    def saved(self) -> float:
        """The share that the last prompt does not hold, 0.0–1.0; below 0 where it holds more."""
        return self._share(self.tokens_actual)

    @property
    def saved_paid(self) -> float:
        """The share of input tokens that is not paid; below 0 where disclosure costs more than it saves."""
        return self._share(self.tokens_paid)

    def _share(self, tokens: int) -> float:
        return 1 - tokens / self.tokens_eager if self.tokens_eager else 0.0


class Total(NamedTuple):
    """Over many cases: what is saved in the middle, in nine cases of ten, and at the least."""

    median: float
    p10: float
    worst: float


class Task(NamedTuple):
    """A request, and the skill that is right for it."""

    text: str
    skill: str


class Choices(NamedTuple):
    """How often the right skill was chosen."""

    tasks: int
    listed: int
    """Right choices from the list, as agents get it."""
    eager: int
    """Right choices with all bodies in the prompt."""


Chooser: TypeAlias = Callable[[str, str, Sequence[str]], Awaitable[str]]
"""Request, prompt and the skills' names → the name that is chosen, or the empty one. The prompt is all it knows."""


async def measure_skill(store: SkillStore, skill: Skill, task: str = "", locale: str = "en") -> Measured:
    """The tokens where this one of the store's skills is used for a task (by default: for what it describes)."""
    access = SkillAccess(store, locale=locale)
    query = task or skill.description
    first = [each.text for each in await access.fragments(query)]
    first += [json.dumps(tool.schema(), ensure_ascii=False) for tool in (await access.tool_set()).tools]
    loaded = [json.dumps({"name": skill.name}), await access.load_skill(skill.name)]
    read: list[str] = []
    for section in _choose_sections((await to_thread.run_sync(store.body, skill)).text, query):
        arguments = {"name": skill.name, "section": section.number}
        read += [json.dumps(arguments), await access.read_skill_section(**arguments)]
    # One request lists, one has what was loaded, and one the sections, which are read together.
    rounds = [sum(map(count_tokens, each)) for each in (first, loaded, read) if each]
    prompts = list(accumulate(rounds))
    return Measured(skill.name, count_tokens(await _eager_prompt(store, locale)), prompts[-1], sum(prompts))


def add_up(shares: Iterable[float]) -> Total:
    """Adds up the shares that are saved, at least one."""
    saved = sorted(shares)
    return Total(statistics.median(saved), saved[len(saved) // 10], saved[0])


async def measure_choices(store: SkillStore, tasks: Sequence[Task], choose: Chooser, locale: str = "en") -> Choices:
    """Measures whether the right skill is chosen from the list as often as with everything in the prompt."""
    everything = await _eager_prompt(store, locale)
    names = [each.name for each in await to_thread.run_sync(store.skills)]
    by_listing = eager = 0
    for task in tasks:
        fragments = await SkillAccess(store, locale=locale).fragments(task.text)
        by_listing += await choose(task.text, fragments[0].text, names) == task.skill
        eager += await choose(task.text, everything, names) == task.skill
    return Choices(len(tasks), by_listing, eager)


def choose_by_words() -> Chooser:
    """A stand-in for a model: takes the skill whose part of the prompt has most of the request's words, weighed."""

    async def choose(request: str, prompt: str, names: Sequence[str]) -> str:
        retriever = FtsRetriever()
        await retriever.add([Document(name, text) for name, text in _split_prompt(prompt, names)])
        hits = await retriever.search(request, 1)
        retriever.close()
        return hits[0].id if hits else ""

    return choose


def choose_by_model(model: Model, locale: str = "en") -> Chooser:
    """A model that is asked for the name of the skill it would load."""
    words = skill_messages(locale)

    async def choose(request: str, prompt: str, names: Sequence[str]) -> str:
        messages = (Message("system", prompt), Message("user", words("measure.ask", text=request)))
        reply = await model.complete(Request(model.name, messages, temperature=0.0))
        answer = reply.content.strip().strip("`'\"*. ").casefold()
        return next((name for name in names if name.casefold() == answer), "")

    return choose


def _split_prompt(prompt: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Splits the prompt into the parts on each skill.

    >>> _split_prompt("Skills:\\n- a-b: mends\\n- c: cooks", ["a-b", "c", "d"])
    [('a-b', '- a-b: mends\\n\\na b'), ('c', '- c: cooks\\nc')]
    """
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    matches = list(re.finditer(rf"^- ({pattern})(?=:|$)", prompt, re.MULTILINE))
    bounds = [*(each.start() for each in matches), len(prompt)]
    return [
        (each[1], f"{prompt[begin:end]}\n{each[1].replace('-', ' ')}")
        for each, (begin, end) in zip(matches, pairwise(bounds), strict=True)
    ]


async def _eager_prompt(store: SkillStore, locale: str) -> str:
    """The prompt that has it all."""
    skills = await to_thread.run_sync(store.skills)
    bodies = [(await to_thread.run_sync(store.body, each)).text.strip() for each in skills]
    sections = [f"{format_line(skill)}\n{fence('skill', body)}" for skill, body in zip(skills, bodies, strict=True)]
    return skill_messages(locale)("measure.everything", lines="\n".join(sections))


def _choose_sections(body: str, query: str) -> list[Section]:
    """The sections of a long body that a task needs: those that have most of its words."""
    if count_tokens(body) <= LONG_TEXT:
        return []
    query_terms = set(asked_terms(query))
    sections = [each for each in make_outline(body).sections if each.tokens <= LONG_TEXT]
    return sorted(sections, key=lambda each: -len(query_terms & set(stems(each.whole))))[:_SECTIONS_READ]
