"""What reaches a terminal, a pipe and a file."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from flowengine.cli.execute import exit_code_of, format_outputs
from flowengine.cli.options import gather_inputs
from flowengine.cli.terminal import Results, escape_controls, format_table
from flowengine.core.context import LLMResult
from flowengine.core.json_values import dumps, to_json_value
from flowengine.engine.events import ErrorInfo, NodeFailed


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def written(
    stream_type: type[io.TextIOWrapper],
    text: str,
    encoding: str = "utf-8",
    write: Callable[[Results, str], None] = Results.line,
) -> bytes:
    raw = io.BytesIO()
    stream = stream_type(raw, encoding=encoding)
    write(Results(stream), text)
    return raw.getvalue()


def is_control(character: str) -> bool:
    return (ord(character) < 0x20 and character not in "\n\t") or 0x7F <= ord(character) < 0xA0


@settings(deadline=None, max_examples=100)
@given(st.text())
@pytest.mark.parametrize("stream", [Terminal, io.TextIOWrapper])
def test_neither_a_terminal_nor_a_pipe_gets_a_control_character_but_lines_and_tabs(
    stream: type[io.TextIOWrapper], text: str
) -> None:
    shown = written(stream, text).decode("utf-8")
    assert not any(map(is_control, shown))
    assert not set(shown) & {"\u202e", "\u2066", "\u200f"}


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"])))
def test_a_pipe_gets_other_text_as_it_is_in_utf8(text: str) -> None:
    assert written(io.TextIOWrapper, text, "ascii") == f"{text}\n".encode()


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@pytest.mark.parametrize("stream", [Terminal, io.TextIOWrapper])
def test_json_keeps_its_value_and_holds_no_control_character(stream: type[io.TextIOWrapper], text: str) -> None:
    shown = written(stream, dumps({"said": text}), write=Results.json).decode("utf-8")
    assert not any(map(is_control, shown))
    assert json.loads(shown) == {"said": text}


def test_a_document_for_a_program_reaches_a_pipe_as_it_is() -> None:
    assert written(io.TextIOWrapper, "a\x1b", write=Results.document) == b"a\x1b\n"
    assert written(Terminal, "a\x1b", write=Results.document) == b"a\\x1b\n"


def test_ends_of_lines_of_another_system_are_ends_of_lines() -> None:
    assert written(io.TextIOWrapper, "a\r\nb\rc") == b"a\nb\\x0dc\n"


def test_half_a_character_pair_is_written_out() -> None:
    assert written(io.TextIOWrapper, "a\ud800") == b"a\\ud800\n"
    assert json.loads(written(io.TextIOWrapper, dumps({"a": "\ud800"}))) == {"a": "\ud800"}


def test_a_terminal_without_unicode_gets_escapes() -> None:
    assert written(Terminal, "é日", "ascii") == b"\\xe9\\u65e5\n"


def test_characters_that_turn_the_direction_are_written_out() -> None:
    assert escape_controls("a\u202eb\u2066") == r"a\u202eb\u2066"


def test_a_reader_that_went_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    results = Results(os.fdopen(writing, "w"))
    results.line("lost")
    results.line("lost too")
    results._stream.close()  # pyright: ignore[reportPrivateUsage] - nothing is left in it that could fail now


class Model(BaseModel):
    when: date


@dataclass
class Data:
    where: Path


def test_values_become_json_whatever_they_are() -> None:
    value = {
        1: Model(when=date(2024, 1, 2)),
        "data": Data(Path("a")),
        "set": {1},
        "bytes": b"x",
        "nan": float("nan"),
        "result": LLMResult(content=1),
        "odd": object,
        "event": NodeFailed("a", 1.0, ErrorInfo("E", "no")),
    }
    found = json.loads(dumps(value))
    assert found["1"] == {"when": "2024-01-02"}
    assert found["data"] == {"where": "a"}
    assert (found["set"], found["bytes"], found["nan"]) == ([1], "x", "nan")
    assert found["result"]["content"] == 1
    assert found["event"]["error"] == {
        "type": "E",
        "message": "no",
        "detail": "",
        "node": "",
        "part": None,
        "limit": "",
        "needed": None,
    }
    assert to_json_value(found) == found


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({}, ""),
        ({"a": ""}, ""),
        ({"a": 1}, "a: 1"),
        ({"a": None}, "a: null"),
        ({"a": "x", "b": "y\n\nz"}, "a: x\nb:\n  y\n\n  z"),
    ],
)
def test_outputs_are_readable(outputs: dict[str, object], text: str) -> None:
    assert format_outputs(outputs) == text


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        ("succeeded", None, 0),
        ("failed", "ValueError", 1),
        ("failed", "LimitError", 4),
        ("waiting", None, 3),
        ("paused", None, 4),
        ("partial", None, 4),
        ("cancelled", None, 130),
    ],
)
def test_every_end_of_a_run_has_its_exit_code(status: str, error: str | None, code: int) -> None:
    assert exit_code_of(status, None if error is None else ErrorInfo(error, "")) == code  # type: ignore[arg-type]  # a literal


def test_columns_are_aligned_with_wide_characters_and_one_line_a_row() -> None:
    assert format_table([["日本", "x"], ["a\nb\x1b", "y"]]) == ["日本     x", r"a b\x1b  y"]
    assert format_table([]) == []


def test_an_at_sign_can_be_given() -> None:
    assert gather_inputs(None, ["a=@@handle", "b=x=y", "c="], None) == {"a": "@handle", "b": "x=y", "c": ""}


def test_stdin_is_read_for_the_inputs_or_for_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'\xef\xbb\xbf{"a": 1}')))
    assert gather_inputs(None, [], "-") == {"a": 1}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    assert gather_inputs(None, ["a=@-"], None) == {"a": "text"}
