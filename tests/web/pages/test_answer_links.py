"""Pages of signed links: a GET shows the question, a POST of the page answers it, and nothing else is to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.answer_links import LinkedServer, serve_links


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedServer]:
    folder: Path = tmp_path_factory.mktemp("links")
    (folder / "flowengine.toml").write_text("")
    with serve_links(folder) as found:
        yield found


def test_the_page_shows_the_question_and_the_post_answers_it_for_whom_the_link_was_sent_to(linked: LinkedServer):
    run_id = linked.start(text="Pay 7 EUR to <Bo>?")
    path = linked.path(run_id)
    page = linked.client.get(path)
    assert page.status_code == 200
    for told in ("Pay 7 EUR to &lt;Bo&gt;?", "Answer: yes", "ada@example.com", run_id, "ask asks"):
        assert told in page.text, told
    answered = linked.post(path, comment="fine")
    assert (answered.status_code, "Your answer is kept: yes" in answered.text) == (200, True)
    run = linked.server.until(run_id, "succeeded")
    assert run["outputs"]["ask"] == {"choice": "yes", "comment": "fine", "by": "ada@example.com", "form": None}


def test_what_the_form_asks_for_is_filled_in_on_the_page(linked: LinkedServer):
    run_id = linked.start("form")
    path = linked.path(run_id)
    assert '<select name="form.channel" required>' in linked.client.get(path).text
    for said in ({"form.channel": "radio", "form.ticket": "T-1"}, {"form.channel": "mail", "form.ticket": ""}, {}):
        wrong = linked.post(path, **said)
        assert (wrong.status_code, "does not fit" in wrong.text, "Answer: yes" in wrong.text) == (422, True, True)
    assert linked.server.get(f"/api/runs/{run_id}")["status"] == "waiting"
    assert linked.post(path, **{"form.channel": "mail", "form.ticket": "T-1"}).status_code == 200
    ended = linked.server.until(run_id, "succeeded")
    assert ended["outputs"]["ask"]["form"] == {"channel": "mail", "ticket": "T-1"}


def test_the_style_sheet_needs_no_token_and_nothing_else_is_open(linked: LinkedServer):
    style = linked.client.get("/answer/page/style.css")
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    run_id = linked.start()
    page = linked.client.get(linked.path(run_id))
    assert 'href="/answer/page/style.css"' in page.text
    assert "<script" not in page.text
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    assert linked.client.get(f"/runs/{run_id}").status_code == 401
    assert linked.client.get("/answer/").status_code == 404


def test_without_a_secret_the_page_says_what_is_missing(tmp_path: Path):
    (tmp_path / "flowengine.toml").write_text("")
    with serve_links(tmp_path, secret="") as found:
        response = found.client.get(found.path(found.start()))
        assert (response.status_code, "FLOWENGINE_LINK_SECRET is not set" in response.text) == (503, True)
