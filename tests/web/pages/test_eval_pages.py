"""The pages of evals in the viewer: behind its gate, with links to runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from flowengine.errors import StoreUnavailableError
from flowengine.journal.memory import MemoryStore
from flowengine.web.app import make_app
from tests.evals.test_eval_run import project, score

pytestmark = pytest.mark.needs("scipy", "eval")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_evals_are_shown_to_who_has_the_token(tmp_path: Path, anyio_backend: str) -> None:
    store = MemoryStore()
    made = await score(project(tmp_path), store)
    app = make_app(store, [], "a token of this test")
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as web,
    ):
        assert (await web.get("/evals")).status_code in (401, 403)
        web.headers["authorization"] = "Bearer a token of this test"
        listed = await web.get("/evals")
        assert f'href="/evals/{made.id}"' in listed.text
        page = await web.get(f"/evals/{made.id}?against={made.id}")
        assert page.status_code == 200
        assert f'href="/runs/{made.rows[0].run_id}"' in page.text
        assert "<style" not in page.text
        assert (await web.get("/evals/style.css")).headers["content-type"].startswith("text/css")
        assert (await web.get("/evals/<b>")).status_code == 404


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_links_of_evals_lead_below_the_path_that_the_viewer_has(tmp_path: Path, anyio_backend: str) -> None:
    store = MemoryStore()
    made = await score(project(tmp_path), store)
    app = make_app(store, [], "a token of this test")
    outer = Starlette(routes=[Mount("/viewer", app)])
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://localhost") as web,
    ):
        web.headers["authorization"] = "Bearer a token of this test"
        pages = [(await web.get(f"/viewer/evals{rest}")).text for rest in ("", f"/{made.id}")]
        links = {link for page in pages for link in re.findall('href="(/[^"]*)"', page)}
        runs = {f"/viewer/runs/{row.run_id}" for row in made.rows}
        assert links == {"/viewer/evals", "/viewer/evals/style.css", f"/viewer/evals/{made.id}", *runs}
        assert {(await web.get(link)).status_code for link in links} == {200}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_store_that_cannot_be_read_is_not_told_as_an_eval_that_is_missing(anyio_backend: str) -> None:
    class LockedStore(MemoryStore):
        def recall(self, *arguments: Any) -> Any:
            raise StoreUnavailableError("the store is locked")

    app = make_app(LockedStore(), [], "a token of this test")
    headers = {"authorization": "Bearer a token of this test"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as web:
        for address in ("/evals", "/evals/some"):
            answer = await web.get(address)
            assert (answer.status_code, "the store is locked" in answer.text) == (503, True)
