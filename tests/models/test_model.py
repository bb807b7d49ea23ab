from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowengine.models.messages import Message
from flowengine.models.model import Request

REQUEST = Request("m", (Message("user", "hi"),), extra={"top_p": 0.5, "stop": ["x"]})


@pytest.mark.parametrize(
    "change",
    [
        {"model": "n"},
        {"messages": (Message("system", "hi"),)},
        {"temperature": 0.0},
        {"max_tokens": 1},
        {"tools": ({"type": "function"},)},
        {"response_schema": {}},
        {"response_name": "route"},
        {"extra": {"top_p": 0.6, "stop": ["x"]}},
    ],
)
def test_whatever_shapes_the_answer_is_in_the_key(change: dict[str, Any]) -> None:
    assert replace(REQUEST, **change).key() != REQUEST.key()


def test_neither_the_timeout_nor_the_order_of_names_is_in_the_key() -> None:
    assert replace(REQUEST, timeout=1.0, extra={"stop": ["x"], "top_p": 0.5}).key() == REQUEST.key()


def test_that_a_tool_failed_is_on_record_and_not_in_the_key() -> None:
    """Its text says it, and records of versions that did not keep it answer still."""
    failed = Message("tool", "no order 'Z'", tool_call_id="1", is_error=True)
    marked, unmarked = (replace(REQUEST, messages=(each,)) for each in (failed, failed._replace(is_error=False)))
    assert marked.key() == unmarked.key()
    assert marked.plain_messages() == [{**unmarked.plain_messages()[0], "is_error": True}]


def test_the_key_stays_the_same_from_version_to_version() -> None:
    """Journals hold keys: a change here makes every recorded call a new one."""
    assert Request("m", (Message("user", "héllo"),)).key() == "c5d3551bd615ed3a8e6ae4f3c35c6ce0"


def test_a_changed_request_has_a_key_and_messages_of_its_own() -> None:
    first = Request("m", (Message("user", "one"),))
    key, shown = first.key(), first.plain_messages()
    second = replace(first, messages=(Message("user", "two"),))
    assert second.key() != key
    assert second.plain_messages() == [{"role": "user", "content": "two"}]
    assert (first.key(), first.plain_messages()) == (key, shown)
    assert first.plain_messages() is shown
    assert first == Request("m", (Message("user", "one"),))
