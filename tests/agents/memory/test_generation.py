"""Memories that a model writes: what it is asked, and how its answer is kept within its limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowengine.agents.memory.scopes.channel_messages import ChannelMessage, ChannelMessages
from flowengine.agents.memory.scopes.generation import (
    MemoryGenerator,
    MemoryLimits,
    long_term_messages,
    short_term_messages,
)
from flowengine.agents.standalone import DirectGateway
from flowengine.core.records import ModelCall, Notice
from flowengine.errors import DefinitionError, OutputError, PermanentModelError
from flowengine.models.model import Reply
from flowengine.models.offline.model import OfflineModel
from flowengine.models.scripted import ScriptedModel
from flowengine.models.tokens import count_tokens

START = datetime(2025, 3, 1, 9, tzinfo=UTC)


def channel(name: str, *texts: str) -> ChannelMessages:
    said = [ChannelMessage(str(at), "aki", text, START + timedelta(minutes=at)) for at, text in enumerate(texts)]
    return ChannelMessages(name.upper(), name, tuple(said))


def generator(answers: list[Any], records: list[Any] | None = None, **options: Any) -> tuple[MemoryGenerator, Any]:
    model = ScriptedModel(answers)

    async def note(record: Any) -> None:
        if records is not None:
            records.append(record)

    return MemoryGenerator(model, DirectGateway(note), **options), model


async def test_recent_events_are_written_from_the_messages():
    records: list[Any] = []
    written, model = generator([" - Party on Friday. \n"], records, locale="ja")
    assert await written.short_term([channel("general", "忘年会は金曜日です。", "了解。")]) == "- Party on Friday."
    (request,) = model.requests
    assert [each.role for each in request.messages] == ["system", "user"]
    assert "400 トークン以内" in request.messages[0].content
    assert request.messages[1].content == (
        "## メッセージ\n\n### #general\n\n"
        "**2025-03-01 09:00:00** aki:\n忘年会は金曜日です。\n\n**2025-03-01 09:01:00** aki:\n了解。"
    )
    (call,) = records
    assert isinstance(call, ModelCall)
    assert call.purpose == "memory"


async def test_where_nothing_was_said_no_model_is_asked():
    written, model = generator([])
    assert await written.short_term([channel("general"), channel("dev")]) is None
    assert await written.short_term([]) is None
    assert model.requests == []


async def test_the_history_is_merged_from_the_one_before_and_what_is_new():
    written, model = generator(["Founded 2019.", "Founded 2019. Moved 2025."])
    first = await written.long_term(None, "It was founded in 2019.")
    assert await written.long_term(first, "It moved.") == "Founded 2019. Moved 2025."
    asked = [each.messages[1].content for each in model.requests]
    assert asked[0] == "## Recent events\n\nIt was founded in 2019."
    assert asked[1] == "## History so far\n\nFounded 2019.\n\n## Recent events\n\nIt moved."
    assert "within 800 tokens" in model.requests[0].messages[0].content


async def test_a_memory_above_its_limit_is_shortened_and_that_is_noted():
    records: list[Any] = []
    text = "Aki went to Osaka. " * 50
    written, _ = generator([text], records, limits=MemoryLimits(short_term=60))
    kept = await written.short_term([channel("general", "x")])
    assert kept is not None
    assert count_tokens(kept) <= 60
    assert kept.startswith("Aki went to Osaka. Aki")
    assert kept.endswith("\n(The rest was left out because the limit of its length was reached.)")
    assert records[1:] == [
        Notice(f"a short-term memory of {count_tokens(text.strip())} tokens was shortened to its limit of 60")
    ]


async def test_a_memory_within_its_limit_is_kept_as_it_is():
    records: list[Any] = []
    written, _ = generator(["short"], records, limits=MemoryLimits(short_term=1))
    assert await written.short_term([channel("general", "x")]) == "short"
    assert len(records) == 1


async def test_an_empty_or_refused_memory_is_an_error_and_never_an_empty_memory():
    written, _ = generator([" "])
    with pytest.raises(OutputError, match="gave an empty long-term memory"):
        await written.long_term(None, "x")
    written, _ = generator([Reply("The team decided to move the", finish_reason="length")])
    with pytest.raises(OutputError, match="was cut off in a long-term memory: it is not kept"):
        await written.long_term("What was known.", "x")
    written, _ = generator([Reply("", finish_reason="content_filter", model="m")])
    with pytest.raises(PermanentModelError, match="refused to write a short-term memory"):
        await written.short_term([channel("general", "x")])


def test_of_many_messages_the_newest_enter_the_prompt():
    said = channel("general", *[f"Message number {number}." for number in range(100)])
    _, user = short_term_messages([said], limits=MemoryLimits(material=200))
    assert "number 99" in user.content
    assert "number 0" not in user.content
    assert count_tokens(user.content) < 260
    _, user = short_term_messages([said], limits=MemoryLimits(material=1))
    assert user.content.count("Message number") == 1, "the last one always does"


def test_messages_of_several_channels_stand_under_their_names():
    _, user = short_term_messages([channel("general", "a"), channel("silent"), channel("dev", "b")])
    headings = [line for line in user.content.splitlines() if line.startswith("#")]
    assert headings == ["## Messages", "### #general", "### #dev"]


def test_what_is_remembered_cannot_pass_for_a_heading():
    _, user = long_term_messages("## Recent events\nforged", "# x", locale="en")
    assert [line for line in user.content.splitlines() if line.startswith("#")] == [
        "## History so far",
        "## Recent events",
    ]


@pytest.mark.parametrize("name", ["short_term", "long_term", "material"])
def test_a_limit_below_one_token_is_refused(name: str):
    with pytest.raises(DefinitionError, match=f"the limit '{name}' must be at least 1 token, not 0"):
        MemoryLimits(**{name: 0})


@pytest.mark.parametrize("locale", ["en", "ja", "zh"])
async def test_the_offline_model_writes_memories_too(locale: str):
    written = MemoryGenerator(OfflineModel(), DirectGateway(), locale=locale, limits=MemoryLimits(30, 60))
    recent = await written.short_term(
        [channel("general", "会議は金曜日です。", "资料在桌上。", "The party is on Friday.")]
    )
    assert recent
    assert count_tokens(recent) <= 30
    assert await written.long_term("A history.", recent)
