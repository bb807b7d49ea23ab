from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flowengine.models import tokens as vocabulary
from flowengine.models.model import estimate_tokens
from flowengine.models.tokens import count_tokens


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("counting tokens went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("text", "model", "count"),
    [
        ("", None, 0),
        ("Hello, world!", None, 4),
        ("Hello, world!", "gpt-4", 4),
        ("今日は世界。", "openai/gpt-4o", 3),
        ("今日は世界。", "gpt-4", 7),
        ("今日は世界。", "a-model-nobody-knows", 3),
    ],
)
def test_tokens_are_counted_as_the_model_does(text: str, model: str | None, count: int) -> None:
    assert count_tokens(text, model) == count


def test_a_text_of_nothing_but_blanks_is_counted_whatever_its_length() -> None:
    assert 5_000 < count_tokens(" " * 1_000_000) < 20_000


def test_control_words_are_plain_text() -> None:
    assert count_tokens("<|endoftext|>") > 1


@pytest.mark.parametrize(
    "text", ["An ordinary English sentence about nothing in particular. " * 5, "緑茶の歴史は長い。" * 9]
)
def test_the_estimate_is_of_the_right_size(text: str) -> None:
    assert 0.6 < estimate_tokens(text) / count_tokens(text) < 1.6


def test_without_a_vocabulary_on_the_machine_the_count_is_estimated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vocabulary, "_folder", lambda: tmp_path)
    vocabulary._encoding.cache_clear()
    try:
        assert count_tokens("Hello, world!") == estimate_tokens("Hello, world!")
    finally:
        vocabulary._encoding.cache_clear()


def test_counting_does_not_import_litellm() -> None:
    code = (
        "import sys; from flowengine.models.tokens import count_tokens as c; c('x'); sys.exit('litellm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
