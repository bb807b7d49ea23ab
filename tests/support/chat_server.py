"""A server of flows that chats call, with two keys, for tests of the chat endpoints."""

from __future__ import annotations

import textwrap
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from flowengine.journal.stores import open_store
from flowengine.web.gate.api_keys import KeyRing
from flowengine.web.service.flow_service import FlowService
from flowengine.web.serving_app import make_serving_app
from tests.support.ui_server import served

__all__ = ["ChatServer", "chat_server"]

FLOWS = {
    "poet": """
        description: Writes what it is told to.
        inputs:
          message: {type: string}
        nodes:
          plan: {prompt: "Say in a word: {{ inputs.message }}"}
          write:
            needs: [plan]
            prompt: "{{ inputs.message }}"
            context: [conversation: {max_items: 5}]
        outputs:
          reply: "{{ nodes.write.output }}"
        """,
    "echo": """
        inputs:
          message: {type: string}
          mark: {type: string, default: "!", enum: ["!", "?"]}
        nodes:
          say: {type: function, call: "steps:say", with: {text: "{{ inputs.message }}{{ inputs.mark }}"}}
        outputs:
          reply: "{{ nodes.say.output }}"
        """,
    "odd": """
        inputs:
          message: {type: string}
        nodes:
          say: {type: function, call: "steps:odd"}
        outputs:
          reply: "{{ nodes.say.output }}"
        """,
    "history": """
        inputs:
          messages: {type: array}
        nodes:
          count: {type: function, call: "steps:count", with: {messages: "{{ inputs.messages }}"}}
        outputs:
          reply: "{{ nodes.count.output }}"
        """,
    "ship": """
        inputs:
          message: {type: string}
        nodes:
          ask:
            type: approval
            message: "Ship {{ inputs.message }}?"
            routes: {"ship it": {to: done}, "hold": {}}
          done: {type: function, call: "steps:say", with: {text: "shipped {{ inputs.message }}"}}
        outputs:
          reply: "{{ nodes.done.output | default('held') }}"
        """,
    "fail": """
        inputs:
          message: {type: string}
        nodes:
          break: {type: function, call: "steps:fail"}
        outputs:
          reply: "{{ nodes.break.output }}"
        """,
    "vague": """
        inputs:
          one: {type: string}
          two: {type: string}
        nodes:
          say: {type: function, call: "steps:say", with: {text: "{{ inputs.one }}{{ inputs.two }}"}}
        """,
    "slow": """
        inputs:
          message: {type: string}
        nodes:
          begin: {type: function, call: "steps:say", with: {text: "{{ inputs.message }}"}}
          wait: {type: function, call: "steps:wait", needs: [begin]}
        outputs:
          reply: "{{ nodes.wait.output }}"
        """,
    "look": """
        inputs:
          message: {type: string, default: ""}
          photo: {type: file, media_types: [image/png]}
        nodes:
          say:
            type: function
            call: "steps:describe"
            with: {text: "{{ inputs.message }}", photo: "{{ inputs.photo }}"}
        outputs:
          reply: "{{ nodes.say.output }}"
        """,
    "clerk": """
        inputs:
          message: {type: string}
        nodes:
          look: {type: tool, tool: "steps:look_up", with: {number: "{{ inputs.message }}"}}
        outputs:
          reply: "{{ nodes.look.output }}"
        """,
}
STEPS = """
import anyio

def say(text):
    return text

def describe(text, photo):
    return f"{text} {photo.media_type} {photo.size}"

def odd():
    return "a\\ud83db"

def count(messages):
    return " ".join(f"{each['role']}:{each['content']}" for each in messages)

def fail():
    raise ValueError("no such thing")

async def wait():
    await anyio.sleep_forever()

def look_up(number: str) -> str:
    '''Look an order up.'''
    return f"order {number} is on its way"
"""


class ChatServer(NamedTuple):
    """What tests ask."""

    url: str
    ann: str
    """A key for all flows."""
    ben: str
    """A key for `echo` alone."""
    service: FlowService
    client: httpx.Client
    """Has Ann's key."""


@contextmanager
def chat_server(folder: Path, more: Sequence[Path] = ()) -> Generator[ChatServer]:
    """`more`: flow files beside those of tests."""
    (folder / "steps.py").write_text(STEPS)
    for name, text in FLOWS.items():
        (folder / f"{name}.yaml").write_text(f"flowengine: v1\nname: {name}\n{textwrap.dedent(text).lstrip()}")
    environ = {"FLOWENGINE_DEFAULT_MODEL": "offline"}
    with closing(open_store(f"sqlite:///{folder / 'runs.db'}")) as store:
        ring = KeyRing(store)
        ann, ben = ring.add("ann"), ring.add("ben", flows=["echo"])
        app = make_serving_app(store, [folder, *more], grace=0, environ=environ)
        service = app.state.serving.service
        with served(app, token=ann, end=service.drain) as server:
            yield ChatServer(server.url, ann, ben, service, server.client)
