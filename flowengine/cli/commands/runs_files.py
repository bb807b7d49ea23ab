"""`flowengine runs export`, `import` and `repair` move runs as one file, and save what a damaged store still holds.

`flowengine runs files` lists the files of a run, and writes their contents into a folder.
"""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path, PurePath
from typing import Final

import anyio
import click

from flowengine.cli import options
from flowengine.cli.options import choose_store, format_store, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, format_command, read, records_of
from flowengine.cli.run_selection import Selection, selection
from flowengine.cli.terminal import Results, complain, format_table, put_lines
from flowengine.core import BlobStore, FileValue, clean_name, find_files, tells_refusals, write_output
from flowengine.engine import Event, JournalStore, RunStarted
from flowengine.errors import InputError, JournalError, StoreCorruptError, StoreUnavailableError
from flowengine.journal import (
    blobs_of,
    copying_values,
    labels_of,
    mask_events,
    masked_notes,
    notes_of,
    open_store,
    pack_run,
    read_files,
    store_run,
    unpack_runs,
)
from flowengine.journal.sqlite import Repair, SQLiteStore, repair_store
from visualize.viewer import files_of_record, unique_files

# --- `flowengine runs repair`


@click.command("repair")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_option
def repair(as_json: bool, store: str | None) -> int:
    """Write what can be read of a damaged store into a new one beside it; the damaged one stays as it is.

    Each run is kept up to its first event that is missing or damaged, and `flowengine resume` goes on from there: what
    came after is done again. The exit code is 1 where anything was lost.
    """
    journal = open_store(choose_store(store))
    if not isinstance(journal, SQLiteStore):
        raise click.UsageError(f"only SQLite files are repaired, and {format_store(store)} is none")
    done = repair_store(journal.path)
    results = Results()
    if as_json:
        results.value(_to_data(done, journal))
        return 0 if done.is_whole else 1
    if done.path is None:
        complain(f"nothing is wrong with {journal.path}: {len(done.runs)} runs, all whole")
        return 0
    rows = [[run.run_id, run.state, str(run.kept), str(run.lost), run.reason] for run in done.runs]
    results.lines(format_table([["RUN", "STATE", "KEPT", "LOST", "WHY"], *rows]))
    if done.lost_beside:
        complain(f"lost beside the runs: {done.lost_beside} values of sessions or caches")
    if done.lost_files:
        complain(f"lost: the contents of {done.lost_files} files")
    complain(f"wrote {done.path}; {journal.path} is as it was")
    cut = [run.run_id for run in done.runs if run.state == "cut"]
    if cut:
        complain(f"go on with a run that was cut: {format_command('resume', cut[0], str(done.path))}")
    return 0 if done.is_whole else 1


def _to_data(done: Repair, journal: SQLiteStore) -> dict[str, object]:
    return {
        "store": str(journal.path),
        "repaired": None if done.path is None else str(done.path),
        "runs": [run._asdict() for run in done.runs],
        "lost_beside": done.lost_beside,
        "lost_files": done.lost_files,
    }


_MACHINE_FIELDS: Final = frozenset({"folder", "queue", "priority", "served"})
"""Settings of a run that speak of the machines where it began, and of whom a server there began it for."""


@click.command("export", cls=ReadingCommand)
@selection
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Of the runs that filters find, the newest N.")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: stdout.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(("jsonl", "html")),
    help="Lines of JSON, or a page to read.  [default: by the end of FILE, else jsonl]",
)
@click.option(
    "--masked/--unmasked",
    "hides",
    default=None,
    help="Without personal data and secrets, as far as patterns find them, or with them.  [default: pages are masked]",
)
@store_option
def export_run(
    selected: Selection, limit: int | None, output: str | None, shape: str | None, hides: bool | None, store: str | None
) -> int:
    """Write RUNs (ids, starts of ids, or @last), or all that the filters find, into one file.

    As lines of JSON it has each run with its events and files, as they were, and what people said of it: `flowengine
    runs import` reads it. With --masked the contents of files are left out. As a page it is what `flowengine export`
    writes.
    """
    is_page = shape == "html" or (shape is None and (output or "").lower().endswith((".html", ".htm")))
    with open_journal(store) as journal:
        words = selected.choose(journal, limit).runs
        if is_page:
            from flowengine.cli.commands.export import write_page  # Pages have a price.

            return write_page(journal, words, output, unmasked=hides is False)
        if not words:
            complain("there is nothing to export")
            return 0
        lines = RunLines(journal, list(words), masked=bool(hides))
        # Of a single run that cannot be read no file is begun.
        if put_lines(lines if len(words) > 1 else list(lines), output):
            complain(f"wrote {output}: {lines.describe()}")
    for each in lines.left:
        complain(f"left: {each}")
    return 1 if lines.left else 0


class RunLines:
    """The lines of runs, read one by one, and counts of what they hold."""

    def __init__(self, journal: JournalStore, run_ids: Sequence[str], *, masked: bool) -> None:
        self.left: list[str] = []
        """Why runs are not in it."""
        self._journal = journal
        self._run_ids = run_ids
        self._masked = masked
        self._events = self._files = self._runs_with_files = 0

    def __iter__(self) -> Iterator[str]:
        masker = None
        if self._masked:
            from flowengine.core.masking import Masker  # Its patterns take a while to compile.

            masker = Masker()
        for run_id in self._run_ids:
            try:
                with copying_values():
                    events = read(self._journal, run_id)
                    if masker is not None:
                        events = list(mask_events(events, masker))
                files = {} if masker else read_files(self._journal, events)
            except (JournalError, InputError) as error:
                if len(self._run_ids) == 1:
                    raise
                self.left.append(str(error))
                continue
            notes = notes_of(self._journal, run_id)
            self._events += len(events)
            self._files += len(files)
            self._runs_with_files += any(find_files(events))
            if masker is not None:
                notes = masked_notes(notes, masker)
            yield from pack_run(events, files, notes)

    def describe(self) -> str:
        """Describes the files that were written."""
        number = len(self._run_ids) - len(self.left)
        runs = f"{number:,} runs, " if len(self._run_ids) > 1 else ""
        files = f", {self._files:,} files" if self._files else ""
        left_out = " without the contents of files" if self._masked and self._runs_with_files else ""
        return f"{runs}{self._events:,} events{files}{left_out}"


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--as", "run_id", callback=options.run_id, metavar="ID", help="Import under another id.")
@store_option
def import_run(file: str, run_id: str | None, store: str | None) -> int:
    """Put the runs of an exported FILE (- is stdin) into the store.

    Their flows are then looked for in the working folder, and not where the file says. Who resumes one takes for true
    what the file says has happened.
    """
    with copying_values():
        runs = list(unpack_runs(_read_lines(file), file))  # All of it: of a file that is not whole nothing is taken.
    if run_id is not None and len(runs) > 1:
        raise click.UsageError(f"--as goes with one run, and {file} holds {len(runs):,}")
    failures = 0
    with open_journal(store) as journal:
        for each in runs:
            try:
                new_id = anyio.run(
                    store_run, journal, _drop_foreign_settings(each.events), run_id, each.files, each.notes
                )
            except JournalError as error:
                if len(runs) == 1:
                    raise
                failures += 1
                complain(f"left: {error}")
                continue
            complain(f"run {new_id} is in {format_store(store)}")
    return 1 if failures else 0


_BEGIN: Final = 1_000
"""Bytes by which a file is known that is no exported run, however long it is."""


def _read_lines(file: str) -> Iterator[str]:
    """The lines of a file, a pipe or stdin; one that begins as no exported run does is read no further."""
    if file != "-" and Path(file).is_dir():
        raise StoreUnavailableError(f"{file} is a folder; a file is expected that `flowengine runs export` wrote")
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as data:
            begin = data.readline(_BEGIN)
            if begin.removeprefix(BOM_UTF8).strip()[:1] not in (b"", b"{"):
                raise StoreCorruptError(f"{file} is no exported run: `flowengine runs export` makes one")
            yield (begin if begin.endswith(b"\n") else begin + data.readline()).decode()
            yield from (line.decode() for line in data)
    except OSError as error:
        raise StoreUnavailableError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise StoreCorruptError(f"{file} is no exported run: it is not UTF-8 text") from error


def _drop_foreign_settings(events: list[Event]) -> list[Event]:
    """The run, which names no folder and no file of another machine, nor any of this one but below where we are, and
    which neither a worker nor a server takes up or shows to a caller: it was not submitted here."""
    from flowengine.runtime.queue import CALLER  # Other commands need nothing of serving.

    started = events[0]
    assert isinstance(started, RunStarted)  # `unpack_runs` gives no other.
    path = None if started.path is None else PurePath(started.path)
    if path is not None and (path.is_absolute() or ".." in path.parts):
        path = PurePath(path.name)
    settings = {name: value for name, value in started.settings.items() if name not in _MACHINE_FIELDS}
    if CALLER in (labels := labels_of(started)):
        settings["labels"] = {name: value for name, value in labels.items() if name != CALLER}
    return [started._replace(path=None if path is None else str(path), settings=settings), *events[1:]]


# --- `flowengine runs files`


@click.command("files", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option(
    "-o", "--output", "folder", metavar="FOLDER", help="Write their contents there, without overwriting files."
)
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
@store_option
def list_files(reference: str, folder: str | None, as_json: bool, store: str | None) -> int:
    """List the files of RUN: those of its inputs and outputs, and those that tools gave and models were shown.

    Their names and types are those of the run; the contents were not checked.
    """
    with open_journal(store) as journal:
        events = read(journal, journal.find(reference))
        references = [*find_files(events), *(file for each in records_of(events) for file in files_of_record(each))]
        files = unique_files(references)
        targets = [] if folder is None else [_write_file(Path(folder), each, blobs_of(journal)) for each in files]
    results = Results()
    if as_json:
        paths = {file.blob: str(path) for file, path in zip(files, targets, strict=False)}
        entries = [{"name": each.name, "media_type": each.media_type, "size": each.size, "sha256": each.blob,
                  "path": paths.get(each.blob)} for each in files]  # fmt: skip
        results.value(entries)
        return 0
    results.lines(format_table([[clean_name(each.name), each.media_type, f"{each.size:,} bytes"] for each in files]))
    if not files:
        complain("the run has no files")
    for path in targets:
        complain(f"wrote {path}")
    return 0


def _write_file(folder: Path, file: FileValue, blobs: BlobStore) -> Path:
    """Write a content under a name of which there is none in the folder yet, whatever the run calls it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is no folder")
    with tells_refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
    content, name = blobs.read_blob(file.blob), PurePath(clean_name(file.name))
    for number in count(1):
        path = folder / (name if number == 1 else f"{name.stem}-{number}{name.suffix}")
        with tells_refusals(path):
            if not _take_name(path):
                continue
        try:
            write_output(path, [content])
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path
    raise AssertionError("unreachable")


def _take_name(path: Path) -> bool:
    """Makes an empty file where there is none, so that another process takes the next name."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
