"""Scopes: ids of threads read back, and memories that name theirs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.memory.scopes.memories import (
    Memory,
    MemoryScope,
    MemoryType,
    parse_thread_scope_id,
    thread_scope_id,
)
from flowengine.errors import DefinitionError

NOW = datetime(2025, 3, 1, tzinfo=UTC)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_threads_scope_id_reads_back_whatever_the_ids_are(channel: str, ts: str):
    assert parse_thread_scope_id(thread_scope_id(channel, ts)) == (channel, ts)


@given(st.text(alphabet="a:%", min_size=1), st.text(alphabet="a:%3A25", min_size=1))
def test_ids_that_hold_the_separator_read_back_too(channel: str, ts: str):
    assert parse_thread_scope_id(thread_scope_id(channel, ts)) == (channel, ts)


@pytest.mark.parametrize("text", ["", "C1", "C1:", ":1.0", "C1:1:2", "C1:1%2"])
def test_a_text_that_is_no_threads_scope_id_is_a_clear_error(text: str):
    with pytest.raises(DefinitionError, match="is no thread's scope id: expected 'channel:ts'"):
        parse_thread_scope_id(text)


def test_a_thread_has_a_channel_and_a_ts():
    with pytest.raises(DefinitionError, match="found channel '' and ts '1'"):
        thread_scope_id("", "1")


def test_a_memory_of_a_thread_needs_an_id_that_parses():
    with pytest.raises(DefinitionError, match="'C1' is no thread's scope id"):
        Memory(MemoryScope.THREAD, "C1", MemoryType.SHORT_TERM, "x", NOW)
    with pytest.raises(DefinitionError, match="a memory of a channel needs that channel's id"):
        Memory(MemoryScope.CHANNEL, "", MemoryType.SHORT_TERM, "x", NOW)


def test_times_of_memories_say_their_zone():
    with pytest.raises(DefinitionError, match="valid_from needs a time zone"):
        Memory(MemoryScope.CHANNEL, "C1", MemoryType.SHORT_TERM, "x", NOW.replace(tzinfo=None))
    with pytest.raises(DefinitionError, match="valid_to needs a time zone"):
        Memory(MemoryScope.CHANNEL, "C1", MemoryType.SHORT_TERM, "x", NOW, NOW.replace(tzinfo=None))


def test_a_scope_and_a_type_may_be_given_by_their_names():
    given: Any = ("channel", "C1", "long_term", "x", NOW)
    assert Memory(*given) == Memory(MemoryScope.CHANNEL, "C1", MemoryType.LONG_TERM, "x", NOW)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("channle", "C1", "long_term", "x", NOW), r"no scope of memories 'channle'; .*did you mean 'channel'\?"),
        (("channel", "C1", "longterm", "x", NOW), r"no type of memories 'longterm'; .*did you mean 'long_term'\?"),
        (("channel", "C1", None, "x", NOW), "no type of memories None; there are long_term, short_term$"),
        (("channel", None, "long_term", "x", NOW), "a memory of a channel needs that channel's id"),
        (("channel", "C1", "long_term", None, NOW), "a memory is text, not NoneType"),
        (("channel", "C1", "long_term", "x", "2025-03-01"), "valid_from is a datetime, not str"),
    ],
)
def test_a_memory_that_cannot_be_kept_is_refused_when_it_is_made(given: Any, message: str):
    with pytest.raises(DefinitionError, match=message):
        Memory(*given)


def test_a_memory_is_text_that_every_store_can_keep_and_somebodys():
    memory = Memory(
        MemoryScope.CHANNEL, "C1", MemoryType.SHORT_TERM, "half \ud83d nul \0.", datetime(2025, 1, 1, tzinfo=UTC)
    )
    assert memory.text == "half ? nul \ufffd."
    with pytest.raises(DefinitionError, match="needs that channel's id"):
        Memory(MemoryScope.CHANNEL, " ", MemoryType.SHORT_TERM, "x", datetime(2025, 1, 1, tzinfo=UTC))
