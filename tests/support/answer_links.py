"""A server whose runs are answered by signed links, with a flow that asks and one that asks for a form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from flowengine.journal.approvals import open_questions, times_asked
from flowengine.nodes.notify.links import AnswerLink, LinkSigner
from flowengine.nodes.notify.notifier import link_path
from flowengine.web.app import make_app
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import Served, served

__all__ = ["SECRET", "LinkedServer", "serve_links"]

SECRET = "a secret of thirty-two characters or more"
FLOW = """flowengine: v1
name: ask
inputs: {{text: {{type: string, default: "Pay 7 EUR?"}}}}
nodes:
  ask:
    type: approval
    message: "{{{{ inputs.text }}}}"
    routes: {{"yes": {{}}, "no": {{}}}}
{more}
"""
FORM = """    form:
      type: object
      properties: {channel: {type: string, enum: [blog, mail]}, ticket: {type: string}}
      required: [channel, ticket]
"""


class LinkedServer:
    """A running server; a client that has no token of it."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.client = httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=NO_TLS)

    def start(self, flow: str = "ask", **inputs: Any) -> str:
        """The id of a run that waits."""
        run_id = self.server.post("/api/runs", {"flow": flow, "inputs": inputs}, 201)["run_id"]
        self.server.until(run_id, "waiting")
        return run_id

    def link(self, run_id: str, /, choice: str = "yes", by: str = "ada@example.com", **changed: Any) -> AnswerLink:
        events = self.server.app.state.parts.shelf.store.events(run_id)
        (path,) = open_questions(events) or ("ask",)
        return AnswerLink(run_id, path, times_asked(events)[path], choice, by)._replace(**changed)

    def path(self, run_id: str, /, choice: str = "yes", by: str = "ada@example.com", **changed: Any) -> str:
        return link_path(LinkSigner([SECRET]).sign(self.link(run_id, choice, by, **changed)))

    def post(self, path: str, **fields: str) -> httpx.Response:
        """As the page of the link posts it."""
        return self.client.post(path, data={"comment": "", **fields}, headers={"Origin": self.server.url})


@contextmanager
def serve_links(folder: Path, secret: str = SECRET, **more: str) -> Iterator[LinkedServer]:
    """`more`: flow → what its node says beside."""
    flows = {"ask": "", "form": FORM, "mine": "    approvers: [ada@example.com]", **more}
    for name, said in flows.items():
        (folder / f"{name}.yaml").write_text(FLOW.format(more=said).replace("name: ask", f"name: {name}"))
    environ = {"FLOWENGINE_LINK_SECRET": secret} if secret else {}
    with served(make_app(f"sqlite:///{folder}/runs.db", [folder], durability="process", environ=environ)) as server:
        found = LinkedServer(server)
        yield found
        found.client.close()
