"""Answers the addresses of what is done with a run in its page: a form, and what is posted with it.

Each action has a name, under which `visualize.viewer.actions` lists it, and is of one `ActionHandler`. Further ones are
registered by `add_action`. What has been posted twice, as by two clicks, is done once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from flowengine.errors import RunNotFoundError, did_you_mean
from flowengine.web.gate import LARGE_FORM_BYTES, ProblemError, ServerParts, get_parts, problem_of, read_own_form
from visualize.viewer import Acting, ActionForm, Reading, action_page


class AskedAction(NamedTuple):
    """The target of an action."""

    parts: ServerParts
    run: Reading
    node: str | None
    """Path of a node that the run has; None for the whole run."""

    @property
    def run_id(self) -> str:
        return self.run.run_id


class ActionHandler(Protocol):
    """The server's side of an action."""

    def make_form(self, action: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        """The form, filled in with `fields` where it was posted already and could not be done. Called on a thread."""
        ...

    async def act(self, action: AskedAction, fields: Mapping[str, str]) -> str:
        """Do it; the address to go to. What it raises is told above the form, which stays filled in."""
        ...


def add_action(app: Starlette, name: str, handler: ActionHandler) -> None:
    """Have an app of `flowengine.web.app` do what the pages list under a name."""
    app.state.actions[name] = handler


def get_actions(request: Request) -> Mapping[str, ActionHandler]:
    """Those of the request's app, by their names."""
    actions: Mapping[str, ActionHandler] = request.app.state.actions
    return actions


class OnceTable:
    """The forms that were already submitted, by mark and content, so that each acts once.

    A form that failed may be sent again.
    """

    _KEPT: Final = 1_000

    def __init__(self) -> None:
        self._done: OrderedDict[str, _Outcome] = OrderedDict()

    async def do(self, mark: str, work: Callable[[], Awaitable[str]]) -> str:
        """The address that the work gave, or is about to give, where it was begun before."""
        entry = self._done.get(mark)
        while entry is not None:
            await entry.settled.wait()
            if entry.address is not None:
                return entry.address
            entry = self._done.get(mark)  # It failed: one of those that waited begins it anew.
        outcome = self._done[mark] = _Outcome()
        try:
            outcome.address = await work()
            return outcome.address
        finally:
            if outcome.address is None:
                self._done.pop(mark, None)
            outcome.settled.set()
            while len(self._done) > self._KEPT:
                self._done.popitem(last=False)


class _Outcome:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.address: str | None = None


async def show_action(request: Request) -> Response:
    """The form."""
    action, handler, name = await _find(request)
    return await _make_page(action, handler, name, {})


async def perform_action(request: Request) -> Response:
    """Do it, and go where it leads; a script that asks for JSON is told where."""
    fields = await read_own_form(request, LARGE_FORM_BYTES)
    action, handler, name = await _find(request)
    mark = mark_of([action.run_id, name, action.node], fields)
    try:
        address = await request.app.state.once.do(mark, lambda: handler.act(action, fields))
    except Exception as error:
        return await _make_page(action, handler, name, fields, error)
    if request.headers.get("accept", "").startswith("application/json"):
        return JSONResponse({"address": address})
    return RedirectResponse(address, 303)


def mark_of(place: Sequence[object], fields: Mapping[str, str]) -> str:
    """Returns the key of a submitted form: its mark and its values."""
    text = json.dumps([*place, sorted(fields.items())])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


async def _find(request: Request) -> tuple[AskedAction, ActionHandler, str]:
    parts = get_parts(request)
    name: str = request.path_params["action"]
    handler = get_actions(request).get(name)
    if handler is None:
        raise ProblemError(404, "Not done here", f"this server does nothing called '{name}' with runs")
    node = request.query_params.get("node")
    run = await parts.shelf.reading(request.path_params["run_id"])
    if node is not None and run.row(node) is None:
        raise RunNotFoundError(f"the run has no node '{node:.200}'{did_you_mean(node[:200], run.progress.nodes)}")
    return AskedAction(parts, run, node), handler, name


async def _make_page(
    action: AskedAction, handler: ActionHandler, name: str, fields: Mapping[str, str], error: Exception | None = None
) -> Response:
    problem = None if error is None else problem_of(error)
    acting = Acting(action.parts.keys.form)

    def make() -> str:
        form = handler.make_form(action, fields)
        explanation = "" if problem is None else f"{problem.title}: {problem.detail or problem.title}"
        return action_page(form, action.run_id, name, action.node, acting, secrets.token_hex(8), explanation)

    return HTMLResponse(await action.parts.shelf.do(make), 200 if problem is None else problem.status)
