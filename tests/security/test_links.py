"""Attempts to answer a question that is not one's own to answer, by links that were made, found, used or followed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from flowengine.errors import DefinitionError
from flowengine.nodes.notify.links import LinkSigner
from flowengine.nodes.notify.notifier import link_path
from flowengine.nodes.notify.question_notice import (
    QuestionNotice,
    check_mail_address,
    make_mail,
    make_slack,
    make_teams,
)
from tests.support.answer_links import SECRET, LinkedServer, serve_links
from tests.support.mail_server import links_in

EVIL = "Pay?\r\nBcc: eve@example.org\u2028X: 1\x00</p><script>alert(1)</script> <https://evil.example|Approve> [ok](https://evil.example) <!channel>"  # noqa: E501


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedServer]:
    folder: Path = tmp_path_factory.mktemp("attempts")
    (folder / "flowengine.toml").write_text("")
    with serve_links(folder) as found:
        yield found


def waits(linked: LinkedServer, run_id: str) -> bool:
    return linked.server.get(f"/api/runs/{run_id}")["status"] == "waiting"


def test_a_forged_or_changed_link_answers_nothing(linked: LinkedServer):
    run_id = linked.start()
    link = linked.link(run_id)
    token = LinkSigner([SECRET]).sign(link)
    payload, mark = token.split(".")
    other = base64.urlsafe_b64encode(json.dumps(link._replace(choice="no")).encode()).decode().rstrip("=")
    forged = [
        LinkSigner(["another secret of thirty-two characters"]).sign(link),
        f"{other}.{mark}",
        f"{payload}.",
        f".{mark}",
        payload,
        f"{payload}.{mark[:-1]}",
        f"{payload}.{mark}=",
        f"{payload}..{mark}",
        f"{payload}.{mark}.{mark}",
        "A" * 9_000 + f".{mark}",
        "%00",
        "é",
    ]
    for each in forged:
        for response in (linked.client.get(link_path(each)), linked.post(link_path(each))):
            assert response.status_code == 404, each
            assert run_id not in response.text
    assert waits(linked, run_id)


def test_a_get_or_a_head_of_a_mail_scanner_decides_nothing_whatever_it_says(linked: LinkedServer):
    run_id = linked.start()
    path = linked.path(run_id)
    for method in ("GET", "HEAD", "OPTIONS"):
        linked.client.request(method, f"{path}?choice=yes&confirm=1")
    assert linked.client.put(path).status_code == 405
    assert waits(linked, run_id)


def test_a_link_is_good_for_its_own_choice_question_and_run_alone(linked: LinkedServer):
    mine, other = linked.start(), linked.start()
    answered = linked.post(linked.path(mine, "no"), choice="yes", run_id=other, by="cfo@example.com", asked="0")
    assert answered.status_code == 200
    assert linked.server.until(mine, "succeeded")["outputs"]["ask"]["choice"] == "no"
    assert linked.server.get(f"/api/runs/{mine}")["outputs"]["ask"]["by"] == "ada@example.com"
    assert waits(linked, other)
    for changed in ({"question": "nobody"}, {"asked": 1.0}, {"run_id": mine}):
        assert linked.post(linked.path(other, **changed)).status_code == 410
    assert linked.post(linked.path(other, run_id="gone")).status_code == 410
    assert linked.post(linked.path(other, choice="perhaps")).status_code == 403
    assert waits(linked, other)


def test_a_link_is_used_once_and_with_it_the_links_of_the_other_choices_and_people(linked: LinkedServer):
    run_id = linked.start()
    paths = [linked.path(run_id), linked.path(run_id, "no"), linked.path(run_id, "no", "cfo@example.com")]
    assert linked.post(paths[0]).status_code == 200
    linked.server.until(run_id, "succeeded")
    for path in paths:
        for response in (linked.post(path), linked.client.get(path)):
            assert (response.status_code, "Answered already" in response.text) == (410, True)


def test_a_link_ends_with_its_question(linked: LinkedServer):
    run_id = linked.start()
    late = linked.post(linked.path(run_id, expires=1.0))
    assert (late.status_code, "The time is up" in late.text) == (410, True)
    assert waits(linked, run_id)


def test_a_link_of_somebody_who_is_no_approver_shows_and_decides_nothing(linked: LinkedServer):
    run_id = linked.start("mine", text="of the board alone")
    path = linked.path(run_id, by="eve@example.com")
    for response in (linked.client.get(path), linked.post(path)):
        assert (response.status_code, "of the board" in response.text) == (403, False)
    assert linked.post(linked.path(run_id)).status_code == 200


def test_a_page_of_another_site_cannot_post_a_link_that_it_knows(linked: LinkedServer):
    run_id = linked.start()
    response = linked.client.post(linked.path(run_id), data={}, headers={"Origin": "https://evil.example"})
    assert response.status_code == 403
    foreign = linked.client.get(linked.path(run_id), headers={"Host": "evil.example"})
    assert foreign.status_code == 421
    assert waits(linked, run_id)


def test_the_question_is_text_on_the_page_whatever_it_says(linked: LinkedServer):
    run_id = linked.start(text=EVIL)
    page = linked.client.get(linked.path(run_id))
    assert "<script" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]


NOTICE = QuestionNotice(
    "r1\r\nX-A: 1", "pay\nX-B: 1", "ask", EVIL, ["yes\r\nX-C: 1"], 1.0, {"yes\r\nX-C: 1": "https://flows.example.com/a"}
)


def test_no_text_makes_a_header_of_a_mail(linked: LinkedServer):
    mail = make_mail(NOTICE, "Flows <flows@example.com>", "ada@example.com", "m1")
    read = message_from_bytes(bytes(mail), policy=default)
    names = {"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"}
    assert set(read.keys()) == {*names, "Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    assert str(read["Subject"]).startswith("pay X-B: 1: Pay?")
    assert read.get_content_type() == "text/plain"


def test_no_text_of_a_mail_passes_for_its_links_or_its_end():
    forged = (
        "Pay?\n\nyes:\nhttps://evil.example/answer/x\r\rFlow pay, node ask, run r1.\u2028no:\nhttps://evil.example/"
    )
    notice = QuestionNotice("r1", "pay", "ask", forged, ["yes"], 1.0, {"yes": "https://flows.example.com/answer/a"})
    text = make_mail(notice, "flows@example.com", "ada@example.com", "m1").get_content()
    own, _, quoted = text.partition("The question is what is quoted here:\n\n")
    assert "https://flows.example.com/answer/a" in own
    assert "evil" not in own
    assert all(line.startswith(">") for line in quoted.splitlines() if line)
    assert links_in(text) == {"yes": "/answer/a"}


@pytest.mark.parametrize(
    "address",
    [
        "ada@example.com\r\nBcc: eve@example.org", "ada@example.com, eve@example.org", "Ada <ada@example.com>",
        "ada@example.com\u2028", '"ada@evil.org"@example.com', "ada@[127.0.0.1]", "@example.com", "ada", "", "a@b@c.d",
        "ada@ex ample.com", "ada@example.com\x00", "ada@example.com>", "ádá@example.com",
    ],
)  # fmt: skip
def test_no_text_is_an_address_of_a_mail_but_an_address(address: str):
    with pytest.raises(DefinitionError, match="is no mail address"):
        check_mail_address(address)


def test_no_text_is_markup_of_slack_or_teams():
    slack = make_slack(NOTICE)
    assert {each["type"] for each in slack["blocks"]} == {"section", "context", "actions"}
    texts = [slack["blocks"][0]["text"], *slack["blocks"][1]["elements"], slack["blocks"][2]["elements"][0]["text"]]
    assert {each["type"] for each in texts} == {"plain_text"}
    assert "<" not in slack["text"]
    card = make_teams(NOTICE)["attachments"][0]["content"]
    assert {each["type"] for each in card["body"]} == {"RichTextBlock"}  # Its runs know no markup.
    assert [each["url"] for each in card["actions"]] == ["https://flows.example.com/a"]
