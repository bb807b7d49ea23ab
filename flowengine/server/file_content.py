"""Answers the address of a file's content: only of files that the run names, and as nothing that a browser would run.

The media type is told from the content. Four kinds of raster images are shown; everything else, SVG and HTML too, is a
download. Whatever it is stands in a sandbox, with no script and no request of its own.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from flowengine.core.file_values import FileValue, find_files
from flowengine.core.media_types import OTHER, media_type_of
from flowengine.engine.events import NodeRecorded
from flowengine.journal.blob_owners import blobs_of
from flowengine.server.problems import ProblemError
from flowengine.server.run_cache import RunCache
from visualize.viewer.parts import SHOWN_IMAGES, files_of_record

__all__ = ["FILE_CSP", "disposition", "make_file_response"]

FILE_CSP: Final = "default-src 'none'; sandbox"
"""The `Content-Security-Policy` of files: they load nothing and run nothing."""

_HEADERS: Final = {
    "Content-Security-Policy": FILE_CSP,
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, max-age=31536000, immutable",
}


def make_file_response(shelf: RunCache, run_id: str, blob: str) -> Response:
    """The content of a file of a run; 404 for every other. Call it on a thread."""
    file = _find(shelf, run_id, blob)
    if file is None:
        raise ProblemError(404, "No such file", f"run '{run_id}' names no such file")
    content = blobs_of(shelf.store).read_blob(file.blob)
    media_type = media_type_of(content)
    is_shown = media_type in SHOWN_IMAGES
    headers = {**_HEADERS, "Content-Disposition": disposition(file.name, inline=is_shown)}
    return Response(content, media_type=media_type if is_shown else OTHER, headers=headers)


def disposition(name: str, *, inline: bool) -> str:
    """The header that names a file (RFC 6266), whatever its name has in it.

    >>> print(disposition('a";\\r\\nX: ü.png', inline=False))
    attachment; filename="a____X_ _.png"; filename*=UTF-8''a%22%3B%0D%0AX%3A%20%C3%BC.png
    """
    plain = "".join(each if each.isascii() and (each.isalnum() or each in " ._-()") else "_" for each in name)
    how = "inline" if inline else "attachment"
    return f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


def _find(shelf: RunCache, run_id: str, blob: str) -> FileValue | None:
    for event in shelf.read(run_id).events:
        for file in find_files(event):
            if file.blob == blob:
                return file
        if isinstance(event, NodeRecorded):
            for file in files_of_record(event.record):
                if file.blob == blob:
                    return file
    return None
