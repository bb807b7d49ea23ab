"""The app inside another one, and what is read and kept behind the pages."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.web.app import make_app
from flowengine.web.service import run_cache as module
from flowengine.web.service.flow_catalog import Library
from flowengine.web.service.run_cache import RunCache
from tests.support.browser import Browser
from tests.support.pace import done_within
from tests.support.plain_http import NO_TLS
from tests.support.sample_run import layered_run
from tests.support.ui_server import Served, served


@pytest.mark.long
def test_it_can_be_mounted_below_a_path(browser: Browser, folder: Path):
    viewer = make_app("sqlite:///runs.db", ["."], durability="process", hosts=["127.0.0.1"])
    app = Starlette(routes=[Mount("/below", viewer)], lifespan=lambda _: viewer.router.lifespan_context(viewer))
    app.state.parts, app.state.token = viewer.state.parts, viewer.state.token
    with served(app) as server, browser.tab() as tab:
        response = server.client.post("/below/api/runs", json={"flow": "ask"})
        assert response.headers["location"] == f"/below/api/runs/{response.json()['run_id']}"
        tab.goto(f"{server.url}/below/?token={server.token}")
        tab.wait("document.querySelector('tbody')?.textContent.includes('waiting')")
        tab.click("tbody a")
        tab.wait("document.querySelectorAll('#rows .row').length > 1")
        tab.click("#rows .row >> nth=1")
        tab.wait("document.querySelector('#panel form')")
        tab.click("#panel button:text('yes')")  # The choice that has a form opens it first.
        tab.select_option("[name='form.channel']", "mail")
        tab.click("#panel button:text('yes')")
        tab.wait("document.querySelector('#status')?.textContent.includes('succeeded')")
        tab.click("text=Flows")
        tab.click("tbody a:text-is('shout')")
        tab.wait("document.querySelector('h1')?.textContent === 'shout'")
        tab.click("text=Runs >> nth=0")
        assert tab.evaluate("location.pathname") == "/below/"
        assert tab.trouble == []
        paths = {url.removeprefix(server.url) for url in tab.requests if url.startswith("http")}
        assert {path.split("/")[1] for path in paths} == {"below"}
        assert server.client.get("/below/nowhere").status_code == 404
        assert server.client.get("/below/api/nowhere").json()["detail"].endswith("see /below/api/openapi.json")
        assert httpx.get(f"{server.url}/below/", trust_env=False, verify=NO_TLS).status_code == 401


def test_without_its_lifespan_it_says_so(folder: Path):
    viewer = make_app("sqlite:///runs.db", ["."], durability="process")
    app = Starlette(routes=[Mount("/", viewer)])
    app.state.parts, app.state.token = viewer.state.parts, viewer.state.token
    with served(app) as server:
        assert "lifespan has not begun" in server.post("/api/runs", {"flow": "shout"}, 503)["detail"]
        assert server.get("/api/runs/x/events", 503)["title"] == "Not running"
        assert server.client.get("/flows").status_code == 200


def test_a_run_is_found_by_the_file_it_came_from_and_else_by_its_name(folder: Path):
    async def started(path: str) -> object:
        return (await Flow.from_yaml(path).run(store="sqlite:///runs.db")).events[0]

    first = anyio.run(started, "shout.yaml")
    library = Library(["."], {})
    Path("other").mkdir()
    Path("other/louder.yaml").write_text(Path("shout.yaml").read_text())
    assert {name for name in library.entries() if name.startswith("shout")} == {"shout", "shout (other/louder.yaml)"}
    found = library.of_run(first)
    assert found is not None
    assert found.about().path == "shout.yaml"
    Path("shout.yaml").unlink()
    found = library.of_run(first)
    assert found is not None
    assert found.about().path == "other/louder.yaml"
    Path("other/louder.yaml").unlink()
    assert library.of_run(first) is None


def test_a_file_that_has_changed_is_read_anew(server: Served):
    assert server.get("/api/flows/shout")["description"] == "Says it louder."
    Path("shout.yaml").write_text(Path("shout.yaml").read_text().replace("louder", "aloud"))
    assert server.get("/api/flows/shout")["description"] == "Says it aloud."
    Path("shout.yaml").write_text("flowengine: v1\nname: shout\nnodes: [")
    assert server.get("/api/flows/shout")["problems"][0]["severity"] == "error"
    Path("shout.yaml").unlink()
    server.get("/api/flows/shout", 404)


def test_folders_of_tools_and_hidden_ones_are_not_looked_through(folder: Path):
    text = Path("shout.yaml").read_text()
    for name in (".hidden", "node_modules", "venv", "deep/er"):
        Path(name).mkdir(parents=True)
        Path(name, "flow.yaml").write_text(text.replace("name: shout", f"name: in_{name[1:3]}"))
    Path("deep/values.yaml").write_text("name: helm\nversion: 1\n")
    names = set(Library(["."], {}).entries())
    assert names == {"ask", "bad", "fail", "pay", "shout", "sleep", "write", "in_ee"}


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_EVENTS", 1000)
    store = MemoryStore()
    journals = {name: store.create(name) for name in ("a", "b", "c")}
    for journal in journals.values():
        for event in layered_run(200):
            journal.append(event)
    shelf = RunCache(store)
    first = shelf.read("a")
    assert shelf.read("a") is first
    shelf.read("b")
    assert shelf.read("a") is not first
    pages: list[int] = []

    def make(run: object) -> str:
        pages.append(1)
        return "page"

    assert [shelf.render("c", "page", make) for _ in range(3)] == [b"page"] * 3
    assert len(pages) == 1
    journals["c"].append(layered_run(10)[-1])
    shelf.render("c", "page", make)
    assert len(pages) == 2


def test_the_plot_of_long_runs_does_without_their_cost_at_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(module, "_MAX_PLOT_EVENTS", 1000)
    store = SQLiteStore(tmp_path / "runs.db", "memory")

    async def keep() -> None:
        for number in range(5):
            journal = store.create(f"r{number}")
            for event in layered_run(100):
                journal.append(event)
            await journal.close()

    anyio.run(keep)
    shelf = RunCache(store)
    assert [point.cost_usd is None for point in shelf.points("large")] == [True, True, False, False, False]
    assert [point.cost_usd is None for point in shelf.points("large")] == [False] * 5
    assert [point.run_id for point in shelf.points("large")] == [f"r{number}" for number in range(5)]
    with done_within(0.5):
        shelf.points("large")
    store.close()
