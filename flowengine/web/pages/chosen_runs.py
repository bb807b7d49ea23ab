"""Answers what is posted of chosen runs (compare, export, cancel, forget), and what people say of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError, InputError, RunNotFoundError
from flowengine.journal import (
    add_note,
    copying_values,
    notes_of,
    pack_run,
    parse_score,
    read_files,
    remove_note,
    set_mark,
    set_score,
)
from flowengine.runtime.queue import ENDED
from flowengine.web.gate import ProblemError, ServerParts, get_parts, read_own_form, read_own_pairs
from visualize.viewer import Acting, compare_many_url, forget_page, run_file, run_url, runs_file, runs_url

_MOST: Final = 500
"""Runs that are chosen at once."""
_MOST_BYTES: Final = 200_000_000
"""Bytes of an export, at most."""


async def act_on_chosen(request: Request) -> Response:
    """Performs the action of the bar below the list; actions that change nothing also accept GET."""
    parts = get_parts(request)
    is_reading = request.method in ("GET", "HEAD")
    pairs = request.query_params.multi_items() if is_reading else await read_own_pairs(request)
    fields = dict(pairs)
    run_ids = list(dict.fromkeys(value for name, value in pairs if name == "run"))
    what = fields.get("do", "")
    if not run_ids:
        raise ProblemError(400, "No run is chosen", "check the runs in the list first")
    if len(run_ids) > _MOST:
        raise ProblemError(400, "Too many runs", f"at most {_MOST} are taken at once, {len(run_ids)} are chosen")
    if what == "compare":
        return RedirectResponse(compare_many_url(await parts.shelf.do(_by_age, parts, run_ids)), 303)
    if what in ("export", "page"):
        return await parts.shelf.do(_export if what == "export" else _export_page, parts, run_ids)
    if what not in ("cancel", "forget") or parts.read_only or is_reading:
        raise ProblemError(400, "Nothing to do", f"chosen runs cannot be '{what}'")
    if what == "forget" and fields.get("sure") != "yes":
        return HTMLResponse(forget_page(run_ids, Acting(parts.keys.form)))
    refusals = await _cancel(parts, run_ids) if what == "cancel" else await parts.shelf.do(_forget, parts, run_ids)
    if refusals:
        done = len(run_ids) - len(refusals)
        word = "cancelled" if what == "cancel" else "forgotten"
        raise ProblemError(
            409, f"{done:,} of {len(run_ids):,} runs {word}", "\n".join(f"left: {each}" for each in refusals)
        )
    return RedirectResponse(runs_url(), 303)


def _by_age(parts: ServerParts, run_ids: Sequence[str]) -> list[str]:
    """The runs that there are, the oldest first."""
    infos = [line.info for line in parts.shelf.list_named(run_ids)]
    return [info.run_id for info in sorted(infos, key=lambda info: info.started)]


async def _cancel(parts: ServerParts, run_ids: Sequence[str]) -> list[str]:
    refusals: list[str] = []
    for run_id in run_ids:
        try:
            await parts.acts.cancel(run_id)
        except ProblemError as error:
            refusals.append(error.detail)
        except FlowEngineError as error:
            refusals.append(str(error))
    return refusals


def _forget(parts: ServerParts, run_ids: Sequence[str]) -> list[str]:
    """Remove what has ended; why the others are left."""
    words = {line.info.run_id: line.word for line in parts.shelf.list_named(run_ids)}
    refusals: list[str] = []
    for run_id in run_ids:
        word = words.get(run_id, "")
        if word and word not in ENDED:
            refusals.append(f"run '{run_id}' has not ended, it is {word}")
        elif word:
            try:
                parts.shelf.remove(run_id)
            except FlowEngineError as error:
                refusals.append(str(error))
    return refusals


def _export(parts: ServerParts, run_ids: Sequence[str]) -> Response:
    """The runs as lines of JSON in one file."""
    name = run_ids[0] if len(run_ids) == 1 else "runs"
    return _download(_gather(pack_runs(parts.shelf.store, run_ids)), f"{name}.jsonl", "application/jsonl")


def pack_runs(store: JournalStore, run_ids: Sequence[str]) -> Iterator[str]:
    """Yields the lines of an export."""
    for run_id in run_ids:
        with copying_values():
            events = store.events(run_id)
        yield from (f"{line}\n" for line in pack_run(events, read_files(store, events), notes_of(store, run_id)))


def _export_page(parts: ServerParts, run_ids: Sequence[str]) -> Response:
    """The runs as a page that is one file; personal data and secrets are masked."""
    store, words = parts.shelf.store, {line.info.run_id: line.word for line in parts.shelf.list_named(run_ids)}
    missing = [each for each in run_ids if each not in words]
    if missing:
        raise RunNotFoundError(f"there is no run '{missing[0]}' any more")
    if len(words) == 1:
        return _download(_gather([run_file(store, run_ids[0])]), f"{run_ids[0]}.html", "text/html")
    return _download(_gather(runs_file(store, words, lambda _: None)), "runs.html", "text/html")


def _gather(pieces: Iterable[str]) -> bytes:
    """The pieces as one, up to a bound."""
    content = bytearray()
    for piece in pieces:
        content += piece.encode()
        if len(content) > _MOST_BYTES:
            advice = "choose fewer runs, or use `flowengine runs export`"
            raise ProblemError(413, "Too large", f"it would have more than {_MOST_BYTES:,} bytes: {advice}")
    return bytes(content)


def _file_name(run_id: str) -> str:
    return "".join(each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in run_id)[:100]


def _download(content: bytes, name: str, media_type: str) -> Response:
    stem, _, ending = name.rpartition(".")
    headers = {"Content-Disposition": f'attachment; filename="{_file_name(stem)}.{ending}"'}
    return Response(content, media_type=media_type, headers=headers)


async def keep_note(request: Request) -> Response:
    """Keep what the forms in the head of a run's page say of it."""
    parts = get_parts(request)
    run_id: str = request.path_params["run_id"]
    fields = await read_own_form(request)
    if parts.read_only:
        raise ProblemError(403, "Only to be looked at", "this server changes nothing")

    def keep() -> None:
        store, who = parts.shelf.store, parts.by
        score = fields.get("score", "").strip()
        # First: a slip in one field keeps nothing of the others.
        name_and_score = parse_score(score) if score else None
        if fields.get("remove"):
            remove_note(store, run_id, fields["remove"])
        if fields.get("unmark"):
            set_mark(store, run_id, fields["unmark"], who, on=False)
        if fields.get("mark", "").strip():
            set_mark(store, run_id, fields["mark"], who)
        if name_and_score is not None:
            set_score(store, run_id, *name_and_score, who)
        if fields.get("text", "").strip():
            add_note(store, run_id, fields["text"], who)

    try:
        await parts.shelf.do(keep)
    except InputError as error:
        raise ProblemError(422, "It cannot be kept", str(error)) from None
    return RedirectResponse(run_url(run_id), 303)
