"""`flowengine skills` lists skills, reports what is irregular about them, and measures what loading by need saves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import click

from flowengine.agents import CallSettings, open_model
from flowengine.agents.skills import (
    Choices,
    Chooser,
    Measured,
    Skill,
    SkillStore,
    Task,
    add_up,
    choose_by_model,
    choose_by_words,
    measure_choices,
    measure_skill,
)
from flowengine.agents.skills.check import check as checked
from flowengine.agents.skills.sandbox import Verdict, verdict
from flowengine.cli.environment import surroundings_of
from flowengine.cli.terminal import Results, complain, format_table
from flowengine.core import dumps, parse_json
from flowengine.errors import did_you_mean
from flowengine.flowfile.project import find_project, project_of
from flowengine.models import Model

_paths_argument = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(file_okay=False))
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("skills")
def command() -> None:
    """List, check and measure skills: folders with SKILL.md files below them."""


@command.command("list")
@_paths_argument
@_json_option
def list_skills(paths: Sequence[str], as_json: bool) -> int:
    """The skills of folders, with what stands of each in every prompt."""
    store = SkillStore(paths)
    skills, results = store.skills(), Results()
    if as_json:
        results.value([_to_data(each) for each in skills])
    elif skills:
        rows = [
            [each.name, str(each.body_tokens), "yes" if each.has_files else "", each.description] for each in skills
        ]
        results.lines(format_table([["NAME", "TOKENS", "FILES", "DESCRIPTION"], *rows], right=[1]))
    count = len(store.diagnostics())
    if count:
        complain(f"{count} irregularit{'y' if count == 1 else 'ies'}; `flowengine skills check` tells them")
    if not skills:
        complain("there are no skills")
    return 0


def _to_data(skill: Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "file": str(skill.file),
        "body_tokens": skill.body_tokens,
        "has_files": skill.has_files,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": skill.metadata,
        "allowed_tools": skill.allowed_tools,
    }


@command.command("check")
@_paths_argument
@click.option("--strict", is_flag=True, help="Treat violations of the Agent Skills specification as errors.")
@_json_option
def check_skills(paths: Sequence[str], strict: bool, as_json: bool) -> int:
    """Say everything that is irregular about skills, and whether their scripts can run here.

    Exit code 2 where there is an error: a skill that cannot be read, or with --strict one that breaks the rules.
    """
    store = SkillStore(paths, strict)
    problems, results = checked(store), Results()
    if as_json:
        results.value(problems)
    else:
        for each in problems:
            results.line(str(each))
    errors = sum(each.severity == "error" for each in problems)
    complain(f"{len(store.skills())} skills: {errors} errors and {len(problems) - errors} warnings")
    project = find_project(paths[0])
    complain(_describe_script_support(verdict(project.root), project.allow_unconfined_scripts))
    return 2 if errors else 0


def _describe_script_support(sandbox: Verdict, is_allowed: bool) -> str:
    """Says whether scripts run on this machine, and how.

    >>> _describe_script_support(Verdict(False, "bwrap is not installed"), True)
    'scripts run UNCONFINED here, as the project file allows: bwrap is not installed'
    """
    if sandbox.holds:
        return "scripts run in a sandbox"
    done = "run UNCONFINED here, as the project file allows" if is_allowed else "are refused here"
    return f"scripts {done}: {sandbox.reason}"


@command.command("measure")
@_paths_argument
@click.option("--active", metavar="NAME", help="Only where this skill is in use; else each one in turn.")
@click.option("--task", default="", metavar="TEXT", help="What the skill is used for; else what it describes.")
@click.option(
    "--tasks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='Also say how often the right skill is chosen: one {"task": …, "skill": …} a line.',
)
@click.option("--model", metavar="NAME", help="Who chooses; else a lexical stand-in, which is no language model.")
@click.option("--locale", type=click.Choice(["en", "ja", "zh"]), default="en", show_default=True)
@_json_option
def measure_skills(
    paths: Sequence[str],
    active: str | None,
    task: str,
    tasks: Path | None,
    model: str | None,
    locale: str,
    as_json: bool,
) -> int:
    """Compare the tokens of skills that are loaded by need with those of loading everything.

    tokens_eager: all bodies in the prompt. tokens_actual: the list, the schemas of the tools, the calls, and what they
    answered where one skill is in use. tokens_paid: the prompts of all requests, since each call of a tool sends the
    prompt again.
    """
    store = SkillStore(paths)
    chosen_skills = [_find_skill(store, active)] if active else list(store.skills())
    if not chosen_skills:
        raise click.UsageError("there are no skills to measure")
    samples = [] if tasks is None else _read_tasks(tasks, store)
    choose = choose_by_words() if model is None else choose_by_model(_open_model(model), locale)
    cases, choices = anyio.run(_measure, store, chosen_skills, task, samples, choose, locale)
    results = Results()
    if as_json:
        results.json(_to_json(cases, choices))
    else:
        results.lines(_format_lines(cases, choices, model))
    return 0


async def _measure(
    store: SkillStore, skills: Sequence[Skill], task: str, samples: Sequence[Task], choose: Chooser, locale: str
) -> tuple[list[Measured], Choices | None]:
    cases = [await measure_skill(store, each, task, locale) for each in skills]
    return cases, await measure_choices(store, samples, choose, locale) if samples else None


def _open_model(name: str) -> Model:
    project, _ = project_of(None)
    return open_model(CallSettings(name, surroundings=surroundings_of(project)))[0]


def _find_skill(store: SkillStore, name: str) -> Skill:
    skill = store.find(name)
    if skill is None:
        raise click.UsageError(f"there is no skill '{name}'{store.hint(name)}")
    return skill


def _read_tasks(file: Path, store: SkillStore) -> list[Task]:
    names = [each.name for each in store.skills()]
    tasks: list[Task] = []
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = parse_json(line)
            task = Task(str(entry["task"]), str(entry["skill"]))
        except (ValueError, KeyError, TypeError) as error:
            raise click.UsageError(f'{file}:{number}: one {{"task": …, "skill": …}} is expected') from error
        if task.skill not in names:
            raise click.UsageError(
                f"{file}:{number}: there is no skill '{task.skill}'{did_you_mean(task.skill, names)}"
            )
        tasks.append(task)
    return tasks


def _format_lines(cases: Sequence[Measured], choices: Choices | None, model: str | None) -> list[str]:
    rows = [[each.skill, *map(str, each[1:]), f"{each.saved:.0%}", f"{each.saved_paid:.0%}"] for each in cases]
    heads = ["SKILL", "tokens_eager", "tokens_actual", "tokens_paid", "SAVED", "PAID LESS"]
    lines = [*format_table([heads, *rows], right=[1, 2, 3, 4, 5]), ""]
    paid = add_up(each.saved_paid for each in cases)
    for what, over in (("saved of the last prompt", add_up(each.saved for each in cases)), ("paid less", paid)):
        lines.append(f"{what}: median {over.median:.0%}, p10 {over.p10:.0%}, worst {over.worst:.0%}")
    if paid.median < 0:
        lines.append("warning: loading by need costs more input tokens here than loading everything at once")
    if choices is not None:
        who = model or "the lexical stand-in"
        shares = (f"{count} of {choices.tasks}" for count in (choices.listed, choices.eager))
        lines.append("right skill chosen by {}: {} from the list, {} with everything loaded".format(who, *shares))
    return lines


def _to_json(cases: Sequence[Measured], choices: Choices | None) -> str:
    each = [case._asdict() | {"saved": round(case.saved, 4), "saved_paid": round(case.saved_paid, 4)} for case in cases]
    totals = {
        "saved": add_up(case.saved for case in cases)._asdict(),
        "saved_paid": add_up(case.saved_paid for case in cases)._asdict(),
    }
    return dumps({"skills": each, **totals, "choices": choices and choices._asdict()}, indent=2)
