"""Shows a recorded run as a flow test, or as a row of data, to copy or to save. It changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError
from flowengine.journal import only_looking, unfold_reused
from flowengine.testing import make_row, make_test
from flowengine.web.gate import get_parts, problem_response
from visualize.viewer import Reading, action_url, command_line, element, note, run_url
from visualize.viewer.page import page

CASE_LINK: Final = "test"
"""Under which `visualize.viewer.actions` lists it."""


def make_case_routes() -> list[Route]:
    return [Route(f"/runs/{{run_id}}/act/{CASE_LINK}", _show, methods=["GET"])]


class _CaseForm(NamedTuple):
    """The requested part of a run."""

    as_row: bool
    mask: bool

    def to_query(self, **more: str) -> str:
        arguments = {"as": "row" if self.as_row else "test", "mask": "1" if self.mask else "0", **more}
        return urlencode(arguments)


async def _show(request: Request) -> Response:
    parts, query = get_parts(request), request.query_params
    form = _CaseForm(query.get("as") == "row", query.get("mask") != "0")
    try:
        run = await parts.shelf.reading(request.path_params["run_id"])
        text = await parts.shelf.do(_make, run, form, parts.shelf.store)
    except FlowEngineError as error:
        return problem_response(error, as_page=True, back=run_url(request.path_params["run_id"], None))
    if "save" in query:
        name = f"{run.run_id}.rows.jsonl" if form.as_row else f"{run.run_id}.flowtest.yaml"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type="text/plain; charset=utf-8", headers=headers)
    return HTMLResponse(_make_page(run, form, text, parts.options))


def _make(run: Reading, form: _CaseForm, store: JournalStore) -> str:
    if form.as_row:
        return f"{make_row(run.events, run.run_id, mask=form.mask)}\n"
    with only_looking():
        whole = unfold_reused(run.events, store.events)
    return make_test(whole.events, run.run_id, mask=form.mask, lacking=whole.lacking).text


def _make_page(run: Reading, form: _CaseForm, text: str, options: Sequence[str]) -> str:
    address = action_url(run.run_id, CASE_LINK)
    ways = [
        element(
            "a",
            f"✓ {title}" if each == form else title,
            href=f"{address}?{each.to_query()}",
            class_="button",
            data_act=CASE_LINK,
            aria_current="true" if each == form else None,
        )
        for title, each in (
            ("Flow test", form._replace(as_row=False)),
            ("Row of data", form._replace(as_row=True)),
            ("Masked", form._replace(mask=True)),
            ("As it is", form._replace(mask=False)),
        )
    ]
    words = ["flowengine", "runs", "to-test", run.run_id]
    words += [*(["--row"] if form.as_row else []), *(["--mask"] if form.mask else [])]
    words += ["-o", "rows.jsonl" if form.as_row else f"{run.run_id}.flowtest.yaml"]
    words += options
    about = (
        "A row of data has the run's inputs, with its outputs as expected: evals score other versions against it."
        if form.as_row
        else "It has the inputs, what models, tools, functions and people answered, and the outputs as expected."
    )
    warning = None if form.mask else note("What people wrote stands in it as it is.", kind="warn")
    saved = f"{address}?{form.to_query(save='1')}"
    main = element(
        "main",
        element("h1", f"A test of run {run.run_id}"),
        element("p", about),
        element("div", ways, class_="actions", role="group", aria_label="What is made"),
        warning,
        command_line(text),
        element("h2", "The same on the command line"),
        command_line(shlex.join(words)),
        element(
            "div",
            element(
                "a",
                "Save the file",
                href=saved,
                class_="button primary",
                download=True,
            ),
            element("a", "Back", href=run_url(run.run_id, None), class_="button", data_close=True),
            class_="sends",
        ),
        class_="narrow action",
    )
    return page(f"A test of run {run.run_id}", main)
