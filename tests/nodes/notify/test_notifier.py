"""People are told of questions: by mail and by requests, to real servers on loopback, and the run's record says so."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import anyio
import anyio.to_thread
import pytest

from flowengine import Flow
from flowengine.core.records import Answered, ApprovalRequested, Notified
from flowengine.engine.events import Event, NodeRecorded
from flowengine.errors import DefinitionError
from flowengine.journal.approvals import answer
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import store_run
from flowengine.nodes.notify.channels import channel_of
from flowengine.nodes.notify.notifier import DeliveryPace, PeopleNotifier
from flowengine.runtime.deliveries import next_try
from flowengine.runtime.run import Run
from tests.support.mail_server import MailServer, links_in
from tests.support.odd_server import OddServer, say

pytestmark = pytest.mark.anyio

QUICK = DeliveryPace(attempt=5.0, pauses=(0.001, 0.001))


def load(folder: Path, node: str = "", pace: DeliveryPace = QUICK, name: str = "pay") -> Flow:
    file = folder / f"{name}.yaml"
    file.write_text(f"""flowengine: v1
name: {name}
inputs: {{to: {{type: array, default: []}}, text: {{type: string, default: "Pay 7 EUR?"}}}}
nodes:
  sign_off:
    type: approval
    message: "{{{{ inputs.text }}}}"
    routes: {{ship: {{}}, hold: {{}}}}
{node}
""")
    flow = Flow.from_yaml(file)
    notifier = cast(PeopleNotifier, flow.plan.notifier)
    return Flow.of(replace(flow.plan, notifier=replace(notifier, pace=pace)))


class Known(NamedTuple):
    """A run as far as it is on record."""

    events: Sequence[Event]


def find_notified(run: Run | Known, node: str = "sign_off") -> list[Notified]:
    records = [each.record for each in run.events if isinstance(each, NodeRecorded) and each.node == node]
    return sorted((each for each in records if isinstance(each, Notified)), key=lambda each: each[:2])


async def test_the_channels_of_the_project_tell_each_of_their_people_with_links_of_his_own(
    folder: Path, mails: MailServer
):
    run = await load(folder).run(store=MemoryStore())
    assert run.status == "waiting"
    assert [(each.channel, each.to, each.error) for each in find_notified(run)] == [
        ("finance", "ada@example.com", None),
        ("finance", "cfo@example.com", None),
    ]
    by_person = {each.to[0]: each for each in mails.mails}
    mail = by_person["cfo@example.com"]
    assert mail.sender == "flows@example.com"
    assert (mail.mail["Subject"], mail.mail["From"]) == ("pay: Pay 7 EUR?", "Flows <flows@example.com>")
    assert mail.mail["Auto-Submitted"] == "auto-generated"
    assert list(links_in(mail.text)) == ["ship", "hold"]
    assert links_in(mail.text) != links_in(by_person["ada@example.com"].text)
    assert f"run {run.id}" in mail.text


async def test_nobody_is_told_twice_when_the_run_goes_on(folder: Path, mails: MailServer):
    flow, store = load(folder), MemoryStore()
    run = await flow.run(store=store)
    assert (await flow.resume(run.id, store=store)).status == "waiting"
    assert len(mails.mails) == 2


@pytest.mark.parametrize("channel", ["ops", "team", "pager"])
async def test_posts_hold_the_question_and_a_link_for_each_choice(
    folder: Path, posts: OddServer, channel: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("POST_TOKEN", "secret-token-123")
    run = await load(folder, f"    notify: {channel}").run(store=MemoryStore())
    assert [(each.channel, each.to, each.error) for each in find_notified(run)] == [(channel, "127.0.0.1", None)]
    (seen,) = posts.seen
    body = json.loads(seen.body)
    assert seen.headers["idempotency-key"]
    if channel == "ops":
        assert body["blocks"][0]["text"] == {"type": "plain_text", "text": "Pay 7 EUR?", "emoji": False}
        links = {each["text"]["text"]: each["url"] for each in body["blocks"][-1]["elements"]}
    elif channel == "team":
        card = body["attachments"][0]["content"]
        assert card["body"][1]["inlines"][0]["text"] == "Pay 7 EUR?"
        links = {each["title"]: each["url"] for each in card["actions"]}
    else:
        assert (body["summary"], body["run"]) == ("Pay 7 EUR?", f"{run.id} of pay")
        assert seen.headers["authorization"] == "secret-token-123"
        links = body["links"]
    assert list(links) == ["ship", "hold"]
    assert all(each.startswith("https://flows.example.com/answer/") for each in links.values())


async def test_a_question_tells_people_of_its_own(folder: Path, mails: MailServer, posts: OddServer):
    own = f"    notify: [{{type: mail, to: '{{{{ inputs.to }}}}'}}, {{type: http, url: '{posts.url}/hooks/x'}}]"
    run = await load(folder, own).run({"to": ["bo@example.com", "eve@example.org"]}, store=MemoryStore())
    assert [(each.channel, each.to, each.error is None) for each in find_notified(run)] == [
        ("http", "127.0.0.1", True),
        ("mail", "bo@example.com", True),
        ("mail", "eve@example.org", False),
    ]
    assert "`allow_to` of [notify.mail] does not list it" in (find_notified(run)[2].error or "")
    assert [each.to for each in mails.mails] == [["bo@example.com"]]
    assert json.loads(posts.seen[0].body)["question"]["message"] == "Pay 7 EUR?"


async def test_only_approvers_get_links(folder: Path, mails: MailServer):
    await load(folder, "    approvers: [CFO@example.com]").run(store=MemoryStore())
    links = {each.to[0]: list(links_in(each.text)) for each in mails.mails}
    assert links == {"cfo@example.com": ["ship", "hold"], "ada@example.com": []}
    assert all("To be answered by CFO@example.com." in each.text for each in mails.mails)


async def test_a_refusal_for_now_is_tried_again_and_one_for_good_is_not(folder: Path, mails: MailServer):
    node = "    notify: {type: mail, to: bo@example.com}"
    mails.refusals[:] = ["451 come again", "452 and again"]
    run = await load(folder, node).run(store=MemoryStore())
    assert [(each.error, each.attempts) for each in find_notified(run)] == [(None, 3)]
    mails.refusals[:] = ["550 never"]
    mails.tries = 0
    run = await load(folder, node).run(store=MemoryStore())
    assert "550" in (find_notified(run)[0].error or "")
    assert (run.status, mails.tries) == ("waiting", 1)


async def test_a_mail_that_was_taken_is_sent_once_however_its_server_parts(
    folder: Path, mails: MailServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mails, "farewell", "421 too busy")
    monkeypatch.delattr("ssl.create_default_context")  # Certificates are of no use without TLS.
    run = await load(folder, "    notify: {type: mail, to: bo@example.com}").run(store=MemoryStore())
    assert [(each.error, each.attempts) for each in find_notified(run)] == [(None, 1)]
    assert mails.tries == 1


@pytest.mark.parametrize(
    ("node", "breakage", "expected"),
    [
        ("", "no secret", "FLOWENGINE_LINK_SECRET is not set"),
        ("", "short secret", "has less than 32 characters"),
        ("    notify: pager", "", "the environment variable POST_TOKEN, which is not set"),
        ("    notify: ops", "no url", "SLACK_URL is not set"),
        ("    notify: ops", "refused", "the answer was 503"),
        ("    notify: ops", "told", "the answer was 400: no such [31m channel"),
        ("    notify: ops", "echo", "the answer was 400"),
        ("    notify: ops", "redirect", "the answer was 302"),
    ],
)
async def test_what_cannot_be_sent_is_told_and_the_run_waits_all_the_same(
    folder: Path, posts: OddServer, monkeypatch: pytest.MonkeyPatch, node: str, breakage: str, expected: str
):
    match breakage:
        case "no secret":
            monkeypatch.delenv("FLOWENGINE_LINK_SECRET")
        case "short secret":
            monkeypatch.setenv("FLOWENGINE_LINK_SECRET", "short")
        case "no url":
            monkeypatch.delenv("SLACK_URL")
        case "refused":
            posts.routes["/hooks/T0-secret-path"] = lambda handler: say(handler, b"secret-path", status=503)
        case "told":
            posts.routes["/hooks/T0-secret-path"] = lambda handler: say(
                handler, b"no such\x1b[31m\r\nchannel", status=400
            )
        case "echo":
            posts.routes["/hooks/T0-secret-path"] = lambda handler: say(
                handler, posts.seen[-1].body.encode(), status=400
            )
        case _:
            posts.redirect("/hooks/T0-secret-path", "https://elsewhere.example.com/")
    store, flow = MemoryStore(), load(folder, node)
    run = await flow.run(store=store)
    assert run.status == "waiting"
    failed = find_notified(run)
    assert all(expected in (each.error or "") for each in failed), failed
    assert "secret-path" not in repr(run.events)
    assert "/answer/" not in repr(failed)
    await answer(store, run.id, None, "ship", by="ada")
    assert (await flow.resume(run.id, store=store)).status == "succeeded"


async def test_whoever_goes_on_with_the_run_tells_those_who_could_not_be_told(folder: Path, mails: MailServer):
    store, flow = MemoryStore(), load(folder, "    notify: {type: mail, to: bo@example.com}")
    mails.refusals[:] = ["451 later"] * 3
    run = await flow.run(store=store)
    assert (find_notified(run)[0].attempts, mails.mails) == (3, [])
    run = await flow.resume(run.id, store=store)
    assert ([each.error is None for each in find_notified(run)], len(mails.mails)) == ([False, True], 1)


@pytest.mark.long
async def test_a_server_that_never_answers_neither_fails_the_run_nor_takes_of_its_time(folder: Path, posts: OddServer):
    posts.routes["/hooks/teams"] = lambda handler: cast(None, posts.stopped.wait(60))
    slow = "    notify: team\nlimits: {timeout: 2s}"
    run = await load(folder, slow, DeliveryPace(attempt=2.2, pauses=())).run(store=MemoryStore())
    assert run.status == "waiting"
    assert find_notified(run)[0].error == "there was no answer within 2.2 s"


async def test_an_answer_ends_the_waiting_for_deliveries_and_other_branches_work_meanwhile(
    folder: Path, posts: OddServer
):
    arrived = threading.Event()

    def hang(handler: object) -> None:
        arrived.set()
        posts.stopped.wait(60)

    posts.routes["/hooks/teams"] = hang
    flow, store = load(folder, "    notify: team", DeliveryPace(attempt=60.0)), MemoryStore()
    runs: list[Run] = []

    async def go() -> None:
        runs.append(await flow.run(store=store, run_id="r"))

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go)
            assert await anyio.to_thread.run_sync(arrived.wait, 40)
            assert (await answer(store, "r", "sign_off", "ship", by="ada")).writer is not None
    assert (runs[0].status, runs[0].outputs["sign_off"]["by"]) == ("succeeded", "ada")


async def test_many_questions_of_one_run_are_told_of_once_each(folder: Path, posts: OddServer):
    file = folder / "each.yaml"
    file.write_text("""flowengine: v1
name: each
nodes:
  every:
    type: map
    over: "range(40)"
    nodes:
      ask: {type: approval, message: "Pay {{ item }}?", routes: {ship: {}}, notify: team}
""")
    run = await Flow.from_yaml(file).run(store=MemoryStore())
    assert run.status == "waiting"
    records = [each for each in run.events if isinstance(each, NodeRecorded) and isinstance(each.record, Notified)]
    assert len({each.node for each in records}) == len(records) == len(posts.seen) == 40


async def test_the_testing_kit_tells_nobody(folder: Path, mails: MailServer):
    from flowengine.testing.scripted_answers import scripted

    run = await scripted(load(folder), {}).run(store=MemoryStore())
    assert (run.status, mails.mails) == ("waiting", [])


async def test_a_template_that_fails_is_told(folder: Path, posts: OddServer):
    node = f"    notify: {{type: http, url: '{posts.url}/hooks/x', body: 'to {{{{ links.gone }}}}'}}"
    run = await load(folder, node).run(store=MemoryStore())
    assert "a template of the channel fails: links.gone" in (find_notified(run)[0].error or "")


def test_no_representation_shows_the_environment(folder: Path):
    notifier: Any = load(folder).plan.notifier
    assert "thirty-two" not in repr(notifier)


async def test_a_password_goes_to_the_mail_server_and_into_no_record(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MAIL_USER", "flows-user")
    with MailServer(password="right-password-1") as server:
        file = folder / "flowengine.toml"
        named = 'from = "Flows <flows@example.com>"\nuser_env = "MAIL_USER"\npassword_env = "MAIL_PASSWORD"'
        text = file.read_text().replace('from = "Flows <flows@example.com>"', named)
        file.write_text(re.sub(r'server = "127.0.0.1:\d+"', f'server = "127.0.0.1:{server.port}"', text))
        for password, arrives in (("right-password-1", True), ("wrong-password-2", False)):
            monkeypatch.setenv("MAIL_PASSWORD", password)
            run = await load(folder, "    notify: {type: mail, to: bo@example.com}").run(store=MemoryStore())
            assert (find_notified(run)[0].error is None) == arrives
            assert password not in repr(run.events)
        assert len(server.mails) == 1


async def test_a_run_that_was_killed_at_any_event_tells_everybody_at_least_once(folder: Path, mails: MailServer):
    """Where the record of a delivery was lost it is made again, with the same mark."""
    flow = load(folder, "    notify: {type: mail, to: [bo@example.com, cy@example.com]}")
    run = await flow.run(store=MemoryStore())
    events, marks = run.events, {each.to[0]: each.mail["Message-ID"] for each in mails.mails}
    for length in range(1, len(events) + 1):
        mails.mails.clear()
        killed = MemoryStore()
        await store_run(killed, events[:length], run.id)
        assert (await flow.resume(run.id, store=killed)).status == "waiting"
        has_asked = any(isinstance(getattr(each, "record", None), ApprovalRequested) for each in events[:length])
        known = {each.to for each in find_notified(Known(events[:length]))}
        assert {each.to[0] for each in mails.mails} == marks.keys() - known
        assert not has_asked or all(each.mail["Message-ID"] == marks[each.to[0]] for each in mails.mails)


def test_those_who_could_not_be_told_are_told_again_ever_later():
    asked = NodeRecorded("ask", 0.0, ApprovalRequested("Pay?", ["yes"]))
    failed = [NodeRecorded("ask", 100.0 * n, Notified("ops", "x", 0.0, error="no")) for n in range(1, 200)]
    assert next_try([asked]) is None
    assert [next_try([asked, *failed[:n]]) for n in (1, 2, 3, 9)] == [160.0, 320.0, 540.0, 4500.0]
    assert next_try([asked, *failed]) is None
    arrived = NodeRecorded("ask", 300.0, Notified("ops", "x", 0.0))
    assert next_try([asked, *failed[:2], arrived]) is None
    assert next_try([asked, *failed[:2], NodeRecorded("ask", 300.0, Answered("yes"))]) is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("mail", "a channel is a name, or a map"),
        ({}, "a channel has a type"),
        ({"type": ["mail"]}, "a channel has a type"),
        ({"type": "mail", "name": "ours"}, "none but its keys"),
        (
            {"type": "mail", "to": "ada@example.com"},
            "a channel's to must be a list of texts, not str 'ada",
        ),
        ({"type": "http", "headers": {"a": 1}}, "a channel's headers must be a mapping of texts to texts"),
        ({"type": "http", "url": None}, "a channel's url must be a text, not None"),
    ],
)
def test_a_channel_of_another_form_is_refused_with_what_is_expected(said: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        channel_of(said)
    assert problem in str(refused.value)
