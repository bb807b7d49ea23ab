"""What a file is, by its content."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.core.media_types import media_type_of


def png() -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (png(), "image/png"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
        (b"GIF89a\x01\x00", "image/gif"),
        (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"RIFF\x24\x00\x00\x00????", "application/octet-stream"),
        (b"ID3\x03\x00", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"%PDF-1.7\n%\xe2", "application/pdf"),
        (b"PK\x03\x04\x14", "application/zip"),
        (b"BM\x00\x00\x01", "image/bmp"),
        (b"BMW is a make", "text/plain"),
        (b"\x00\x00\x00\x20ftypM4A ", "audio/mp4"),
        ("Größe, 大きさ\n".encode(), "text/plain"),
        ("Größe".encode("latin-1"), "application/octet-stream"),
        (b"", "text/plain"),
        (b"\x00", "application/octet-stream"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><!-- a --><svg/>", "image/svg+xml"),
        (b" <!DOCTYPE html><p>", "text/html"),
        (b"<script>alert(1)</script>", "text/html"),
        (b"a <svg> in a text", "text/plain"),
        (b"\x89PNG", "application/octet-stream"),
    ],
)
def test_the_content_says_what_a_file_is(content: bytes, media_type: str):
    assert media_type_of(content) == media_type


@pytest.mark.parametrize("end", [b"<", b"<svg", b"<htm"])
def test_many_comments_are_looked_through_once(end: bytes):
    assert media_type_of(b"<?xml?>" + b"<!-- --> " * 5_000 + end) == "text/plain"
    assert media_type_of(b"<!--->-->" * 5_000 + b"<!DOCTYPE svg><!---->" + b"<svg>") == "image/svg+xml"


def test_a_long_text_may_be_cut_inside_a_character():
    for shift in range(4):
        assert media_type_of(b"a" * shift + "語".encode() * 40_000) == "text/plain"


@given(st.binary(max_size=300))
def test_any_content_has_a_media_type(content: bytes):
    assert "/" in media_type_of(content)


@given(st.text(max_size=100))
def test_no_text_is_shown_as_a_picture(text: str):
    assert not media_type_of(text.encode("utf-8", "ignore")).startswith("image/p")
