"""A run with nodes whose kinds a package brings, in the viewer and in a real browser."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from flowengine.agents.context import factory
from flowengine.flow import Flow
from flowengine.web.app import make_app
from tests.support.browser import Browser
from tests.support.small_package import small_package
from tests.support.ui_server import Served, served

_FLOW = """
flowengine: v1
name: again
nodes:
  both:
    type: twice
    nodes:
      say: {type: shout, text: "<b>round</b> {{ round.index }}"}
  after: {type: shout, text: "n{{ nodes.both.output.iterations }}"}
"""


@pytest.fixture
def run_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Served, str]]:
    """A server over a finished run, and the path of the run's page."""
    folder, site = tmp_path / "project", tmp_path / "site"
    folder.mkdir()
    site.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(factory, "_registered", {})
    with small_package(folder, site):
        (folder / "again.yaml").write_text(_FLOW)
        run = Flow.from_yaml("again.yaml").run_sync(store="sqlite:///runs.db")
        with served(make_app("sqlite:///runs.db")) as server:
            yield server, f"/runs/{run.id}"


def test_the_page_of_a_run_has_its_nodes(run_page: tuple[Served, str]) -> None:
    server, path = run_page
    page = server.client.get(path)
    assert page.status_code == 200
    assert all(each in page.text for each in ("both", "after", "twice", "shout"))
    run = server.get(f"/api{path}")
    assert run["status"] == "succeeded"


def test_a_browser_draws_their_shapes_and_opens_their_panels(browser: Browser, run_page: tuple[Served, str]) -> None:
    server, path = run_page
    with browser.tab() as tab:
        tab.goto(server.at(f"{path}#node=after"))
        tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'after'")
        assert "N2" in tab.evaluate("document.querySelector('#panel').textContent")
        outlines = tab.evaluate(
            "[...document.querySelectorAll('[data-node] path')].map(each => each.getAttribute('d'))"
        )
        assert [each.count("L") for each in outlines].count(7) == 1, outlines  # An octagon: 'say' is folded away.
        tab.goto(server.at(f"{path}#node=both.round[1].say"))
        tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'both.round[1].say'")
        assert "<B>ROUND</B> 1" in tab.evaluate("document.querySelector('#panel').textContent")
        assert tab.trouble == []
