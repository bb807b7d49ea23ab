"""`flowengine memory`: what sessions and agents keep is listed, shown and removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine import Context, Flow, FunctionNode, NodeResult

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


def test_one_typed_context_of_a_session_is_removed_and_the_rest_of_it_stays(flowengine: Command, folder: Path) -> None:
    seen: list[Any] = []

    def add(context: Context) -> NodeResult:
        seen.append(context.runtime.kept.get("context:cart"))
        return NodeResult(1, kept={"context:cart": ["tea"], "context:notes": ["n"], "conversation": [{"turn": 1}]})

    def run_once() -> None:
        (folder / ".flowengine").mkdir(exist_ok=True)
        Flow("f", {"a": FunctionNode(add)}).run_sync(store=folder / ".flowengine" / "runs.db", session="ada")

    run_once()
    wrong = flowengine("memory", "rm", "ada", "--context", "carts")
    assert (wrong.code, "keeps no typed context 'carts'; did you mean 'cart'?" in wrong.err) == (2, True), wrong.err
    assert flowengine("memory", "rm", "ada", "--context", "cart", "--kind", "thread").code == 2
    said = flowengine("memory", "rm", "ada", "--context", "cart", "--dry-run")
    assert "would remove context 'cart' of session 'ada'" in said.err
    said = flowengine("memory", "rm", "ada", "--context", "cart")
    assert (said.code, "removed context 'cart' of session 'ada'" in said.err) == (0, True), said.err
    left = json.loads(flowengine("memory", "show", "ada").out)
    assert (left["context:notes"], left["conversation"], "context:cart" in left) == (["n"], [{"turn": 1}], False)
    run_once()
    assert seen == [None, None]


def test_a_name_that_nothing_has_is_told_with_the_nearest(desk: Command) -> None:
    said = desk("memory", "rm", "adda")
    assert said.code == 2
    assert "nothing is remembered under 'adda' as a session or scope; did you mean 'ada'?" in said.err


def test_where_nothing_is_remembered_no_file_is_made(flowengine: Command, folder: Path) -> None:
    assert "nothing is remembered" in flowengine("memory", "list").err
    assert not (folder / ".flowengine" / "memory.db").exists()
    said = flowengine("memory", "list", "--memory", "none.db")
    assert (said.code, "there is no memory at none.db" in said.err) == (2, True)
