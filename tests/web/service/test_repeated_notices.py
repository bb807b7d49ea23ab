"""A server tells those again whom a question of its runs did not reach."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from flowengine import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.web.service.flow_service import FlowService
from tests.support.answer_links import SECRET
from tests.support.mail_server import MailServer

pytestmark = pytest.mark.anyio

PROJECT = """
[notify]
url = "https://flows.example.com"
send = ["finance"]
[notify.mail]
server = "127.0.0.1:{port}"
security = "none"
from = "flows@example.com"
[notify.channels.finance]
type = "mail"
to = "cfo@example.com"
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_mail_that_was_refused_goes_out_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flowengine.runtime.deliveries._FIRST", 0.01)
    monkeypatch.setenv("FLOWENGINE_LINK_SECRET", SECRET)
    with MailServer() as mails:
        (tmp_path / "flowengine.toml").write_text(PROJECT.format(port=mails.port))
        (tmp_path / "pay.yaml").write_text(
            "flowengine: v1\nname: pay\nnodes: {ask: {type: approval, message: Pay?, routes: {ok: {}}}}\n"
        )
        mails.refusals.append("550 not now")
        async with FlowService(MemoryStore(), [Flow.from_yaml(tmp_path / "pay.yaml")]) as service:
            run = await service.start("pay", {})
            assert (await service.wait(run.run_id)).status == "waiting"
            assert await anyio.to_thread.run_sync(mails.arrived.wait, 20)
            with anyio.fail_after(20):
                assert (await service.wait(run.run_id)).status == "waiting"
        assert (mails.tries, len(mails.mails)) == (2, 1)
