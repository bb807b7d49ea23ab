"""Flows edited at random: a spec or diagnostics comes out, quickly, and what loads fits the schema of editors."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.errors import FlowError
from flowengine.flowfile.loader import check_text, load_flow
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.schema.editor_schema import json_schema
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.yaml.parser import parse_yaml
from tests.support.pace import spent_within
from tests.support.polish_loop import POLISH_LOOP

FLOWS = Path(__file__).parents[2] / "flows"
NESTED = (
    """\
flowengine: v1
name: nested
inputs: {topic: {type: string}, list: {type: array, default: []}}
shared_state: {seen: {type: array, default: [], merge: union}}
agents: {writer: {instructions: "Write of {{ inputs.topic }}", model: offline}}
limits: {cost_usd: 2.0, on_limit: partial}
nodes:
  draft: {agent: writer, prompt: "{{ inputs.topic }}", limits: {tokens: 500}}
"""
    + POLISH_LOOP
    + """\
  every:
    type: map
    over: inputs.list
    as: one
    concurrency: 4
    on_item_error: skip
    nodes:
      look: {type: condition, if: one != nodes.polish.output.text, then: tell, else: {}}
      tell: {prompt: "{{ one }} of {{ each.total }}", set: {seen: ["{{ one }}"]}, effect: idempotent}
    result: {text: "{{ nodes.tell.output | default('') }}", index: "{{ each.index }}"}
  ask:
    type: approval
    needs: [every]
    message: "{{ nodes.every.output | length }} notes. Go on?"
    form: {type: object, properties: {note: {type: string}}}
    routes: {yes: last, no: {}}
    expires: 2h
    on_expire: no
  last: {prompt: "{{ nodes.ask.output.form.note }} {{ nodes.every.output }}"}
outputs:
  text: "{{ nodes.last.output | default('nothing') }}"
  seen: "{{ shared_state.seen }}"
"""
)
TEXTS = [NESTED, *(path.read_text() for path in sorted(FLOWS.glob("*.yaml")))]
WORDS = sorted({word for text in TEXTS for word in text.replace(":", " ").replace(",", " ").split()})
PIECES = [
    ":",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "- ",
    "'",
    '"',
    "|",
    "#",
    "&a ",
    "*a",
    "{{ ",
    " }}",
    "{% if x %}",
    "\\0",
    "\t",
    "0",
    "~",
]
PROJECT = Project(FLOWS)
ROUNDS = int(os.environ.get("FLOWENGINE_TEST_FUZZ", "100"))
"""Edited flows a test; more where somebody hunts."""


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of maps and lists."""
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
    elif isinstance(value, list):
        pairs = enumerate(cast("list[Any]", value))
    return [at, *(each for key, inner in pairs for each in paths(inner, (*at, key)))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@cache
def trees() -> list[Any]:
    return [parse_yaml(text).data for text in TEXTS]


@cache
def keys() -> list[str]:
    return sorted({path[-1] for tree in trees() for path in paths(tree)[1:] if isinstance(path[-1], str)})


@cache
def validator() -> Any:
    return jsonschema.Draft7Validator(json_schema())


def test_the_flow_that_is_edited_is_sound() -> None:
    assert check_text(NESTED) == []


def comes_out(text: str) -> FlowSpec | None:
    """The spec, or None where there are diagnostics; anything else is a failure, and so is a long wait."""
    begun = time.thread_time()
    found = check_text(text, project=PROJECT)
    took = time.thread_time() - begun
    assert took < 0.5 or spent_within(0.5, partial(check_text, text, project=PROJECT)), f"{took:.2f} s"
    assert all(len(str(each)) < 2000 and (each.line or 0) <= text.count("\n") + 2 for each in found)
    if not any(each.severity == "error" for each in found):
        return load_flow(text=text, project=PROJECT)
    with pytest.raises(FlowError) as refused:
        load_flow(text=text, project=PROJECT)
    assert refused.value.diagnostics
    return None


@st.composite
def edits_of_lines(draw: st.DrawFn) -> str:
    """A flow with lines moved, doubled, dropped, indented otherwise, or with other words in them."""
    lines = draw(st.sampled_from(TEXTS)).splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        edit = draw(st.sampled_from(["drop", "double", "indent", "dedent", "word", "move", "value"]))
        if edit == "drop" and len(lines) > 1:
            del lines[at]
        elif edit == "double":
            lines.insert(at, lines[at])
        elif edit == "indent":
            lines[at] = " " * draw(st.integers(1, 4)) + lines[at]
        elif edit == "dedent":
            lines[at] = lines[at].removeprefix("  ")
        elif edit == "move":
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        elif edit == "value":
            lines[at] = lines[at].partition(":")[0] + ": " + draw(st.sampled_from(WORDS))
        else:
            words = lines[at].split(" ")
            words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(WORDS))
            lines[at] = " ".join(words)
    return "\n".join(lines)


@pytest.mark.long
@given(edits_of_lines())
@settings(max_examples=ROUNDS, deadline=None)
def test_edited_lines(text: str) -> None:
    comes_out(text)


@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.one_of(st.sampled_from(PIECES), st.text(max_size=3)))),
)
@settings(max_examples=ROUNDS, deadline=None)
def test_edited_characters(text: str, edits: list[tuple[float, int, str]]) -> None:
    for where, width, piece in edits[:4]:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + width :]
    comes_out(text)


@st.composite
def edits_of_trees(draw: st.DrawFn) -> Any:
    """A flow's tree with parts of it, or of other flows, in other places."""
    root, other = copy.deepcopy(draw(st.sampled_from(trees()))), draw(st.sampled_from(trees()))
    for _ in range(draw(st.integers(1, 3))):
        *above, key = draw(st.sampled_from(paths(root)[1:]))
        holder: Any = at(root, tuple(above))
        if draw(st.booleans()):
            holder[key] = draw(st.sampled_from([0, -1, 1.5, True, "", [], {}, "on", "a.b", "x" * 300, *WORDS]))
        elif type(holder) is dict and draw(st.booleans()):
            holder[draw(st.sampled_from(keys()))] = holder[key]
        else:
            holder[key] = copy.deepcopy(at(other, draw(st.sampled_from(paths(other)))))
    return root


@given(edits_of_trees())
@settings(max_examples=ROUNDS, deadline=None)
def test_edited_trees(root: Any) -> None:
    text = json.dumps({str(key): value for key, value in root.items()})
    spec = comes_out(text)
    if spec is not None:
        assert [f"{each.json_path}: {each.message}" for each in validator().iter_errors(json.loads(text))] == []
