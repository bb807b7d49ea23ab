"""The list of skills within its budget, and the search for what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document
from flowengine.agents.skills.answers import make_listing, skill_messages
from flowengine.agents.skills.discovery import SkillIndex
from flowengine.agents.skills.skill import Skill, SkillStamp
from flowengine.errors import DefinitionError
from flowengine.models.tokens import count_tokens
from tests.bench.skills import library, list_tokens, misses

WORDS = skill_messages("en")


def skill(name: str, description: str = "Does it.", **metadata: str) -> Skill:
    return Skill(name, description, Path(name), Path(name, "SKILL.md"), SkillStamp(0, 0, 0), 10, metadata=metadata)


MANY = [skill(f"skill-{number:04}", f"Does the thing number {number}, and does it well.") for number in range(300)]


def test_all_skills_are_described_where_that_fits() -> None:
    listing = make_listing([skill("a", "One."), skill("b", "")], (), WORDS)
    assert listing.is_whole
    assert listing.text.endswith(":\n- a: One.\n- b")
    assert listing.tokens == count_tokens(listing.text)


@pytest.mark.parametrize("budget", [300, 1_000, 2_000])
def test_else_the_best_are_described_and_as_many_as_can_be_are_named(budget: int) -> None:
    listing = make_listing(MANY, MANY[7:50], WORDS, budget)
    assert not listing.is_whole
    assert listing.tokens <= budget
    assert "the 300:\n- skill-0007: Does the thing number 7, and does it well." in listing.text
    named = listing.text.splitlines()[-1]
    assert named.startswith("All names: skill-0000, skill-0001")
    assert f"and {300 - named.count('skill-')} more" in named


def test_without_a_task_names_alone_are_given() -> None:
    assert "Does the thing" not in make_listing(MANY, (), WORDS, 1_000).text


@pytest.mark.parametrize("locale", ["en", "ja", "zh"])
def test_each_locale_has_the_same_texts(locale: str) -> None:
    assert skill_messages(locale).texts.keys() == WORDS.texts.keys()
    assert make_listing(MANY, MANY, skill_messages(locale), 500).tokens <= 500


def test_an_unknown_locale_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="unknown locale 'fr'"):
        skill_messages("fr")


@pytest.mark.anyio
async def test_skills_are_found_by_name_description_and_keywords() -> None:
    skills = [
        skill("pdf-forms"),
        skill("b", "Writes haiku."),
        skill("c", "x", tags="poetry, 俳句"),
        skill("d", "請求書"),
    ]
    index = SkillIndex()
    assert [each.name for each in await index.rank_skills(skills, "forms")] == ["pdf-forms"]
    assert [each.name for each in await index.rank_skills(skills, "a haiku please")] == ["b"]
    assert [each.name for each in await index.rank_skills(skills, "俳句")] == ["c"]
    assert [each.name for each in await index.rank_skills(skills, "請求書を作る")] == ["d"]
    assert await index.rank_skills(skills, "zebra") == []
    assert await index.rank_skills([], "forms") == []


@pytest.mark.anyio
async def test_the_index_follows_the_skills() -> None:
    index = SkillIndex()
    assert len(await index.rank_skills([skill("a", "Paints."), skill("b", "Paints.")], "paint")) == 2
    assert [each.name for each in await index.rank_skills([skill("a", "Sings.")], "paint")] == []
    assert [each.name for each in await index.rank_skills([skill("a", "Sings.")], "sing")] == ["a"]


class Unsteady(FtsRetriever):
    """Fails where it is told to."""

    fails = False

    async def add(self, documents: Sequence[Document]) -> None:
        if self.fails:
            raise OSError("the server is away")
        await super().add(documents)


@pytest.mark.anyio
async def test_an_index_that_failed_takes_nothing_for_as_it_was() -> None:
    retriever = Unsteady()
    index = SkillIndex(retriever)
    a, b, c = skill("a", "Paints."), skill("b", "Sings."), skill("c", "Cooks.")
    assert len(await index.rank_skills([a, b], "paint")) == 1
    retriever.fails = True
    with pytest.raises(OSError, match="away"):
        await index.rank_skills([b, c], "paint")  # `a` has been removed.
    retriever.fails = False
    assert await index.rank_skills([a, b], "paint") == [a]


class Slow(FtsRetriever):
    """Takes its time, and notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[str] = []

    async def add(self, documents: Sequence[Document]) -> None:
        self.added += [each.id for each in documents]
        await anyio.wait_all_tasks_blocked()
        await super().add(documents)


@pytest.mark.anyio
async def test_searches_at_once_wait_for_an_index_that_is_being_made() -> None:
    retriever, found = Slow(), list[list[Skill]]()
    index, skills = SkillIndex(retriever), [skill("a", "Paints."), skill("b", "Sings.")]

    async def search() -> None:
        found.append(await index.rank_skills(skills, "paint"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(search)
    assert found == [[skills[0]]] * 3
    assert retriever.added == ["a", "b"]


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_of_175_skills_the_right_one_is_found_and_the_list_stays_in_its_budget(tmp_path: Path) -> None:
    skills = library(tmp_path)
    assert len(skills) == 175
    assert max(await list_tokens(skills, 5)) <= 2_000
    assert len(await misses(skills)) <= 0.05 * 175
