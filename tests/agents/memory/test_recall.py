"""The benchmark's sets, small: what is found again, in three languages."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import cache

import pytest

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.agents.memory.items.sqlite import SQLiteMemoryItems
from tests.bench.memory import Outcome, outcome
from tests.bench.recall_set import recall_set


@cache
def measured(name: str) -> Outcome:
    made = recall_set(name, scopes=2, people=4, seed=3)
    with closing(MemoryDatabase(":memory:")) as database:
        return asyncio.run(outcome(made, SQLiteMemoryItems(database)))


@pytest.mark.parametrize("name", ["en", "ja", "zh", "en_projects", "ja_projects", "zh_projects"])
def test_what_was_said_is_found_again_the_newest_first_and_in_its_scope_only(name: str):
    found = measured(name)
    assert found.overall >= (0.95 if name.startswith("en") else 0.90), found
    assert found.newest == 1.0
    assert found.leaks == 0
    assert found.heard >= 0.95


@pytest.mark.parametrize("language", ["en", "ja"])
def test_of_somebody_who_is_not_known_nothing_is_told(language: str):
    assert measured(language).silent["unanswerable_stranger"] >= 0.75


def test_the_sets_ask_about_facts_changes_times_several_sessions_and_what_nobody_said():
    kinds = {each.kind for each in recall_set("ja", scopes=1).questions}
    assert kinds == {
        "facts",
        "updates",
        "time",
        "sessions",
        "synonyms",
        "unanswerable_stranger",
        "unanswerable_unasked",
    }


def test_no_question_is_a_copy_of_what_was_said():
    for name in ("en", "ja", "zh"):
        made = recall_set(name, scopes=1)
        said = {each.text.rstrip(".。") for each in made.said}
        assert not said & {each.text.rstrip("?？。") for each in made.questions}
