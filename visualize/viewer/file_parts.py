"""Shows the files of a run: pictures of a few raster kinds as such, everything else as something to download.

A page holds no content. Where there is a server, an image is asked of it; in an exported page, small ones are data, and
of the others it is said that they are left out. What a file is was told from its content; its name is text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from flowengine.core.file_values import FileValue, find_files
from flowengine.core.records import ModelCall, ToolCall
from flowengine.errors import JournalError
from visualize.viewer.html import Markup, element, file_url, join
from visualize.viewer.parts import note, section

__all__ = ["SHOWN_IMAGES", "Embedded", "files_of_record", "files_section", "unique_files"]

SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What is shown as an image: nothing that could hold a script or ask for anything."""

_MAX_IMAGE: Final = 1_000_000
_MAX_PAGE: Final = 8_000_000
"""Bytes of an image, and of all images, in an exported page."""
_MAX_LISTED: Final = 50


def files_section(
    run_id: str, files: Iterable[FileValue], seq: int | None = None, *, embeds: Embedded | None
) -> Markup | None:
    """A section that lists files; None where there are none. `embeds`: of an exported page; None: there is a server."""
    found = unique_files(files)
    if not found:
        return None
    items = [element("li", _show(run_id, each, embeds), class_="file") for each in found[:_MAX_LISTED]]
    more = len(found) - len(items)
    left = note(f"And {more:,} more.") if more else None
    return section("Files", element("ul", items, class_="files"), left, seq=seq)


def unique_files(files: Iterable[FileValue]) -> list[FileValue]:
    """Each content once, in the order of their coming."""
    return list({each.blob: each for each in files}.values())


def files_of_record(record: Any) -> Iterator[FileValue]:
    """Those that a tool gave, and those that a model was shown."""
    if isinstance(record, ToolCall):
        yield from find_files([record.value, record.files])
    elif isinstance(record, ModelCall):
        for message in record.messages:
            yield from _files_of_message(message)


def _files_of_message(message: object) -> Iterator[FileValue]:
    """A record may come from anywhere: what is no file is left out."""
    shapes = cast("Mapping[str, Any]", message).get("attachments") if isinstance(message, Mapping) else None
    for shape in cast("list[Any]", shapes) if isinstance(shapes, list | tuple) else ():
        try:
            yield FileValue(**shape)
        except (TypeError, ValueError):
            continue


class Embedded:
    """The images of one exported page, as data, up to a bound."""

    def __init__(self, read: Callable[[str], bytes] | None = None) -> None:
        """`read`: the content of a hash; None: no content is to be had, or none is to be shown."""
        self._read = read
        self._left = _MAX_PAGE
        self._made: dict[str, str] = {}

    def image(self, file: FileValue) -> str | None:
        """The image as an address that holds it; None where it is left out."""
        known = self._made.get(file.blob)
        if known is not None or self._read is None or file.size > min(_MAX_IMAGE, self._left):
            return known
        try:
            content = self._read(file.blob)
        except JournalError:
            return None
        if len(content) > _MAX_IMAGE:
            return None
        self._left -= len(content)
        made = self._made[file.blob] = f"data:{file.media_type};base64,{b64encode(content).decode()}"
        return made


def _show(run_id: str, file: FileValue, embeds: Embedded | None) -> Markup:
    about = f"{file.media_type}, {file.size:,} bytes"
    name = element("bdi", file.name)
    if embeds is None:
        address = file_url(run_id, file.blob)
        shown = _image(address, file) if file.media_type in SHOWN_IMAGES else None
        link = element("a", name, href=address, download=True if shown is None else None)
        return join([shown, element("div", link, " ", element("span", about, class_="about"))])
    address = embeds.image(file) if file.media_type in SHOWN_IMAGES else None
    left = " (left out of this page)" if address is None else ""
    shown = None if address is None else _image(address, file)
    return join([shown, element("div", name, " ", element("span", f"{about}{left}", class_="about"))])


def _image(address: str, file: FileValue) -> Markup:
    return element("img", src=address, alt=file.name, loading="lazy", decoding="async", referrerpolicy="no-referrer")
