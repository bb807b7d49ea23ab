"""Prompts: order, roles, what is left out, and in every language the same parts."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from flowengine.agents.prompt.prompt import Subject, fence, generation_messages, routing_messages, text_of
from flowengine.core.context import LLMResult
from flowengine.core.locale import LOCALES, load_messages
from flowengine.errors import DefinitionError
from flowengine.models.messages import Message

EN = load_messages("en")


def test_every_part_in_its_place() -> None:
    messages = generation_messages(
        EN,
        "Why?",
        system_message="You are kind.",
        instructions="Answer in a line.",
        context="The sky is blue.",
        history=["User: Hi\nAssistant: Hello", "User: Ok\nAssistant: Yes"],
        earlier=[Message("user", "Before")],
    )
    assert messages == (
        Message("system", "You are kind.\n\nAnswer in a line."),
        Message("user", "Before"),
        Message(
            "user",
            "Context:\nThe sky is blue.\n\n"
            "Previous context:\nUser: Hi\nAssistant: Hello\nUser: Ok\nAssistant: Yes\n\n"
            "User input: Why?",
        ),
    )


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, [("user", "User input: Why?")]),
        ({"system_message": "S"}, [("system", "S"), ("user", "User input: Why?")]),
        ({"instructions": "I\n"}, [("system", "I"), ("user", "User input: Why?")]),
        ({"instructions": "  "}, [("user", "User input: Why?")]),
        ({"context": "C"}, [("user", "Context:\nC\n\nUser input: Why?")]),
        ({"history": ["H"]}, [("user", "Previous context:\nH\n\nUser input: Why?")]),
    ],
)
def test_parts_that_are_empty_are_left_out(parts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert [(each.role, each.content) for each in generation_messages(EN, "Why?", **parts)] == expected


@pytest.mark.parametrize(("locale", "heading"), [("ja", "ユーザー入力: なぜ"), ("zh", "用户输入：なぜ")])
def test_headings_come_from_the_locale(locale: str, heading: str) -> None:
    assert generation_messages(load_messages(locale), "なぜ")[-1].content == heading


def test_braces_in_a_users_text_are_only_text() -> None:
    assert generation_messages(EN, "{text} {0} {x!r}")[-1].content == "User input: {text} {0} {x!r}"


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="<>/result_12 \n", max_size=60))
def test_no_text_closes_the_tags_round_it(text: str) -> None:
    first, last = fence("result", text).split("\n", 1)[0], fence("result", text).rsplit("\n", 1)[1]
    assert last == "</" + first[1:]
    assert last not in text


class Point(BaseModel):
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ({"a": "日本"}, '{"a": "日本"}'),
        ([1, None], "[1, null]"),
        (Point(x=1), '{"x":1}'),
        (LLMResult(content={"a": 1}), '{"a": 1}'),
        (1.5, "1.5"),
    ],
)
def test_values_as_prompt_text(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_subject_without_a_prompt_has_no_section_for_one() -> None:
    user = routing_messages(EN, Subject("text"), "Route.", {"a": "A"})[-1].content
    assert "prompt" not in user


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("locale", LOCALES)
def test_every_locale_has_the_same_texts_with_the_same_placeholders(locale: str) -> None:
    texts = load_messages(locale).texts
    assert {key: placeholders(text) for key, text in texts.items()} == {
        key: placeholders(text) for key, text in EN.texts.items()
    }
    assert all(text.strip() for text in texts.values())


@pytest.mark.parametrize("locale", ["ja", "zh"])
def test_no_text_was_left_untranslated(locale: str) -> None:
    assert not [key for key, text in load_messages(locale).texts.items() if text == EN.texts[key]]


def test_an_unknown_locale_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"unknown locale '\.\./en'; there are en, ja, zh"):
        load_messages("../en")
