"""A worker tells people of what a run on the queue asks, and again later where they could not be told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flowengine import Flow
from flowengine.core.records import Notified
from flowengine.engine.events import NodeRecorded
from flowengine.journal.approvals import answer, times_asked
from flowengine.journal.postgres.store import PostgresStore
from flowengine.nodes.notify.links import AnswerLink, LinkSigner
from flowengine.runtime.queue.run_queue import requeue, submit
from tests.support.answer_links import SECRET
from tests.support.mail_server import MailServer, links_in
from tests.support.queue_runs import drain, execute, status

pytestmark = pytest.mark.anyio

FLOW = """flowengine: v1
name: pay
nodes:
  ask: {type: approval, message: "Pay?", routes: {"yes": {}}, notify: {type: mail, to: bo@example.com}}
"""


def told(store: PostgresStore, run_id: str) -> list[bool]:
    records = [each.record for each in store.events(run_id) if isinstance(each, NodeRecorded)]
    return [each.error is None for each in records if isinstance(each, Notified)]


async def test_a_worker_tells_people_now_or_later(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_LINK_SECRET", SECRET)
    with MailServer() as mails:
        (tmp_path / "flowengine.toml").write_text(
            f'[notify]\nurl = "https://flows.example.com"\n[notify.mail]\nserver = "127.0.0.1:{mails.port}"\n'
            'security = "none"\nfrom = "flows@example.com"\nallow_to = ["@example.com"]\n'
        )
        (tmp_path / "pay.yaml").write_text(FLOW)
        mails.refusals.append("550 not now")
        run_id = await submit(store, Flow.from_yaml("pay.yaml").plan, {})
        await drain(store)
        assert (status(store, run_id), told(store, run_id), mails.mails) == ("waiting", [False], [])
        [(later,)] = execute(store, "SELECT extract(epoch FROM scheduled_at) FROM procrastinate_jobs")
        assert 50 < float(later) - time.time() < 65
        execute(store, "UPDATE procrastinate_jobs SET scheduled_at = now() - interval '1 second'")
        await drain(store)
        assert (status(store, run_id), told(store, run_id)) == ("waiting", [False, True])
        assert execute(store, "SELECT count(*) FROM procrastinate_jobs") == [(0,)]
        [mail] = mails.mails
    asked = times_asked(store.events(run_id))["ask"]
    link = LinkSigner([SECRET]).read(links_in(mail.text)["yes"].removeprefix("/answer/"))
    assert link == AnswerLink(run_id, "ask", asked, "yes", "bo@example.com")
    await answer(store, run_id, link.question, link.choice, by=link.by, asked=link.asked)
    await requeue(store, run_id)
    await drain(store)
    assert status(store, run_id) == "succeeded"
