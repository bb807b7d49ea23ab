"""Makes a page that is one file: of a run, or of several with a list of them. It reads them one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from flowengine.core.masking import Masker
from flowengine.engine import JournalStore, RunInfo
from flowengine.errors import JournalError
from flowengine.journal import (
    RunLine,
    blobs_of,
    digest_of,
    labels_of,
    mask_events,
    masked_notes,
    notes_of,
    only_looking,
    run_index_of,
)
from visualize.viewer.html import Markup, element, whole
from visualize.viewer.notes import RunAbout
from visualize.viewer.page import file_page
from visualize.viewer.parts import Embedded, badge_text
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, export_parts, name_run
from visualize.viewer.runs import file_list

_HERE: Final = Markup("<!--the runs of this file-->")


def run_file(store: JournalStore, run_id: str, *, unmasked: bool = False) -> str:
    """One run. Raises what the store raises."""
    run, about = _read(store, run_id, None if unmasked else Masker())
    return export_page(run, blobs_of(store).read_blob if unmasked else None, about)


def runs_file(
    store: JournalStore, words: Mapping[str, str], leave: Callable[[str], None], *, unmasked: bool = False
) -> Iterator[str]:
    """Several runs, in pieces of the file. `words`: run → how it stands; `leave` hears of those that cannot be read."""
    masker = None if unmasked else Masker()  # One for all: the same value has the same sign in each of them.
    embeds = Embedded(blobs_of(store).read_blob if unmasked else None)
    title = f"{len(words):,} runs"
    top = element("nav", element("strong", "FlowEngine"), element("a", f"All {title}", href="#"), class_="top")
    before, _, after = file_page(title, top, _HERE, class_="bundle").partition(_HERE)
    yield before
    lines: list[RunLine] = []
    for run_id, word in words.items():
        try:
            run, about = _read(store, run_id, masker)
        except JournalError as error:
            leave(str(error))
            continue
        lines.append(_make_line(run, about, word))
        name = f"{badge_text(run.progress.status)[0]} {name_run(run)}"
        parts = export_parts(run, embeds, about._replace(beside=words.keys()))
        yield whole(element("template", parts, data_run=run_id, data_title=name))
    unreadable = len(words) - len(lines)
    note = element("p", f"{unreadable:,} more could not be read.", class_="note bad") if unreadable else None
    find = element("input", type="search", id="bundle-find", placeholder="Find a run  ( / )", aria_label="Find a run")
    rows = element("div", note, file_list(lines), data_list="file")
    yield whole(element("main", element("h1", title), element("p", find), rows, id="bundle", class_="wide"))
    yield after


def _read(store: JournalStore, run_id: str, masker: Masker | None) -> tuple[Reading, RunAbout]:
    with only_looking():
        events = store.events(run_id)
    notes, led_to = notes_of(store, run_id), run_index_of(store).runs_from(run_id)
    if masker is not None:
        events, notes = list(mask_events(events, masker)), masked_notes(notes, masker)
    return Reading(events), RunAbout(notes, led_to)


def _make_line(run: Reading, about: RunAbout, word: str) -> RunLine:
    """Makes a run's line in the list, masked if the page is."""
    started, finished = run.progress.started, run.progress.finished
    assert started is not None  # Stores give out no other runs.
    ended = None if finished is None else finished.at
    info = RunInfo(
        started.run_id, started.flow, run.progress.status, started.at, ended, len(run.events), started.path,
        labels=labels_of(started),
    )  # fmt: skip
    return RunLine(info, word, digest_of(run.events), about.notes)
