from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowengine.models import tokens as vocabulary
from flowengine.models.tokens import NEWEST, VOCABULARIES, encoding


@pytest.fixture(scope="module", params=VOCABULARIES)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Our encoding, and tiktoken's own of that name, which finds its file where litellm has it."""
    folder = vocabulary._folder()
    assert folder is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        patched.setattr(socket.socket, "connect", refused)
        import tiktoken

        return encoding(request.param), tiktoken.get_encoding(request.param)


def refused(*given: object) -> None:
    raise AssertionError("a vocabulary was asked for in the network")


def prose(drawn: random.Random) -> str:
    words = ["it's", "WE'LL", "don’t", "naïve", "Straße", "Ünïcödé", "GPU", "x86_64", "3.14159", "2026-11-22", "ﬁ"]
    return "".join(
        drawn.choice(words) + drawn.choice([" ", "  ", "\n", "\r\n\n", "\t", ", ", "", " \u3000"]) for _ in range(60)
    )


def scripts(drawn: random.Random) -> str:
    starts = (0x20, 0xA0, 0x370, 0x400, 0x5D0, 0x620, 0x905, 0xE01, 0x3041, 0x30A1, 0x4E00, 0xAC00, 0x1F300)
    return "".join(chr(drawn.choice(starts) + drawn.randrange(60)) for _ in range(200))


def anything(drawn: random.Random) -> str:
    every = (chr(drawn.randrange(0x20, 0x10FFFF)) for _ in range(200))
    return "".join(each for each in every if unicodedata.category(each) != "Cs")


def repeated(drawn: random.Random) -> str:
    return "".join(drawn.choice(" \n\tab#=-0.é茶") * drawn.randrange(1, 90) for _ in range(12))


@pytest.mark.parametrize("text_of", [prose, scripts, anything, repeated])
def test_every_text_has_the_tokens_that_tiktoken_gives_it(
    both: tuple[Any, Any], text_of: Callable[[random.Random], str]
) -> None:
    ours, theirs = both
    for seed in range(100):
        text = text_of(random.Random(seed))
        assert ours.encode(text, disallowed_special=()) == theirs.encode(text, disallowed_special=()), (seed, text)


def test_source_code_and_control_words_have_the_tokens_that_tiktoken_gives_them(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    for text in (Path(__file__).read_text("utf-8"), "<|endoftext|> and <|endofprompt|>", "\ud800 alone"):
        assert ours.encode(text, disallowed_special=()) == theirs.encode(text, disallowed_special=())


def test_a_damaged_vocabulary_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = vocabulary._folder()
    assert folder is not None
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setattr(vocabulary, "_folder", lambda: tmp_path / "copy")
    assert vocabulary._content(NEWEST)
    for file in (tmp_path / "copy").iterdir():
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-1])
    assert vocabulary._content(NEWEST) is None


def test_threads_that_ask_at_once_share_one_encoding() -> None:
    vocabulary._encoding.cache_clear()
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(encoding, ["cl100k_base"] * 4))
    assert made[0] is not None
    assert all(each is made[0] for each in made)


def test_no_folder_of_anyone_elses_is_asked_and_none_is_named_to_others(tmp_path: Path) -> None:
    code = (
        "import os, sys; from flowengine.models.tokens import count_tokens; before = dict(os.environ); "
        "assert count_tokens('Hello, world!') == 4; sys.exit(before != dict(os.environ) or 'requests' in sys.modules)"
    )
    environment = {"PATH": "", "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    assert not list(tmp_path.iterdir())
