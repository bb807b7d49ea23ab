"""`flowengine memory`: what sessions and agents keep is listed, shown and removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

DESK = """
flowengine: v1
name: desk
inputs: {customer: {type: string}, message: {type: string}}
nodes:
  reply:
    model: offline
    context: [conversation]
    memory: {scope_id: "{{ inputs.customer }}"}
    prompt: "{{ inputs.message }}"
"""


@pytest.fixture
def desk(flowengine: Command, folder: Path) -> Command:
    """The command, in a folder where Ada and Bob have said something."""
    (folder / "desk.yaml").write_text(DESK)
    for name in ("ada", "bob"):
        given = ("-i", f"customer={name}", "-i", f"message=I am {name}")
        said = flowengine("run", "desk.yaml", *given, "--session", name)
        assert said.code == 0, said.err
    return flowengine


def test_what_is_kept_of_one_person_is_shown_and_removed(desk: Command) -> None:
    rows = [line.split()[:3] for line in desk("memory", "list").out.splitlines()]
    assert rows == [
        ["KIND", "NAME", "ENTRIES"],
        ["session", "ada", "1"],
        ["session", "bob", "1"],
        ["workspace", "ada", "1"],
        ["workspace", "bob", "1"],
    ]
    session, scope = [json.loads(line) for line in desk("memory", "show", "ada").out.splitlines()]
    assert (session["kind"], session["conversation"][0]["user_input"]) == ("session", "I am ada")
    assert (scope["kind"], scope["metadata"]["user_input"]) == ("workspace", "I am ada")
    assert "would remove session 'ada': 1 entry" in desk("memory", "rm", "ada", "--dry-run").err
    assert desk("memory", "rm", "ada").code == 0
    left = json.loads(desk("memory", "list", "--json").out)
    assert [(each["kind"], each["name"]) for each in left] == [("session", "bob"), ("workspace", "bob")]


def test_only_one_kind_is_removed_where_it_is_named(desk: Command) -> None:
    assert desk("memory", "rm", "ada", "--kind", "session").code == 0
    assert len(json.loads(desk("memory", "list", "--json", "--kind", "workspace").out)) == 2


def test_a_name_that_nothing_has_is_told_with_the_nearest(desk: Command) -> None:
    said = desk("memory", "rm", "adda")
    assert said.code == 2
    assert "nothing is remembered under 'adda' as a session or scope; did you mean 'ada'?" in said.err


def test_where_nothing_is_remembered_no_file_is_made(flowengine: Command, folder: Path) -> None:
    assert "nothing is remembered" in flowengine("memory", "list").err
    assert not (folder / ".flowengine" / "memory.db").exists()
    said = flowengine("memory", "list", "--memory", "none.db")
    assert (said.code, "there is no memory at none.db" in said.err) == (2, True)
