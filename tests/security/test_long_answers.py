"""What a model, a tool or a server says takes time in proportion to its length, whatever it says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from flowengine.agents.context.compressor.compression import units_of
from flowengine.agents.context.compressor.extraction import facts_of
from flowengine.agents.context.text_cutting import sections
from flowengine.agents.skills.outline import make_outline
from flowengine.agents.structured import json_values
from flowengine.core.address_rules import leads_elsewhere
from flowengine.core.context import Fragment
from flowengine.core.secret_values import HiddenStream, Secrets
from flowengine.models.http.chat_protocol import EventReader, StreamedEvent
from flowengine.models.http.openai_chat import OPENAI_CHAT
from flowengine.models.http.vendor_traits import traits_of
from tests.support.pace import slowness

SECRETS = Secrets(["sk-0a1b2c3d4e5f"])


def _stream_backslashes() -> None:
    stream = HiddenStream(SECRETS)
    told = "".join(stream.feed("\\") for _ in range(5_000)) + stream.close()
    assert told == "\\" * 5_000


def _stream_words() -> None:
    stream = HiddenStream(SECRETS)
    told = "".join(stream.feed("a word " * 10_000) for _ in range(150)) + stream.close()
    assert len(told) == 10_500_000


def _stream_beginnings() -> None:
    stream = HiddenStream(SECRETS)
    told = "".join(stream.feed("a word " * 10_000 + "sk") for _ in range(100)) + stream.close()
    assert len(told) == 7_000_200


def _collect_calls(**index: int) -> None:
    calls = [{"id": f"c{at}", "function": {"name": "f", "arguments": "{}"}, **index} for at in range(10_000)]
    collector = OPENAI_CHAT.collector(traits_of("hosted_vllm", "m"))
    collector.add(StreamedEvent(json.dumps({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "stop"}]})))
    assert len(collector.answer().reply.tool_calls) == 10_000


def _read_tiny_pieces() -> None:
    reader = EventReader()
    for piece in (b"data: ", *[b"abcd"] * 100_000):
        assert not list(reader.feed(piece))
    [event] = reader.feed(b"\n\n")
    assert event.data == "abcd" * 100_000


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: list(json_values("```" + "-a" * 100_000)), id="the word behind a fence"),
        pytest.param(lambda: sections("ai" + " " * 100_000 + "x"), id="blanks behind a speaker"),
        pytest.param(
            lambda: units_of([Fragment("tool result" + " " * 100_000 + "x", "documents")]), id="blanks behind a result"
        ),
        pytest.param(lambda: facts_of("[" * 100_000 + "x" + "+1/" * 20_000), id="what a path may have"),
        pytest.param(lambda: leads_elsewhere(f"https://a.example/{'.' * 100_000}x"), id="dots of an address"),
        pytest.param(lambda: SECRETS.hide("\\" * 200_000), id="backslashes"),
        pytest.param(lambda: make_outline("# a" + " " * 100_000 + "x # \n"), id="blanks in a heading of a skill"),
        pytest.param(_stream_backslashes, id="backslashes one by one"),
        pytest.param(_stream_words, id="ten million letters"),
        pytest.param(_stream_beginnings, id="what may be the beginning of a key"),
        pytest.param(_collect_calls, id="tool calls without numbers"),
        pytest.param(lambda: _collect_calls(index=0), id="tool calls of one number"),
        pytest.param(_read_tiny_pieces, id="an event in tiny pieces"),
    ],
)
def test_an_answer_is_read_in_time_in_proportion_to_its_length(work: Callable[[], object]) -> None:
    begun = time.process_time()
    work()
    assert time.process_time() - begun < 5 * slowness()


@pytest.mark.parametrize("backslashes", [1, 2, 7, 16])
def test_an_escaped_key_is_found_however_often_it_was_escaped(backslashes: int) -> None:
    escaped = "".join("\\" * backslashes + f"u{ord(each):04x}" for each in "sk-0a1b2c3d4e5f")
    assert SECRETS.hide(f"it is {escaped}!") == "it is [hidden]!"
