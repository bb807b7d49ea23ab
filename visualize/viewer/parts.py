"""Makes the small parts of all pages: badges, facts, tables, values, moments, differences. It knows no page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from flowengine.core import OTHER, FileValue, ModelCall, ToolCall, clean_name, cost_text, find_files, seconds_text
from flowengine.errors import JournalError
from visualize.plain import format_value
from visualize.progress import UsageTotals
from visualize.style import GLYPHS, LOOKS
from visualize.viewer.html import Child, Markup, element, file_url, join
from visualize.word_diff import Piece, diff_words, shorten_pieces

# --- The difference of two texts


def difference(before: Any, after: Any) -> Markup:
    """Both values as one text, in which the words are marked that only one of them has; what stayed is cut.

    >>> print(difference("one two", "one 2"))
    <pre class="difference" tabindex="0">one <del>two</del> <ins>2</ins></pre>
    """
    pieces = shorten_pieces(diff_words(format_value(before), format_value(after)))
    pairs = zip(pieces, [None, *pieces], strict=False)
    return element(
        "pre", [[_part_texts(*each), _mark_piece(each[0])] for each in pairs], class_="difference", tabindex="0"
    )


def _part_texts(piece: Piece, before: Piece | None) -> str:
    """Separates a text and its replacement, so that they are not read as one word."""
    if piece.kind != "added" or before is None or before.kind not in ("removed", "hidden") or before.text[-1].isspace():
        return ""
    return "\n" if "\n" in before.text + piece.text else "" if piece.text[0].isspace() else " "


def _mark_piece(piece: Piece) -> Child:
    if piece.kind == "same":
        return piece.text
    tag = {"removed": "del", "added": "ins"}.get(piece.kind, "span")
    return element(tag, piece.text, class_="skip" if piece.kind == "hidden" else None)


_MAX_TEXT: Final = 100_000
"""Characters of one value that a page shows."""


def badge(status: str) -> Markup:
    """A status by colour, border, glyph and word."""
    look = LOOKS.get(status)
    return element("span", element("span", badge_text(status)[0], class_="glyph", aria_hidden="true"), f" {status}",
                   class_=f"badge s-{status if look is not None else 'paused'}")  # fmt: skip


def badge_text(status: str) -> str:
    """A status as text: its glyph and its word.

    >>> badge_text("failed"), badge_text("paused")
    ('✗ failed', '‖ paused')
    """
    return f"{GLYPHS.get(status, '·')} {status}"


def clock(at: float | None) -> Markup:
    """A moment in the local time of the process that makes the page."""
    if at is None:
        return Markup("")
    try:
        moment = datetime.fromtimestamp(at).astimezone()
    except (OverflowError, ValueError, OSError):  # A clock that was never right.
        return element("span", f"{at:g}")
    return element("time", moment.strftime("%Y-%m-%d %H:%M:%S"), datetime=moment.isoformat(timespec="seconds"))


def took(seconds: float | None) -> str:
    return "" if seconds is None else seconds_text(max(0.0, seconds))


def format_cost(usage: UsageTotals) -> str:
    """Cost, with a sign where calls of unknown price are not in it."""
    if usage.cost_usd is None:
        return "unknown"
    return cost_text(usage.cost_usd) + ("" if usage.is_whole else " +")


def usage_facts(usage: UsageTotals) -> list[tuple[str, Child]]:
    if not usage.calls:
        return []
    tokens = "unknown" if usage.tokens is None else f"{usage.tokens:,}"
    return [("Model calls", f"{usage.calls:,}"), ("Tokens", tokens), ("Cost", format_cost(usage))]


def facts(rows: Iterable[tuple[str, Child]]) -> Markup:
    """Names and values; what is empty is left out."""
    contents = [(name, join(child)) for name, child in rows]
    return element(
        "dl",
        [element("div", element("dt", name), element("dd", child)) for name, child in contents if child],
        class_="facts",
    )


def section(title: Child, *children: Child, seq: int | None = None, class_: str = "") -> Markup:
    """A part of a panel; `seq` is the event from which on there is such a part."""
    return element("section", element("h3", title), *children, class_=class_ or None, data_seq=seq)


def fold(title: Child, *children: Child, is_open: bool = False, seq: int | None = None) -> Markup:
    """Makes a section that opens on request."""
    return element("details", element("summary", title), *children, open=is_open, data_seq=seq)


def note(*children: Child, kind: str = "") -> Markup:
    return element("p", *children, class_=f"note {kind}".strip())


def value(data: Any, *, class_: str = "", is_source: bool = False) -> Markup:
    """A value as it is; a very long one is cut, and says so. `is_source`: a text for programs, which is no Markdown."""
    text = format_value(data)
    cut = len(text) > _MAX_TEXT
    block = element("pre", text[:_MAX_TEXT] if cut else text, class_=class_ or None, tabindex="0")
    remark = note(f"The first {_MAX_TEXT:,} of {len(text):,} characters; `runs show --json` has all.") if cut else None
    kind = "source" if is_source else "text" if isinstance(data, str) or cut else "json"
    return element("div", block, remark, class_="value", data_value=kind)


def table(
    titles: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    numbers: Iterable[int] = (),
    seqs: Sequence[int | None] | None = None,
    class_: str = "",
) -> Markup:
    """Rows under titles; columns in `numbers` are set to the right. `seqs`: the event that brought each row."""
    right = set(numbers)

    def cell(tag: str, column: int, child: Child) -> Markup:
        return element(tag, child, class_="number" if column in right else None)

    head = element("tr", [cell("th", column, title) for column, title in enumerate(titles)])
    body = [
        element("tr", [cell("td", column, child) for column, child in enumerate(row)], data_seq=seq)
        for row, seq in zip(rows, seqs or [None] * len(rows), strict=True)
    ]
    whole = element("table", element("thead", head), element("tbody", body), class_=class_ or None)
    return element("div", whole, class_="scrolls", tabindex=0)


# --- The files of a run: pictures of a few raster kinds as such, everything else as something to download
#
# A page holds no content. Where there is a server, an image is asked of it; in an exported page, small files are data,
# and of the others it is said that they are left out. What a file is was told from its content; its name is text.

SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What is shown as an image: nothing that could hold a script or ask for anything."""

_MAX_FILE: Final = 1_000_000
_MAX_PAGE: Final = 8_000_000
"""Bytes of a file, and of all files, in an exported page."""
_MAX_LISTED: Final = 50


def files_section(
    run_id: str, files: Iterable[FileValue], seq: int | None = None, *, embeds: Embedded | None
) -> Markup | None:
    """A section that lists files; None where there are none. `embeds`: of an exported page; None: there is a server."""
    unique = unique_files(files)
    if not unique:
        return None
    items = [element("li", _show(run_id, each, embeds), class_="file") for each in unique[:_MAX_LISTED]]
    more = len(unique) - len(items)
    remark = note(f"And {more:,} more.") if more else None
    return section("Files", element("ul", items, class_="files"), remark, seq=seq)


def unique_files(files: Iterable[FileValue]) -> list[FileValue]:
    """Each content once, in the order of their coming."""
    return list({each.blob: each for each in files}.values())


def files_of_record(record: Any) -> Iterator[FileValue]:
    """Yields the files that a tool gave, and those that a model was shown."""
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
    """The files of one exported page, as data, up to a bound."""

    def __init__(self, read: Callable[[str], bytes] | None = None) -> None:
        """`read`: the content of a hash; None: no content is to be had, or none is to be shown."""
        self._read = read
        self._free_bytes = _MAX_PAGE
        self._addresses: dict[str, str] = {}

    def address(self, file: FileValue) -> str | None:
        """An address that holds the file, which is an image or something to download; None where it is left out."""
        address = self._addresses.get(file.blob)
        if address is not None or self._read is None or file.size > min(_MAX_FILE, self._free_bytes):
            return address
        try:
            content = self._read(file.blob)
        except JournalError:
            return None
        if len(content) > _MAX_FILE:
            return None
        self._free_bytes -= len(content)
        media_type = file.media_type if file.media_type in SHOWN_IMAGES else OTHER
        data_address = self._addresses[file.blob] = f"data:{media_type};base64,{b64encode(content).decode()}"
        return data_address


def _show(run_id: str, file: FileValue, embeds: Embedded | None) -> Markup:
    about = f"{file.media_type}, {file.size:,} bytes"
    name = element("bdi", file.name)
    if embeds is None:
        address = file_url(run_id, file.blob)
        image = _image(address, file) if file.media_type in SHOWN_IMAGES else None
        link = element("a", name, href=address, download=True if image is None else None)
        return join([image, element("div", link, " ", element("span", about, class_="about"))])
    address = embeds.address(file)
    remark = " (left out of this page)" if address is None else ""
    image = None if address is None or file.media_type not in SHOWN_IMAGES else _image(address, file)
    link = name if address is None or image else element("a", name, href=address, download=clean_name(file.name))
    return join([image, element("div", link, " ", element("span", f"{about}{remark}", class_="about"))])


def _image(address: str, file: FileValue) -> Markup:
    return element("img", src=address, alt=file.name, loading="lazy", decoding="async", referrerpolicy="no-referrer")
