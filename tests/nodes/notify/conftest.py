"""A project whose questions go by mail and by requests, to servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mail_server import MailServer
from tests.support.odd_server import OddServer

SECRET = "a secret of thirty-two characters or more"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[MailServer, OddServer]]:
    with MailServer() as mails, OddServer() as posts:
        yield mails, posts


@pytest.fixture
def mails(servers: tuple[MailServer, OddServer]) -> MailServer:
    server = servers[0]
    server.mails.clear()
    server.refusals.clear()
    server.tries = 0
    return server


@pytest.fixture
def posts(servers: tuple[MailServer, OddServer]) -> OddServer:
    server = servers[1]
    server.seen.clear()
    server.routes.clear()
    return server


@pytest.fixture
def folder(mails: MailServer, posts: OddServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project, as the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_LINK_SECRET", SECRET)
    monkeypatch.setenv("SLACK_URL", f"{posts.url}/hooks/T0-secret-path")
    (tmp_path / "flowengine.toml").write_text(f"""
allow_http = ["{posts.url}/hooks/ POST_TOKEN"]

[notify]
url = "https://flows.example.com"
send = ["finance"]

[notify.mail]
server = "127.0.0.1:{mails.port}"
security = "none"
from = "Flows <flows@example.com>"
allow_to = ["@example.com"]

[notify.channels.finance]
type = "mail"
to = ["cfo@example.com", "ada@example.com"]

[notify.channels.ops]
type = "slack"
url_env = "SLACK_URL"

[notify.channels.team]
type = "teams"
url = "{posts.url}/hooks/teams"

[notify.channels.pager]
type = "http"
url = "{posts.url}/hooks/pager"
headers_env = {{Authorization = "POST_TOKEN"}}
[notify.channels.pager.json]
summary = "{{{{ question.message }}}}"
links = "{{{{ links }}}}"
run = "{{{{ run.id }}}} of {{{{ run.flow }}}}"
""")
    return tmp_path
