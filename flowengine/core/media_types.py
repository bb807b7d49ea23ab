"""Tells what a file is from its content: images, sound, PDF, archives, text. Names decide nothing.

Signatures: https://mimesniff.spec.whatwg.org (images, sound, archives), ISO 32000 (PDF).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OTHER: Final = "application/octet-stream"
_BEGINNING: Final = 65_536
"""Bytes that are looked at."""

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS\x00", "audio/ogg"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
)
_RIFF: Final = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {b"M4A ": "audio/mp4", b"avif": "image/avif", b"heic": "image/heic", b"mif1": "image/heic"}
_COMMENTS: Final = rb"(?:(?><!--.*?-->)\s*+)*+"
_SVG: Final = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?+" + _COMMENTS + rb"(?:<!DOCTYPE[^>]*+>\s*+" + _COMMENTS + rb")*+<svg[\s>/]", re.DOTALL
)
_HTML: Final = re.compile(
    rb"\s*+" + _COMMENTS + rb"<(?:!DOCTYPE\s+html|html|head|body|script|iframe)\b", re.I | re.DOTALL
)
_CONTROLS: Final = frozenset(range(0x20)) - {0x09, 0x0A, 0x0C, 0x0D, 0x1B}
_EXTENSIONS: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "application/pdf": "pdf",
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "application/zip": "zip",
    "text/plain": "txt",
    "text/html": "html",
}


def media_type_of(content: bytes) -> str:
    """The media type of a content; `application/octet-stream` where it is none that is known.

    >>> media_type_of(b"%PDF-1.7\\n"), media_type_of("größe,1\\n".encode()), media_type_of(b"\\x00\\x01")
    ('application/pdf', 'text/plain', 'application/octet-stream')
    >>> media_type_of(b"<svg onload='x'>"), media_type_of(b"")
    ('image/svg+xml', 'text/plain')
    """
    head = content[:_BEGINNING]
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    for signature, media_type in _SIGNATURES:
        if head.startswith(signature) and (media_type != "image/bmp" or not _is_text(head)):
            return media_type
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4) and head[1] & 0x18 != 0x08:
        return "audio/mpeg"  # A frame without ID3.
    if not _is_text(head):
        return OTHER
    text = head.removeprefix(b"\xef\xbb\xbf")
    if _SVG.match(text):
        return "image/svg+xml"
    return "text/html" if _HTML.match(text) else "text/plain"


def allows_media_type(patterns: Iterable[str], media_type: str) -> bool:
    """Tells whether a media type is among those of a list.

    >>> [allows_media_type(["image/*", "application/pdf"], each) for each in ("image/png", "text/plain")]
    [True, False]
    """
    family = f"{media_type.partition('/')[0]}/*"
    return any(each in ("*/*", family, media_type) for each in patterns)


def is_media_pattern(text: str) -> bool:
    """Tells whether a text can stand in a list of media types.

    >>> [is_media_pattern(each) for each in ("image/png", "image/*", "*/*", "png", "*/png")]
    [True, True, True, False, False]
    """
    return _PATTERN.fullmatch(text) is not None


_PATTERN: Final = re.compile(r"\*/\*|[a-z0-9.+-]+/(\*|[a-z0-9.+-]+)")


def extension_of(media_type: str) -> str:
    """Returns the extension of such files.

    >>> extension_of("image/jpeg"), extension_of("video/mp4")
    ('jpg', 'bin')
    """
    return _EXTENSIONS.get(media_type, "bin")


def _is_text(head: bytes) -> bool:
    """Tells whether it is UTF-8 without control characters; its last character may be cut."""
    if not _CONTROLS.isdisjoint(head):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) == _BEGINNING and error.start > len(head) - 4 and error.reason == "unexpected end of data"
    return True
