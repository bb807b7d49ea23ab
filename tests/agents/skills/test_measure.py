"""What disclosure saves, and whether the right skill is still chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.agents.skills.measure import (
    Measured,
    Task,
    add_up,
    choose_by_model,
    choose_by_words,
    measure_choices,
    measure_skill,
)
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.models.scripted import ScriptedModel
from tests.bench.skills import choices, draws, library

MakeSkill = Callable[..., Path]
pytestmark = pytest.mark.anyio


async def test_a_skill_in_use_costs_its_body_the_list_and_the_tools(make: MakeSkill, root: Path) -> None:
    make("a", body="word " * 500)
    make("b", body="word " * 3_000)
    store = SkillStore(root)
    first, second = [await measure_skill(store, each) for each in store.skills()]
    assert first.tokens_eager == second.tokens_eager > 3_500
    assert 550 < first.tokens_actual < 800
    assert 3_050 < second.tokens_actual < 3_300
    assert first.saved == pytest.approx(1 - first.tokens_actual / first.tokens_eager)


async def test_what_is_paid_counts_the_prompt_of_each_request(make: MakeSkill, root: Path) -> None:
    make("a", body="word " * 500)
    make("b", body="word " * 500)
    [small, _] = [await measure_skill(SkillStore(root), each) for each in SkillStore(root).skills()]
    listed = small.tokens_paid - small.tokens_actual
    assert 80 < listed < small.tokens_actual - 500, "the list and the schemas are sent twice, the body once"
    assert small.saved_paid < small.saved


async def test_skills_of_one_name_are_measured_apart(make: MakeSkill, root: Path, tmp_path: Path) -> None:
    make("a", body="word " * 100)
    other = tmp_path / "other" / "a"
    other.mkdir(parents=True)
    other.joinpath("SKILL.md").write_text("---\nname: a\ndescription: Another.\n---\n" + "word " * 900)
    store = SkillStore([root, other.parent])
    found = [await measure_skill(store, each) for each in store.skills()]
    assert [each.skill for each in found] == ["a", "a-2"]
    assert found[0].tokens_actual + 700 < found[1].tokens_actual


async def test_of_a_long_body_the_sections_that_fit_the_task_count(make: MakeSkill, root: Path) -> None:
    sections = "".join(f"## Part {number}\n{'filler ' * 1_000}{topic}\n" for number, topic in enumerate("abcdefgh"))
    make("a", body=f"# Guide\nIn short.\n{sections}")
    store = SkillStore(root)
    found = await measure_skill(store, store.skills()[0], "part 3")
    assert 3_000 < found.tokens_actual < 3_700 < 8_000 < found.tokens_eager


async def test_the_total_is_the_middle_the_tenth_and_the_worst() -> None:
    cases = [Measured("a", 100, 100 - saved, 100) for saved in range(100)]
    assert tuple(add_up(each.saved for each in cases)) == pytest.approx((0.495, 0.1, 0.0))


async def test_who_chooses_sees_what_agents_see(make: MakeSkill, root: Path) -> None:
    make("haiku", "Writes poems of three lines.", body="Count the syllables.\n")
    make("sonnet", "Writes poems of fourteen lines.", body="Mind the rhyme.\n")
    store = SkillStore(root)
    tasks = [Task("a poem of three lines", "haiku"), Task("mind the rhyme", "sonnet")]
    assert await measure_choices(store, tasks, choose_by_words()) == (2, 1, 2)
    model = ScriptedModel([" `Haiku`.", "haiku", "I would load sonnet", "sonnet"])
    assert await measure_choices(store, tasks, choose_by_model(model)) == (2, 1, 2)
    asked = model.requests[0].messages
    assert "- haiku: Writes poems of three lines." in asked[0].content
    assert "syllables" not in asked[0].content
    assert "Count the syllables." in model.requests[1].messages[0].content
    assert asked[1].content.endswith("a poem of three lines")


async def test_the_stand_in_knows_nothing_but_the_prompt() -> None:
    assert (
        await choose_by_words()("a poem of three lines", "Skills:\n- haiku: Writes poems.", ["haiku", "tea"]) == "haiku"
    )
    assert await choose_by_words()("a poem of three lines", "Skills:\n", ["haiku", "tea"]) == ""


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ten_skills_of_a_library_cost_as_little_as_promised(tmp_path: Path) -> None:
    skills = library(tmp_path)
    saved = add_up(each.saved for each in await draws(skills, 25))
    assert (saved.median >= 0.88, saved.p10 >= 0.75, saved.worst >= 0.60) == (True, True, True), saved
    found = await choices(skills, 8)
    assert found.listed >= found.eager
