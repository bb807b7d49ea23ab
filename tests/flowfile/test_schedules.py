"""`[[schedules]]` of a project file: what is wrong is told with the line and column of the entry that it is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flowfile.project.project import project_of

FIRST = '[[schedules]]\nflow = "report.yaml"\ncron = "0 7 * * MON-FRI"\n'


def read(folder: Path, text: str) -> tuple[tuple[str, ...], list[str]]:
    (folder / "report.yaml").write_text("flowengine: v1\nname: report\nnodes: {a: {prompt: x, model: offline}}\n")
    (folder / "flowengine.toml").write_text(text)
    project, problems = project_of(folder)
    return tuple(each.name for each in project.schedules), [str(each).replace(f"{folder}/", "") for each in problems]


def test_schedules_are_read_with_their_defaults(tmp_path: Path):
    second = (
        'name = "weekly"\ntimezone = "Asia/Tokyo"\noverlap = "queue"\ncatch_up = "last"\ninputs = {region = "EU"}\n'
    )
    assert read(tmp_path, f"{FIRST}{FIRST}{second}") == (("report", "weekly"), [])
    first, weekly = project_of(tmp_path)[0].schedules
    assert (first.timezone, first.overlap, first.catch_up, first.queue) == ("UTC", "skip", False, "default")
    assert (weekly.timezone, weekly.overlap, weekly.catch_up, weekly.inputs) == (
        "Asia/Tokyo", "queue", "last", {"region": "EU"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('cron = "0 25 * * *"', "6:1: FE502 schedule 'report': 'cron' cannot be '0 25 * * *': bad hour; such as"),
        ('cron = "@daily"', "6:1: FE502 schedule 'report': 'cron' cannot be '@daily': it has five fields"),
        ("cron = 7", "6:1: FE502 schedule 'report': 'cron' is a text such as"),
        ("", "4:3: FE502 schedule 'report': 'cron' is a text such as"),
        (
            'timezone = "Europe/Berln"',
            "'timezone' cannot be 'Europe/Berln': there is no such time zone here; did you mean 'Europe/Berlin'?",
        ),
        ('timezone = "../../etc/passwd"', "'timezone' cannot be '../../etc/passwd'"),
        (
            'overlap = "skp"',
            "6:1: FE502 schedule 'report': 'overlap' is one of skip, queue, cancel; did you mean 'skip'?",
        ),
        ("overlap = true", "'overlap' is one of skip, queue, cancel"),
        ('catch_up = "all"', "6:1: FE502 schedule 'report': 'catch_up' is one of true, false, last"),
        ("catch_up = 1", "'catch_up' is one of true, false, last"),
        ("crn = 1", "6:1: FE502 schedule 'report': unknown key 'crn'; did you mean 'cron'?"),
        ("inputs = [1]", "6:1: FE502 schedule 'report': 'inputs' is a table"),
        ('name = "a b"', "6:1: FE502 schedule 'a b': 'a b' is no name of a schedule"),
        ("name = 3", "6:1: FE502 3 is no name of a schedule"),
        ("queue = 1", "'queue' is the name of a queue"),
    ],
)
def test_a_mistake_in_the_second_entry_is_told_there(tmp_path: Path, more: str, expected: str):
    cron = "" if more.startswith("cron") or not more else 'cron = "0 7 * * *"\n'
    text = f'{FIRST}[[schedules]]\nflow = "report.yaml"\n{more}\n{cron}'
    names, problems = read(tmp_path, text)
    assert names == ("report",)
    assert any(expected in each for each in problems), problems


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        ("none.yaml", "there is no file 'none.yaml'"), ("../report.yaml", "../report.yaml"), (".env", ".env"),
        (".", "no file"),
    ],
)  # fmt: skip
def test_a_flow_is_a_file_below_the_root(tmp_path: Path, flow: str, expected: str):
    (tmp_path / ".env").write_text("KEY=1")
    names, problems = read(tmp_path, f'[[schedules]]\nname = "x"\nflow = "{flow}"\ncron = "0 7 * * *"\n')
    assert (names, len(problems)) == ((), 1)
    assert expected in problems[0]
    assert "2:1" in problems[0] or "3:1" in problems[0]


def test_two_of_one_name_and_a_table_in_the_place_of_a_list_are_told(tmp_path: Path):
    names, problems = read(tmp_path, FIRST + FIRST)
    assert (names, problems) == (
        ("report",), ["flowengine.toml:4:3: FE502 there are two schedules 'report'; give each a `name` of its own"],
    )  # fmt: skip
    assert (
        "'schedules' is a list of tables: [[schedules]]"
        in read(tmp_path, FIRST.replace("[[", "[").replace("]]", "]"))[1][0]
    )
