"""`flowengine skills`: the list, the check, the measure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture
def skills(folder: Path) -> Path:
    for name, description, body in (
        ("haiku", "Writes poems of three lines.", "Count the syllables.\n" * 50),
        ("Sonnet", "Writes poems: of fourteen lines.", "Mind the rhyme.\n" * 100),
    ):
        place = folder / "skills" / name
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}")
    return folder / "skills"


def test_skills_are_listed_with_their_descriptions(flowengine: Command, skills: Path) -> None:
    said = flowengine("skills", "list", "skills")
    rows = [line.split() for line in said.out.splitlines()]
    assert said.code == 0
    assert rows[0] == ["NAME", "TOKENS", "FILES", "DESCRIPTION"]
    assert [row[0] for row in rows[1:]] == ["Sonnet", "haiku"]
    assert "Writes poems of three lines." in said.out
    assert "2 irregularities; `flowengine skills check` tells them" in said.err
    found = json.loads(flowengine("skills", "list", "skills", "--json").out)
    assert [each["name"] for each in found] == ["Sonnet", "haiku"]
    assert found[1]["body_tokens"] > 100


def test_a_folder_without_skills_and_one_that_is_not_there(flowengine: Command, folder: Path) -> None:
    (folder / "empty").mkdir()
    said = flowengine("skills", "list", "empty")
    assert (said.code, said.out) == (0, "")
    assert "there are no skills" in said.err
    assert flowengine("skills", "measure", "empty").code == 2
    said = flowengine("skills", "list", "nowhere")
    assert said.code == 2
    assert "there is no folder 'nowhere'" in said.err


def test_a_check_tells_everything_and_strict_judges(flowengine: Command, skills: Path) -> None:
    said = flowengine("skills", "check", "skills")
    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0].endswith("SKILL.md:2: warning SK302 the name 'Sonnet' has capital letters")
    assert lines[1].endswith(
        "SKILL.md:3: warning SK204 a value with ': ' in it must stand in quotes; it is read as text"
    )
    assert "2 skills: 0 errors and 2 warnings" in said.err
    assert "scripts " in said.err
    said = flowengine("skills", "check", "skills", "--strict", "--json")
    assert said.code == 2
    assert [(each["code"], each["severity"]) for each in json.loads(said.out)] == [
        ("SK302", "error"),
        ("SK204", "error"),
    ]


def test_a_measure_compares_loading_by_need_with_loading_all(flowengine: Command, skills: Path) -> None:
    said = flowengine("skills", "measure", "skills")
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["SKILL", "tokens_eager", "tokens_actual", "tokens_paid", "SAVED", "PAID", "LESS"]
    assert [row[0] for row in rows[1:3]] == ["Sonnet", "haiku"]
    assert rows[1][1] == rows[2][1]
    assert rows[-1][:3] == ["paid", "less:", "median"]
    said = flowengine("skills", "measure", "skills/haiku")
    assert said.out.splitlines()[-1].startswith("warning: loading by need costs more input tokens here")
    said = flowengine("skills", "measure", "skills", "--active", "HAIKU", "--json")
    assert [each["skill"] for each in json.loads(said.out)["skills"]] == ["haiku"]
    said = flowengine("skills", "measure", "skills", "--active", "haikus")
    assert said.code == 2
    assert "there is no skill 'haikus'; did you mean 'haiku'?" in said.err


def test_a_measure_says_how_often_the_right_skill_is_chosen(flowengine: Command, skills: Path, folder: Path) -> None:
    tasks = [{"task": "three lines please", "skill": "haiku"}, {"task": "mind the rhyme", "skill": "Sonnet"}]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)) + "\n\n")
    said = flowengine("skills", "measure", "skills", "--tasks", "tasks.jsonl")
    assert said.out.splitlines()[-1] == (
        "right skill chosen by the lexical stand-in: 1 of 2 from the list, 2 of 2 with everything loaded"
    )
    said = flowengine("skills", "measure", "skills", "--tasks", "tasks.jsonl", "--json")
    assert json.loads(said.out)["choices"] == {"tasks": 2, "listed": 1, "eager": 2}
    said = flowengine("skills", "measure", "skills", "--tasks", "tasks.jsonl", "--model", "offline")
    assert "right skill chosen by offline: " in said.out


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no json", 'one {"task": …, "skill": …} is expected'),
        ('{"task": "x"}', 'one {"task": …, "skill": …} is expected'),
        ('{"task": "x", "skill": "haikus"}', "there is no skill 'haikus'; did you mean 'haiku'?"),
    ],
)
def test_tasks_that_cannot_be_read_are_told_with_their_line(
    flowengine: Command, skills: Path, folder: Path, line: str, problem: str
) -> None:
    (folder / "tasks.jsonl").write_text(f"\n{line}\n")
    said = flowengine("skills", "measure", "skills", "--tasks", "tasks.jsonl")
    assert said.code == 2
    assert f"tasks.jsonl:2: {problem}" in said.err
    (folder / "tasks.jsonl").write_bytes(b"\xff")
    said = flowengine("skills", "measure", "skills", "--tasks", "tasks.jsonl")
    assert (said.code, "tasks.jsonl cannot be read" in said.err) == (2, True)
