"""Every current chat model of each vendor, asked for everything that an author may want: nothing is sent that the
vendor's documents refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine.models.capability_lookup import capabilities_of
from flowengine.models.pricing import whole_table
from tests.models.accepted_requests import find_faults
from tests.models.matrix import INTENTS, VENDORS_ASKED, Cell, ask_for, current_models, reading_table

NEWER = Path(__file__).with_name("newer_models.json")
"""Entries of litellm 1.110.2 that older tables lack, or have otherwise."""


def table_with_newer() -> dict[str, object]:
    return {**whole_table(), **json.loads(NEWER.read_text("utf-8"))}


def faults_of(provider: str) -> list[str]:
    found: list[str] = []
    for name in current_models(provider):
        for intent in INTENTS:
            cell = ask_for(provider, name, intent)
            faults = [] if cell.refused else find_faults(provider, name, cell.path, cell.body)
            found += [f"{provider}/{name} {intent.name}: {each}" for each in faults]
    return found


@pytest.mark.parametrize("provider", VENDORS_ASKED)
def test_no_request_is_one_that_the_vendor_refuses(provider: str) -> None:
    assert len(current_models(provider)) > 4
    assert faults_of(provider) == []
    with reading_table(table_with_newer()):
        assert faults_of(provider) == []


@pytest.mark.parametrize("provider", VENDORS_ASKED)
def test_every_model_can_be_asked_at_all_and_streamed(provider: str) -> None:
    with reading_table(table_with_newer()):
        for name in current_models(provider):
            cells = [ask_for(provider, name, each) for each in INTENTS if each.name in ("text", "max_tokens", "stream")]
            assert [each.refused for each in cells] == ["", "", ""], name


def test_models_of_openai_that_call_tools_can_be_asked_to_with_and_without_thinking() -> None:
    def ask(name: str, wanted: str) -> Cell:
        return ask_for("openai", name, next(each for each in INTENTS if each.name == wanted))

    with reading_table(table_with_newer()):
        for name in current_models("openai"):
            can = capabilities_of("openai", name)
            if can.tools:
                assert ask(name, "tools").refused == "", name
                assert "high" not in (can.efforts or ()) or ask(name, "tools, effort").refused == "", name


def test_a_refusal_says_what_the_model_takes() -> None:
    found = ask_for("openai", "gpt-5-pro", next(each for each in INTENTS if each.name == "effort low"))
    assert found.refused == "reasoning_effort: it takes high"
