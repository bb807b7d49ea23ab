"""Exports runs and values: as JSON for people and scripts, without personal data, and runs as the lines of a file."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from flowengine.core import EMPTY, ModelCall, NodeResult, Reused, binding_files, clean_name, find_files, hash_of
from flowengine.engine import Event, JournalStore, NodeFinished, NodeRecorded, RunStarted
from flowengine.errors import StoreCorruptError, StoreVersionError
from flowengine.journal.blob_owners import MAX_BLOB, blobs_of, missing_blob
from flowengine.journal.codec import decode, encode
from flowengine.journal.run_digest import RunNotes
from flowengine.journal.run_notes import decode_notes, encode_notes, keep_notes
from flowengine.journal.stores import check_run_id, commit_events
from flowengine.journal.value_types import FILE_TAG

if TYPE_CHECKING:
    from flowengine.core.masking import Masker

# --- Events as JSON


def event_line(event: Event) -> str:
    """One event on one line."""
    return json.dumps(event.as_dict(), ensure_ascii=False)


# --- Events without personal data and secrets

_KEPT: Final = frozenset(
    {"run_id", "flow", "node", "status", "cause", "fingerprints", "graph", "code", "engine", "path"}
)
"""Fields of events that are names, not what was said."""


def mask_events(events: Iterable[Event], masker: Masker | None = None) -> Iterator[Event]:
    """The events, one by one; `masker`: by default a new one, whose tokens no other masker can make.

    >>> from flowengine.engine.events import RunFinished
    >>> from flowengine.core.masking.masker import Masker
    >>> [event] = mask_events([RunFinished(1.0, "succeeded", {"to": "ada@example.jp"})], Masker(key=b"of this run"))
    >>> event.outputs
    {'to': '<MAIL:mpjhklbn>'}
    """
    if masker is None:
        from flowengine.core.masking import Masker  # Its patterns take a while to compile.

        masker = Masker()
    hides = masker
    for event in events:
        version, name, *fields = json.loads(encode(_remove_hints(event)))
        hidden: list[Any] = [
            value if field in _KEPT else _mask(value, hides)
            for field, value in zip(type(event)._fields, fields, strict=False)
        ]
        yield decode(json.dumps([version, name, *hidden], ensure_ascii=False))


def masked_notes(notes: RunNotes, masker: Masker) -> RunNotes:
    """Masks personal data and secrets in the notes on a run, and leaves their authors out."""
    return RunNotes(
        [each._replace(text=masker.value(each.text), by="") for each in notes.notes],
        [each._replace(by="") for each in notes.marks],
        [each._replace(by="") for each in notes.scores],
    )


def _mask(value: Any, masker: Masker) -> Any:
    """The value with its texts masked, but for the hashes and media types of files."""
    files: list[Any] = []

    def put_aside(file: Any) -> Any:
        files.append(file)
        return [len(files) - 1, file[2]]

    def put_back(file: Any) -> Any:
        blob, media_type, _, size = files[file[0]]
        return [blob, media_type, clean_name(file[1]), size]

    aside = _map_files(value, put_aside)
    return _map_files(masker.value(aside), put_back) if files else masker.value(value)


def _map_files(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree, with what it says of each file changed."""
    if isinstance(tree, list):
        return [_map_files(each, change) for each in cast("list[Any]", tree)]
    if not isinstance(tree, dict):
        return tree
    entries = cast("dict[str, Any]", tree)
    if list(entries) == [FILE_TAG]:
        return {FILE_TAG: change(entries[FILE_TAG])}
    return {key: _map_files(each, change) for key, each in entries.items()}


def _remove_hints(event: Event) -> Event:
    """Without vectors and digests of single values, from which these can be guessed."""
    match event:
        case NodeRecorded(record=ModelCall(vectors=[_, *_]) as record):
            return event._replace(record=record._replace(vectors=()))
        case NodeRecorded(record=Reused(calls=[_, *_]) as record):
            return event._replace(record=record._replace(calls=()))
        case NodeFinished(result=NodeResult(given=str()) as result):
            return event._replace(result=result._replace(given=None))
        case _:
            return event


# --- Runs as lines of a file: of each its head, its events and the contents of its files
#
# Since version 2 there are contents of files, and since 3 what people say of the run, which stands in its head. A run
# is written as the first version that has what it needs.

_VERSION: Final = 3


class UnpackedRun(NamedTuple):
    """The contents of an exported file."""

    events: list[Event]
    files: Mapping[str, bytes]
    """Hash → content, of the files that the events name."""
    notes: RunNotes = RunNotes()


def read_files(store: JournalStore, events: Iterable[Event]) -> dict[str, bytes]:
    """The contents of the files that the events name, as far as the store holds them."""
    hashes = {file.blob for event in events for file in find_files(event)}
    if not hashes:
        return {}
    blobs = blobs_of(store)
    return {blob: blobs.read_blob(blob) for blob in sorted(hashes) if blobs.blob_size(blob) is not None}


def pack_run(
    events: Sequence[Event], files: Mapping[str, bytes] = EMPTY, notes: RunNotes | None = None
) -> Iterator[str]:
    """The lines of a run; `files`: hash → content. Those of several runs may stand in one file, one after the other."""
    started = events[0]
    assert isinstance(started, RunStarted)  # Stores give out no other runs.
    version = 3 if notes and any(notes) else 2 if files else 1
    head: dict[str, Any] = {"flowengine_run": version, "run_id": started.run_id, "events": len(events)}
    if files:
        head["files"] = len(files)
    if notes and any(notes):
        head["notes"] = encode_notes(notes)
    yield json.dumps(head)
    for event in events:
        yield encode(event)
    for blob, content in files.items():
        yield json.dumps({"file": blob, "content": b64encode(content).decode()})


def unpack_run(lines: Iterable[str], name: str) -> list[Event]:
    """The events of the only run of a file; `name` is the file's, for messages."""
    runs = list(unpack_runs(lines, name))
    if len(runs) > 1:
        raise StoreCorruptError(f"{name} holds {len(runs)} runs, and one is expected")
    return runs[0].events


def unpack_runs(lines: Iterable[str], name: str) -> Iterator[UnpackedRun]:
    """The runs of a file, one by one, of which there is at least one; `name` is the file's, for messages."""
    rest = ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())
    yield _read_run(_read_head(next(rest, (1, ""))[1], name), rest, name)
    for number, line in rest:
        try:
            head = _read_head(line, name)
        except StoreVersionError:
            raise
        except StoreCorruptError:
            raise StoreCorruptError(
                f"{name}:{number}: there is more than its events, and no further run begins there"
            ) from None
        yield _read_run(head, rest, name)


def _read_run(head: dict[str, Any], rest: Iterator[tuple[int, str]], name: str) -> UnpackedRun:
    """The run of a head, whose lines are taken from `rest`."""
    events: list[Event] = []
    files: dict[str, bytes] = {}

    def read_content(blob: str) -> bytes:
        if blob not in files:
            raise missing_blob(name, blob)
        return files[blob]

    for number, line in islice(rest, head["events"] + head.get("files", 0)):
        try:
            if len(events) < head["events"]:
                with binding_files(read_content) if head.get("files") else nullcontext():
                    events.append(decode(line))
            else:
                blob, content = _read_content(line)
                files[blob] = content
        except StoreCorruptError as error:
            raise StoreCorruptError(f"{name}:{number}: {error}") from error
    if len(events) != head["events"]:
        raise StoreCorruptError(f"{name} is not whole: it has {len(events)} of {head['events']} events")
    if len(files) != head.get("files", 0):
        raise StoreCorruptError(f"{name} is not whole: it has {len(files)} of {head['files']} files")
    if not events or not isinstance(events[0], RunStarted):
        raise StoreCorruptError(f"{name} does not begin with a run's start")
    foreign = files.keys() - {file.blob for file in find_files(events)} if files else ()
    if foreign:
        raise StoreCorruptError(f"{name} holds a file that no event names: {min(foreign)[:12]}…")
    return UnpackedRun(events, files, decode_notes(head.get("notes")))


def _read_content(line: str) -> tuple[str, bytes]:
    """Hash and content of a line; a content that is not what its hash says is an error."""
    if len(line) > MAX_BLOB * 4 // 3 + 200:
        raise StoreCorruptError(f"a file is larger than {MAX_BLOB:,} bytes")
    try:
        entry = json.loads(line)
        blob, content = entry["file"], b64decode(entry["content"], validate=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StoreCorruptError(f"not a file: {line[:80]!r}") from None
    if hash_of(content) != blob:
        raise StoreCorruptError(f"the content of file {blob!r:.20} is not what its hash says")
    return blob, content


_MOST_LINES: Final = 2**31
"""Of one run; no file has as many."""


def _read_head(line: str, name: str) -> dict[str, Any]:
    try:
        head = json.loads(line.removeprefix("\ufeff"))
        version, events = head["flowengine_run"], head["events"]
        if not all(type(each) is int and 0 <= each < _MOST_LINES for each in (version, events, head.get("files", 0))):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StoreCorruptError(f"{name} is no exported run: `flowengine runs export` makes one") from None
    if version > _VERSION:
        raise StoreVersionError(f"{name} was exported by a newer FlowEngine (version {version}): upgrade to read it")
    return head


async def store_run(
    store: JournalStore,
    events: Sequence[Event],
    run_id: str | None = None,
    files: Mapping[str, bytes] = EMPTY,
    notes: RunNotes | None = None,
) -> str:
    """Write a run into a store, under its own id or another; `JournalError` where the id is taken.

    `files`: hash → content, of files that the store may not have. `notes`: what people said of it.
    """
    started = events[0]
    assert isinstance(started, RunStarted)  # As `unpack_run` and stores give them.
    if run_id is not None:
        started = started._replace(run_id=run_id)
    journal = store.create(check_run_id(started.run_id))
    try:
        for content in files.values():
            blobs_of(store).put_blob(started.run_id, content)
        await commit_events(journal, started, *events[1:])
    finally:
        await journal.close()
    if notes and any(notes):
        keep_notes(store, started.run_id, notes)
    return started.run_id
