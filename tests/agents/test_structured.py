"""Structured answers: where JSON is found, what fits, and how the model is asked to correct itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator

from flowengine.agents.caller import Caller
from flowengine.agents.settings import CallSettings
from flowengine.agents.structured import OutputModel, StructuredAnswer, UnusableAnswerError, json_values, shape_of
from flowengine.core.json_schema import describe_problems, make_validator
from flowengine.core.locale import load_messages
from flowengine.core.records import ModelCall
from flowengine.errors import DefinitionError, OutputError, PermanentModelError
from flowengine.models.messages import Message
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel

WORDS = load_messages("en")
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
ASKED = (Message("system", "Be exact."), Message("user", "Where?"))


async def complete_structured(
    recorder: Any, model: ScriptedModel, output: OutputModel, max_retries: int = 3
) -> StructuredAnswer:
    caller = Caller(recorder, model, CallSettings(model, max_retries=max_retries), WORDS)
    return await caller.answer(ASKED, shape_of(output), "generation")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date


class Foreign(ScriptedModel):
    """A model whose vendor knows no response schemas."""

    async def supports_schema(self) -> bool:
        return False


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1}',
        '  {"x": 1}\n',
        '```json\n{"x": 1}\n```',
        '```\n{"x": 1}\n```',
        'Here you are:\n```json\n{"x": 1}\n```\nAnything else?',
        'Sure! {"x": 1}. Good luck.',
        'With {braces} and [brackets] before: {"x": 1}',
        'First I thought {"x": 1}, and it is {"x": 1}',
        'First I thought {"x": 0}, but it is\n```json\n{"x": 1}\n```',
        '<think>{"x": 0}?</think>{"x": 1}',
        'An example would be {"y": "wrong shape"}. The answer: {"x": 1} {"z": 3}',
        '```python\nprint("no json")\n``` {"x": 1}',
    ],
)
async def test_json_is_found_in_fences_and_in_prose(recorder: Any, text: str) -> None:
    answer = await complete_structured(recorder, ScriptedModel([text]), POINT)
    assert (answer.value, answer.calls) == ({"x": 1}, 1)


@pytest.mark.parametrize(
    "text",
    [
        'First I thought {"x": 0}, but it is {"x": 1}',
        '```json\n{"x": 0}\n```\nNo:\n```json\n{"x": 1}\n```',
        '{"x": 0} {"x": 1} {"x": 0}',
    ],
)
async def test_of_different_values_that_fit_none_is_taken_silently(recorder: Any, text: str) -> None:
    model = ScriptedModel([text, {"x": 2}])
    answer = await complete_structured(recorder, model, POINT)
    assert (answer.value, answer.calls) == ({"x": 2}, 2)
    assert "different JSON values that fit; answer with one of them only" in model.requests[1].messages[-1].content


@pytest.mark.parametrize("text", ["", "no json", "{'x': 1}", '{"x": NaN}', '{"x": 1', "[[[[", "[" * 100_000])
def test_what_is_no_json_gives_nothing(text: str) -> None:
    assert list(json_values(text)) == []


def test_an_endless_row_of_openings_is_given_up_soon() -> None:
    assert list(json_values('{"a":' * 50_000)) == []


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["{}", "```json\n{}\n```", "So:\n```\n{}\n```\nDone."]),
)
def test_any_value_is_found_again_whole_or_fenced(value: Any, frame: str) -> None:
    text = json.dumps(value)
    assert next(json_values(frame.replace("{}", text, 1))) == value or "```" in text


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='{}[]"`:,1a \n\\', max_size=60))
def test_no_text_whatever_breaks_the_search(text: str) -> None:
    list(json_values(text))


async def test_what_is_wrong_is_said_after_the_bad_answer_and_only_the_last_bad_answer_is_kept(recorder: Any) -> None:
    model = ScriptedModel(["first", {"x": "two"}, {"x": 3}])
    answer = await complete_structured(recorder, model, POINT)
    assert (answer.value, answer.calls) == ({"x": 3}, 3)
    chats = [[(each.role, each.content) for each in request.messages] for request in model.requests]
    assert chats[1][:2] == chats[2][:2] == chats[0]
    assert chats[1][2] == ("assistant", "first")
    assert "it holds no JSON" in chats[1][3][1]
    assert chats[2][2] == ("assistant", '{"x": "two"}')
    assert "$.x: 'two' is not of type 'integer'" in chats[2][3][1]
    assert len(chats[2]) == 4
    assert len(recorder.of(ModelCall)) == 3


async def test_an_empty_answer_is_asked_for_again_with_the_same_request(recorder: Any) -> None:
    model = ScriptedModel(["", {"x": 1}])
    await complete_structured(recorder, model, POINT)
    assert model.requests[0] == model.requests[1]


async def test_an_answer_that_was_cut_off_is_told_so(recorder: Any) -> None:
    model = ScriptedModel([Reply('{"x": [1, 2', finish_reason="length"), {"x": 1}])
    await complete_structured(recorder, model, POINT)
    assert "cut off" in model.requests[1].messages[-1].content


@pytest.mark.parametrize("retries", [0, 2])
async def test_the_error_holds_the_last_answer_its_problem_and_the_calls(recorder: Any, retries: int) -> None:
    model = ScriptedModel(lambda request: '{"x": null}')
    with pytest.raises(UnusableAnswerError, match=f"after {retries + 1} call") as caught:
        await complete_structured(recorder, model, POINT, retries)
    assert caught.value.answer == '{"x": null}'
    assert caught.value.problem == "$.x: None is not of type 'integer'"
    assert caught.value.calls == len(model.requests) == retries + 1


async def test_a_refused_answer_is_not_corrected(recorder: Any) -> None:
    model = ScriptedModel([Reply("{}", finish_reason="content_filter")])
    with pytest.raises(PermanentModelError, match="refused to answer"):
        await complete_structured(recorder, model, POINT)


async def test_a_strict_pydantic_class_reads_dates_from_text(recorder: Any) -> None:
    answer = await complete_structured(recorder, ScriptedModel([{"day": "2024-02-29"}]), Strict)
    assert answer.value == Strict(day=date(2024, 2, 29))


async def test_half_a_surrogate_pair_is_no_answer(recorder: Any) -> None:
    class Word(BaseModel):
        word: str

    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    for output in (Word, schema):
        model = ScriptedModel(['{"word": "\\ud800"}', {"word": "whole"}])
        answer = await complete_structured(recorder, model, output)
        assert answer.calls == 2


async def test_a_model_without_response_schemas_gets_the_schema_in_its_prompt(recorder: Any) -> None:
    native, foreign = ScriptedModel([{"x": 1}]), Foreign([{"x": 1}])
    await complete_structured(recorder, native, POINT)
    await complete_structured(recorder, foreign, POINT)
    assert native.requests[0].messages == ASKED
    system = foreign.requests[0].messages[0].content
    assert system.startswith("Be exact.\n\n")
    assert json.dumps(POINT, separators=(",", ":")) in system
    assert foreign.requests[0].messages[1:] == ASKED[1:]


def test_shapes_have_names_that_vendors_take() -> None:
    assert shape_of(Strict).name == "Strict"
    assert shape_of({"title": "A title, 日本", "type": "object"}).name == "A_title"
    assert shape_of({"title": "日本", "type": "object"}).name == "answer"
    assert len(shape_of({"title": "x" * 100, "type": "object"}).name) == 64


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        {"$id": "urn:x", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"n": {"$ref": "#"}}},
    ],
)
def test_a_schema_may_refer_to_its_own_parts(schema: dict[str, Any]) -> None:
    assert describe_problems(make_validator(schema), {}) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "none of its keys"),
        ({"name": "string", "age": "integer"}, r"none of its keys \(name, age\) is a keyword"),
        ({"type": "strnig"}, "strnig"),
        ({"properties": []}, "properties"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "only its own parts"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"allOf": [{"$ref": "#/$defs/b"}]}, "#/\\$defs/b.*does not have"),
    ],
)
def test_what_is_no_schema_is_a_definition_error(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        shape_of(schema)


def test_at_most_a_few_problems_are_told() -> None:
    check = make_validator({"type": "array", "items": {"type": "integer"}})
    assert len(describe_problems(check, ["a"] * 50)) == 5


def test_a_class_that_has_no_schema_is_a_definition_error() -> None:
    class Action(BaseModel):
        act: Callable[[], int]

    with pytest.raises(DefinitionError, match="output_model Action has no JSON Schema"):
        shape_of(Action)


async def test_a_validator_that_breaks_is_an_error_and_no_correction(recorder: Any) -> None:
    class Word(BaseModel):
        word: str

        @field_validator("word")
        @classmethod
        def look_up(cls, value: str) -> str:
            raise LookupError("no dictionary")

    model = ScriptedModel([{"word": "tea"}])
    with pytest.raises(OutputError, match="a validator of Word failed: LookupError: no dictionary"):
        await complete_structured(recorder, model, Word)
    assert len(model.requests) == 1


def test_a_value_that_is_nested_too_deeply_is_a_problem_and_no_crash() -> None:
    check = make_validator({"properties": {"next": {"$ref": "#"}}, "type": "object"})
    value: dict[str, Any] = {}
    for _ in range(900):
        value = {"next": value}
    assert describe_problems(check, value) == ["$: it is nested too deeply"]
