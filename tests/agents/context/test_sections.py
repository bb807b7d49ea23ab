"""Texts as sections."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.context.text_cutting import sections


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n \n", []),
        ("One line", ["One line"]),
        ("One.\n\n\n\nTwo.\nStill two.\n\n", ["One.", "Two.\nStill two."]),
        ("# A\ntext\n\n## B\nmore", ["# A\ntext", "## B\nmore"]),
        ("before\n\n# A\ntext", ["before", "# A\ntext"]),
        ("User: hi\n\nmore\nAssistant: yes", ["User: hi\n\nmore", "Assistant: yes"]),
        ("ユーザー: こんにちは\nアシスタント: はい", ["ユーザー: こんにちは", "アシスタント: はい"]),
        ("用户：你好\n助手：您好", ["用户：你好", "助手：您好"]),
        ("a\n\n```\nx\n\n# no heading\n\ny\n```\n\nb", ["a", "```\nx\n\n# no heading\n\ny\n```", "b"]),
        ("a\n\n```\nnever closed\n\nb", ["a", "```\nnever closed", "b"]),
        ("#hashtag\n\nb", ["#hashtag", "b"]),
    ],
)
def test_the_sections_of_a_text(text: str, expected: list[str]) -> None:
    assert sections(text) == expected


PART = st.sampled_from(["# A", "text", "", "```", "User: hello", "Tool: 5", "  indented", "~~~", "more text"])


@pytest.mark.long
@settings(deadline=None)
@given(st.lists(PART, max_size=25))
def test_nothing_is_lost_and_nothing_moves(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert "".join("".join(sections(text)).split()) == "".join(text.split())
