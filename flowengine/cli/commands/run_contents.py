"""`flowengine runs files` lists the files of a run, and writes their contents into a folder."""

from __future__ import annotations

from itertools import count
from pathlib import Path, PurePath

import click

from flowengine.cli.options import choose_store, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, read, records_of
from flowengine.cli.terminal import Results, complain, format_table
from flowengine.core.file_keeper import BlobStore
from flowengine.core.file_values import FileValue, clean_name, find_files
from flowengine.core.json_values import dumps
from flowengine.core.output_file import tells_refusals, write_output
from flowengine.errors import InputError
from flowengine.journal.blob_owners import blobs_of
from visualize.viewer.parts import files_of_record, unique_files

__all__ = ["list_files"]


@click.command("files", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option(
    "-o", "--output", "folder", metavar="FOLDER", help="Write their contents there, without overwriting files."
)
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
@store_option
def list_files(reference: str, folder: str | None, as_json: bool, store: str | None) -> int:
    """List the files of RUN: those of its inputs and outputs, and those that tools gave and models were shown.

    Their names and types are those of the run; what a content is, nobody has checked.
    """
    with open_journal(choose_store(store)) as kept:
        events = read(kept, kept.find(reference))
        named = [*find_files(events), *(file for each in records_of(events) for file in files_of_record(each))]
        files = unique_files(named)
        written = [] if folder is None else [_write_file(Path(folder), each, blobs_of(kept)) for each in files]
    results = Results()
    if as_json:
        paths = {file.blob: str(path) for file, path in zip(files, written, strict=False)}
        found = [{"name": each.name, "media_type": each.media_type, "size": each.size, "sha256": each.blob,
                  "path": paths.get(each.blob)} for each in files]  # fmt: skip
        results.json(dumps(found, indent=2))
        return 0
    results.lines(format_table([[clean_name(each.name), each.media_type, f"{each.size:,} bytes"] for each in files]))
    if not files:
        complain("the run has no files")
    for path in written:
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
