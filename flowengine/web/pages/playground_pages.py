"""Answers the address of the playground: it shows a recorded call, asks a changed one, and keeps it as a fork."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from flowengine.core import EMPTY
from flowengine.engine import JournalStore, NodeRecorded, NodeStarted
from flowengine.errors import InputError, RunNotFoundError
from flowengine.evals import ChangedCall, RecordedCall, ask_call, read_answer
from flowengine.journal import RunQuery
from flowengine.runtime import DrivenRun, Run, RunOptions, settings_of
from flowengine.runtime.local import local
from flowengine.web.gate import (
    LARGE_FORM_BYTES,
    ProblemError,
    ServerParts,
    get_parts,
    problem_of,
    problem_response,
    read_own_form,
)
from flowengine.web.pages.run_actions import mark_of
from flowengine.web.pages.run_fields import read_limits
from flowengine.web.service import CatalogEntry
from visualize.viewer import (
    FORK_NOTE,
    OPTION_LABELS,
    Acting,
    EditedCall,
    PlaygroundPage,
    Reading,
    Tried,
    play_url,
    playground_page,
    run_url,
    runs_url,
)

_MAX_TRIES: Final = 20
_MAX_NUMBER: Final = 2**63


def make_playground_routes() -> list[Route]:
    return [
        Route("/runs/{run_id}/play", _show, methods=["GET"]),
        Route("/runs/{run_id}/play", _post, methods=["POST"]),
    ]


class _CallTarget(NamedTuple):
    """A request, with what it is about."""

    parts: ServerParts
    run: Reading
    entry: CatalogEntry
    recorded: RecordedCall


async def _read(request: Request) -> _CallTarget:
    parts = get_parts(request)
    run = await parts.shelf.reading(request.path_params["run_id"])
    number = request.query_params.get("call", "")
    if not number.isdecimal() or len(number) > 9:
        raise ProblemError(400, "A call is needed", "say which call of a model: ?call=POSITION")

    def find() -> _CallTarget:
        started = run.progress.started
        entry = None if started is None else parts.library.of_run(started)
        if entry is None:
            raise ProblemError(409, "Its flow is not here", "this server does not have the run's flow")
        recorded = RecordedCall(run.events, int(number), entry.flow(settings_of(run.events).get("model")).plan)
        if not recorded.event:
            raise AssertionError("unreachable")
        return _CallTarget(parts, run, entry, recorded)

    return await parts.shelf.do(find)


async def _show(request: Request) -> Response:
    try:
        target = await _read(request)
        return await _make_page(request, target, None)
    except Exception as error:
        return _refuse(request, error)


def _refuse(request: Request, error: Exception) -> Response:
    run_id: str = request.path_params["run_id"]
    back = runs_url() if isinstance(error, RunNotFoundError) else run_url(run_id)
    return problem_response(error, as_page=True, back=back)


async def _post(request: Request) -> Response:
    """Ask, or keep; what cannot be done is told above the form, which stays filled in."""
    try:
        fields = dict(await read_own_form(request, LARGE_FORM_BYTES))
        target = await _read(request)
    except Exception as error:
        return _refuse(request, error)
    if fields.get("do") == "again":
        fields["sample"] = str(_read_sample(fields) + 1)
    edited = _read_form(target.recorded, fields)
    if fields.get("do") == "check":
        asking, command, refusal = await target.parts.shelf.do(_check, target, edited)
        return JSONResponse({"ask": asking, "fork": command, "said": refusal or FORK_NOTE})
    keeps = fields.get("do") == "keep"
    mark = mark_of([target.run.run_id, target.recorded.seq], fields)
    try:
        changed = _changed_call(target.recorded, edited)
        limits = read_limits({"cost_usd": edited.cost})

        async def work() -> str:
            return await (_keep(target, changed, limits) if keeps else _ask(target, changed, limits))

        return RedirectResponse(await request.app.state.once.do(mark, work), 303)
    except Exception as error:
        problem = problem_of(error)
        page = await _make_page(request, target, edited, f"{problem.title}: {problem.detail or problem.title}")
        page.status_code = problem.status
        return page


# --- What the form says


def _read_sample(fields: Mapping[str, str]) -> int:
    text = fields.get("sample", "")
    return int(text) if text.isdecimal() and len(text) < 6 else 1


def _read_form(recorded: RecordedCall, fields: Mapping[str, str]) -> EditedCall:
    texts = [
        _read_text(fields.get(f"text.{number}"), _text_of(message))
        for number, message in enumerate(recorded.call.messages)
    ]
    options = {name: fields.get(f"option.{name}", "").strip() for name in OPTION_LABELS}
    return EditedCall(texts, fields.get("model", "").strip(), options, fields.get("cost_usd", ""), _read_sample(fields))


def _read_text(text_now: str | None, before: str) -> str:
    """A form has its line ends as the browser sends them."""
    text = before if text_now is None else text_now.replace("\r\n", "\n")
    return before if text == before.replace("\r\n", "\n") else text


def _text_of(message: Mapping[str, Any]) -> str:
    return str(message.get("content") or "")


def _first_options(recorded: RecordedCall) -> dict[str, str]:
    """The options as the call was asked with them."""
    request = recorded.call.request
    extra: Mapping[str, Any] = request.get("extra") or EMPTY
    options = {name: request.get(name, extra.get(name)) for name in OPTION_LABELS}
    return {name: "" if value is None else f"{value}" for name, value in options.items()}


def _changed_call(recorded: RecordedCall, edited: EditedCall) -> ChangedCall:
    before = _first_options(recorded)
    options: dict[str, Any] = {}
    for name, text in edited.options.items():
        if text and text != before[name]:
            options |= _parse_option(name, text)
    return ChangedCall(recorded, edited.texts, edited.model, options, edited.sample)


def _parse_option(name: str, text: str) -> Mapping[str, Any]:
    if name == "reasoning_effort":
        return {name: text}
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{OPTION_LABELS[name]}: expected JSON, found '{text:.60}'") from None
    if name == "other":
        if not isinstance(value, dict):
            raise InputError(f"{OPTION_LABELS[name]}: expected a JSON object, found '{text:.60}'")
        return value  # pyright: ignore[reportUnknownVariableType] - checked by `ChangedCall`
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
    if not is_number or (name == "max_tokens" and not isinstance(value, int)):
        raise InputError(f"{OPTION_LABELS[name]}: expected a number, found '{text:.60}'")
    return {name: value}


def _check(target: _CallTarget, edited: EditedCall) -> tuple[str, str, str]:
    """The command lines that ask what is filled in, and that fork the run with it; or why there is none."""
    asking = ""
    try:
        changed = _changed_call(target.recorded, edited)
        asking = changed.asking_command(target.parts.options, edited.cost)
        changed.change()
        return asking, changed.command(target.parts.options), ""
    except InputError as error:
        return asking, "", str(error)


# --- What is done


async def _ask(target: _CallTarget, changed: ChangedCall, limits: Mapping[str, Any]) -> str:
    """Ask as a run of its own, unless that has been done; the address that shows its answer."""
    flow = await target.parts.shelf.do(changed.make_flow)
    run_id, recorded = changed.run_id, target.recorded
    attempt = await target.parts.shelf.do(_find_try, target.parts.shelf.store, run_id)

    acts = target.parts.acts

    async def work(driven: DrivenRun) -> Run:
        live = acts.listener(driven)
        return await ask_call(changed, flow, driven.store, limits, has_run=attempt is not None, live=live)

    if attempt is None or attempt.call is None or attempt.error:
        if not acts.drives(run_id):
            await acts.perform(run_id, flow.name, work)
        await acts.wait(run_id)
    return play_url(target.run.run_id, recorded.seq, run_id)


async def _keep(target: _CallTarget, changed: ChangedCall, limits: Mapping[str, Any]) -> str:
    """Fork the run with the change; an answer that was had in the playground already is taken."""
    store, recorded = target.parts.shelf.store, target.recorded
    started = target.run.progress.started
    about = await target.parts.shelf.do(target.entry.about)
    if started is None or about.source is None or about.source != started.source:
        command = changed.command(target.parts.options)
        raise ProblemError(409, "The flow was edited since", f"a fork has the flow as it was then: {command}")
    plan = await target.parts.shelf.do(changed.make_plan, about.source, about.path, target.parts.library.environ)
    new_id, at = local.new_run_id(), recorded.node.partition(".")[0].partition("[")[0]
    events: list[Any] = []
    if at == recorded.node:
        attempt = await target.parts.shelf.do(_find_try, store, changed.run_id)
        if attempt is not None and attempt.call is not None:
            events = [NodeStarted(at, time()), NodeRecorded(at, time(), attempt.call)]

    acts, labels = target.parts.acts, {"whatif": recorded.node[:200]}

    async def work(driven: DrivenRun) -> Run:
        options = RunOptions(run_id=new_id, settings=limits, live=acts.listener(driven), labels=labels)
        return await local.fork(plan, target.run.run_id, driven.store, at, acts=False, begun=events, options=options)

    await acts.perform(new_id, plan.name, work)
    return run_url(new_id, recorded.node)


def _find_try(store: JournalStore, run_id: str) -> Tried | None:
    try:
        events = store.events(run_id)
    except RunNotFoundError:
        return None
    return Tried(run_id, *read_answer(events))


async def _make_page(request: Request, target: _CallTarget, edited: EditedCall | None, problem: str = "") -> Response:
    choice = request.query_params.get("tried", "")
    acting = Acting(target.parts.keys.form)

    def make() -> str:
        recorded, run_id = target.recorded, target.run.run_id
        store = target.parts.shelf.store
        query = RunQuery(labels={"playground": run_id, "call": str(recorded.seq)})
        tries = [
            each._replace(is_chosen=info.run_id == choice)
            for info in list(query.select(store.list()))[:_MAX_TRIES]
            if (each := _find_try(store, info.run_id)) is not None
        ]
        form = edited or _form_of_try(store, recorded, choice)
        asking, command, refusal = _check(target, form)
        content = PlaygroundPage(run_id, recorded.node, recorded.seq, recorded.call, form, recorded.score, tries,
                              asking, command, refusal, problem)  # fmt: skip
        return playground_page(content, acting, secrets.token_hex(8))

    return HTMLResponse(await target.parts.shelf.do(make))


def _form_of_try(store: JournalStore, recorded: RecordedCall, run_id: str) -> EditedCall:
    """The form as what was asked in a run says it; that of the recorded call where there is none."""
    first = EditedCall([*map(_text_of, recorded.call.messages)], "", _first_options(recorded))
    try:
        inputs: Mapping[str, Any] = getattr(store.events(run_id)[0], "inputs", {}) if run_id else {}
    except RunNotFoundError:
        return first
    texts = inputs.get("messages")
    if not isinstance(texts, list | tuple) or len(texts) != len(first.texts):  # pyright: ignore[reportUnknownArgumentType]
        return first
    options = {**first.options}
    others: dict[str, Any] = {}
    for name, value in dict(inputs.get("options") or {}).items():
        if name in OPTION_LABELS:
            options[name] = f"{value}"
        else:
            others[name] = value
    if others:
        options["other"] = json.dumps(others, ensure_ascii=False)
    messages: Sequence[str] = [str(each) for each in texts]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return EditedCall(messages, str(inputs.get("model") or ""), options)
