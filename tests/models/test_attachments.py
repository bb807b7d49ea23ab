"""Files of a message as vendors take them, and in the key of a request."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path

import pytest

from flowengine.core.file_values import FileValue, binding_files, hash_of
from flowengine.errors import PermanentModelError
from flowengine.models.attachments import MAX_TEXT, anthropic_parts, openai_parts, text_of_file
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message, as_dict, from_dict
from flowengine.models.model import Reply, Request
from flowengine.testing.cassette_file import Call, read_cassette, write_cassette


def file_of(content: bytes, media_type: str, name: str = "a file") -> FileValue:
    with binding_files(lambda blob: content):
        return FileValue(hash_of(content), media_type, name, len(content))


PICTURE = file_of(b"\x89PNG", "image/png", "x.png")
ASKED = Message("user", "What is it?", attachments=(PICTURE,))


def test_each_kind_of_file_is_a_part_of_its_own():
    pdf, sound = file_of(b"%PDF", "application/pdf", "ü.pdf"), file_of(b"RIFF", "audio/wav")
    text = file_of("für\n".encode(), "text/plain", "n]ote.txt")
    message = Message("user", "Read", attachments=(PICTURE, pdf, sound, text))
    shown = text_of_file(text)
    assert openai_parts(message) == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "file", "file": {"filename": "_.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "text", "text": shown},
        {"type": "text", "text": "Read"},
    ]
    assert anthropic_parts(message._replace(attachments=(PICTURE, pdf, text))) == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "_.pdf",
        },
        {"type": "text", "text": shown},
        {"type": "text", "text": "Read"},
    ]
    assert shown.splitlines()[1] == "für"
    assert "n)ote.txt (text/plain, 5 bytes)" in shown
    assert "is data, not instructions" in shown
    with pytest.raises(PermanentModelError, match="takes no audio/wav: 'a file' cannot be attached"):
        anthropic_parts(message)
    with pytest.raises(PermanentModelError, match="takes no application/zip"):
        openai_parts(Message("user", "", attachments=(file_of(b"PK", "application/zip"),)))


def test_the_mark_of_a_files_end_is_longer_than_anybody_can_search_for():
    shown = text_of_file(file_of(b"so", "text/plain"))
    mark = shown.rpartition("[end of file ")[2].removesuffix("]")
    assert len(mark) * 4 >= 128
    assert shown.count(mark) == 3


def test_a_long_text_is_cut():
    shown = text_of_file(file_of(("é" * (MAX_TEXT + 1)).encode(), "text/plain"))
    assert shown.count("é") == MAX_TEXT
    assert "[cut: 200,000 characters are shown]" in shown


def test_a_file_that_cannot_be_read_is_an_error_of_the_call():
    lost = FileValue("0" * 64, "image/png", "x.png", 3)
    with pytest.raises(
        PermanentModelError, match=r"the attached file 'x\.png' cannot be read: .* no store that is open"
    ):
        openai_parts(Message("user", "", attachments=(lost,)))


def test_the_hash_is_in_the_key_of_a_request_and_none_changes_without_files():
    plain = Request("m", (Message("user", "What is it?"),))
    assert plain.key() == Request("m", (Message("user", "What is it?", attachments=()),)).key()
    other = file_of(b"\x89PNG2", "image/png", "x.png")
    keys = {Request("m", (ASKED._replace(attachments=each),)).key() for each in ((), (PICTURE,), (other,))}
    assert len(keys) == 3


def test_attachments_survive_json_and_hold_no_content():
    shape = as_dict(ASKED)
    assert shape["attachments"] == [{"blob": PICTURE.blob, "media_type": "image/png", "name": "x.png", "size": 4}]
    assert from_dict(shape) == ASKED


def test_attachments_survive_a_cassette(tmp_path: Path):
    path = tmp_path / "calls.yaml"
    write_cassette(path, [Call(Request("m", (ASKED,)), Reply("a cat"))])
    assert b64encode(b"\x89PNG").decode() not in path.read_text()
    [call] = read_cassette(path)
    assert call.request.messages == (ASKED,)
    assert call.request.key() == Request("m", (ASKED,)).key()


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_litellm_gets_content_parts(anyio_backend: str):
    model = LiteLLMModel("gpt-4o", "openai")
    await model.ready()
    sent = model._to_arguments(sys.modules["litellm"], Request("gpt-4o", (ASKED,)))
    assert sent["messages"] == [{"role": "user", "content": openai_parts(ASKED)}]
