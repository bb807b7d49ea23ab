"""Which program runs a script."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from flowengine.agents.skills.sandbox.sandbox import Sandbox
from flowengine.agents.skills.sandbox.script import ScriptLimits, interpreter_of
from flowengine.agents.skills.skill_files import RefusedError
from flowengine.errors import DefinitionError


def find(name: str) -> str | None:
    return None if name in ("deno", "node", "uv") else f"/usr/bin/{name}"


@pytest.mark.parametrize(
    ("path", "head", "program"),
    [
        ("x.py", "print(1)", (sys.executable,)),
        ("x.py", "", (sys.executable,)),
        ("x", "#!/usr/bin/env python3\n", (sys.executable,)),
        ("x", "#!/usr/bin/python3.11 -u\r\n", (sys.executable, "-u")),
        ("x", "\ufeff#! /bin/bash -e\n", ("/usr/bin/bash", "-e")),
        ("x", "#!/usr/bin/env -S A=1 perl -w\n", ("/usr/bin/perl", "-w")),
        ("x.py", "#!/usr/bin/env -S uv run --script\n", (sys.executable,)),
        ("x.SH", "echo", ("/usr/bin/bash",)),
        ("x.rb", "#!/usr/bin/env\n", ("/usr/bin/ruby",)),
        ("x.py", "#! \t\n", (sys.executable,)),
    ],
)
def test_the_first_line_says_it_else_the_ending(path: str, head: str, program: tuple[str, ...]) -> None:
    assert interpreter_of(path, head, find) == program


@pytest.mark.parametrize(
    ("path", "head", "reason"),
    [
        ("x", "hello", "it has no first line '#!…', and its ending '' is none of .py, .sh"),
        ("x.exe", "MZ", "its ending '.exe' is none of"),
        ("x", "#!/usr/bin/env deno\n", "the program 'deno' of its first line is not installed"),
        ("x.js", "1", "the program 'node' is not installed"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(path: str, head: str, reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        interpreter_of(path, head, find)
    assert reason in refused.value.values["reason"]


def test_a_limit_of_nothing_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="the limit 'seconds' must be a number above 0, not 0"):
        ScriptLimits(seconds=0)


@pytest.mark.parametrize(("name", "value"), [("seconds", float("inf")), ("memory", 10**400)])
def test_a_limit_that_no_system_can_count_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=f"'{name}' must be a .*above 0 and at most 1,000,000,000,000,000, not"):
        ScriptLimits(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("seconds", "5"), ("memory", None), ("output", 1.5), ("processes", True)])
def test_a_limit_of_another_type_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=f"the limit '{name}' must be a .*number above 0, not {value!r}"):
        ScriptLimits(**{name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limits": {"seconds": 3}}, "limits of scripts are ScriptLimits, not dict"),
        ({"allow_unconfined": "no"}, "allow_unconfined is True or False, not str"),
    ],
)
def test_a_sandbox_of_wrong_settings_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Sandbox(**settings)
