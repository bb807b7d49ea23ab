"""Makes content parts of the files in a run's outputs: images, sound, texts and other data. Needs the extra `mcp`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import quote

import mcp_types as types

from flowengine.core import FileValue
from flowengine.errors import FlowEngineError
from visualize.viewer import whole

_MOST_BYTES: Final = 8_000_000
"""Bytes of all files of a result: a message is held in memory by both sides."""


def read_contents(files: Iterable[FileValue]) -> Sequence[types.ContentBlock]:
    """The files, equal ones once, as far as there is room; the structured result names all. Call it on a thread."""
    rest, contents = _MOST_BYTES, list[types.ContentBlock]()
    for file in {each.blob: each for each in files}.values():
        if file.size <= rest:
            with suppress(FlowEngineError):  # What the store has lost does not take the rest of the result along.
                contents.append(_make_content(file, file.read_bytes()))
                rest -= file.size
    return contents


def _make_content(file: FileValue, content: bytes) -> types.ContentBlock:
    data = b64encode(content).decode()
    match file.media_type.partition("/")[0]:
        case "image":
            return types.ImageContent(type="image", data=data, mime_type=file.media_type)
        case "audio":
            return types.AudioContent(type="audio", data=data, mime_type=file.media_type)
        case kind:
            uri = f"flowengine://files/{file.blob}/{quote(file.name, safe='')}"
            if kind == "text" or file.media_type == "application/json":
                text = whole(content.decode(errors="replace"))
                resource = types.TextResourceContents(uri=uri, mime_type=file.media_type, text=text)
            else:
                resource = types.BlobResourceContents(uri=uri, mime_type=file.media_type, blob=data)
            return types.EmbeddedResource(type="resource", resource=resource)
