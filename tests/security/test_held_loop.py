"""Attempts to hold the event loops of `serve` and `ui` by what its doors take: nobody else is answered then.

What is measured is the work of the loop's own thread, so a busy machine makes no alarm.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from flowengine.core.json_values import MAX_VALUES
from flowengine.flowfile.project.project import find_project
from flowengine.journal.stores import open_store
from flowengine.runtime.loop_watch import LIMIT, LoopHold
from flowengine.web.app import make_app
from flowengine.web.serving_app import make_serving_app
from tests.support.pace import slowness
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import served

GIVE: Final = """flowengine: v1
name: {name}
inputs: {inputs}
nodes: {{give: {{type: function, call: "steps:give", with: {{value: "{{{{ {expression} }}}}"}}}}}}
outputs: {{out: "{{{{ nodes.give.output }}}}"}}
"""
GIVEN: Final = {
    "text": ("{text: {type: string}}", "inputs.text"),
    "items": ("{items: {type: array}}", "inputs['items']"),
    "unique": ("{items: {type: array}}", "inputs['items'] | unique | length"),
    "sorted": ("{items: {type: array}}", "inputs['items'] | sort | first"),
    "joined": ("{items: {type: array}}", "inputs['items'] | join(', ') | length"),
    "grouped": ("{items: {type: array}}", "inputs['items'] | tojson | from_json | length"),
    "fields": ("{fields: {type: object}}", "inputs.fields | length"),
    "codes": (
        '{codes: {schema: {type: array, items: {type: string, pattern: "^([a-z]+)+$"}}}}',
        "inputs.codes | length",
    ),
    "names": (
        '{fields: {schema: {type: object, patternProperties: {"^(a|a)*$": {type: string}}}}}',
        "inputs.fields | length",
    ),
    "replaced": (
        "{text: {type: string}, pattern: {type: string}}",
        "inputs.text | regex_replace(inputs.pattern, '') | length",
    ),
}
"""Flow → its inputs, and what its function is given."""
FLOWS: Final = {
    "ask": """flowengine: v1
name: ask
inputs: {text: {type: string}}
nodes: {ask: {model: offline, prompt: "{{ inputs.text }}"}}
outputs: {out: "{{ nodes.ask.output }}"}
""",
    "file": """flowengine: v1
name: file
inputs: {file: {type: file}}
nodes: {ask: {model: offline, prompt: Look., attach: ["{{ inputs.file }}"]}}
outputs: {out: "{{ nodes.ask.output }}"}
""",
    "chosen": """flowengine: v1
name: chosen
inputs: {text: {type: string}}
nodes:
  choose: {type: condition, if: "(inputs.text | regex_replace('^(a|a)*$', '') | length) > 1", then: give, else: give}
  give: {type: function, call: "steps:give", with: {value: 1}}
outputs: {out: "{{ nodes.give.output }}"}
""",
    "each": """flowengine: v1
name: each
inputs: {items: {type: array}}
nodes:
  each:
    type: map
    over: "inputs['items']"
    nodes: {one: {type: function, call: "steps:give", with: {value: "{{ item }}"}}}
outputs: {out: "{{ nodes.each.output | length }}"}
""",
    "busy": """flowengine: v1
name: busy
inputs: {seconds: {type: number}}
nodes: {work: {type: function, call: "steps:work", with: {seconds: "{{ inputs.seconds }}"}}}
""",
}
STEPS: Final = """import time

async def give(value):
    return value

async def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
"""
PROJECT: Final = """allow_calls = ["steps"]
[[webhooks]]
path = "in"
flow = "text"
signature = "github"
secret_env = "HOOK_SECRET"
when = "(body.text | regex_replace('^(a|a)*$', '') | length) > 0"
inputs = {text = "{{ body.text }}"}
"""
MOST: Final = 1.5 * LIMIT
"""Tests share the machine with others, which takes each more work than alone."""
WORD: Final = "a-secret-of-sixteen"
COLLIDING: Final = 2**61 - 1
"""Of each multiple of it Python's hash is the same."""


def fill(item: bytes, values: int = MAX_VALUES - 10) -> bytes:
    """A list of the item, of as many values as a body may hold."""
    each = 1 + sum(item.count(sign) for sign in (b",", b"[", b"{"))
    return b"[" + b",".join([item] * min(values // each, 3_900_000 // (len(item) + 1))) + b"]"


LISTS: Final[Mapping[str, bytes]] = {
    "lists": fill(b"[]"),
    "objects": fill(b'{"a":1}'),
    "numbers": fill(b"0.123456789012"),
    "texts": fill(b'"' + b"a" * 40 + b'!"'),
    "numbers of one hash": b"[" + b",".join(b"%d" % (COLLIDING * each) for each in range(MAX_VALUES - 10)) + b"]",
    "levels": b"[" * 90 + b"]" * 90,
    "a text": b'["' + b"a" * 3_900_000 + b'"]',
    "escapes": b'["' + b"\\u0041" * 640_000 + b'"]',
    "too many": b"[" + b"[]," * 1_300_000 + b"[]]",
    "too deep": b"[" * 1_900_000 + b"]" * 1_900_000,
}


class Attacked(NamedTuple):
    client: httpx.Client
    holds: list[LoopHold]

    def send(self, path: str, body: bytes, status: Sequence[int], **headers: str) -> httpx.Response:
        """Post a body; nobody else may have to wait for it."""
        sent = {"content-type": "application/json", **headers}
        return self._ask(path, lambda: self.client.post(path, content=body, headers=sent), status)

    def read(self, path: str, status: Sequence[int], **parameters: str) -> httpx.Response:
        """Get what is there; nobody else may have to wait for it."""
        return self._ask(path, lambda: self.client.get(path, params=parameters), status)

    def _ask(self, path: str, ask: Callable[[], httpx.Response], status: Sequence[int]) -> httpx.Response:
        """One of three tries must hold nobody up: what others do beside only adds."""
        for _ in range(3):
            self.holds.clear()
            answer = ask()
            assert answer.status_code in status, answer.text[:300]
            self.client.get("/healthz")  # After whatever is still done for it.
            worst = max(self.holds, key=lambda hold: hold.cpu_seconds or 0, default=None)
            if worst is None or (worst.cpu_seconds or 0) <= MOST * slowness():
                return answer
        raise AssertionError(f"{path}: {worst}")


def write_flows(folder: Path) -> None:
    for name, text in FLOWS.items():
        (folder / f"{name}.yaml").write_text(text)
    for name, (inputs, expression) in GIVEN.items():
        (folder / f"{name}.yaml").write_text(GIVE.format(name=name, inputs=inputs, expression=expression))
    (folder / "flowengine.toml").write_text(PROJECT)
    (folder / "steps.py").write_text(STEPS)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("held")
    write_flows(folder)
    holds: list[LoopHold] = []
    with closing(open_store(f"sqlite:///{folder / 'runs.db'}", "process")) as store:
        app = make_serving_app(
            store,
            [folder],
            environ={"HOOK_SECRET": WORD},
            project=find_project(folder / "text.yaml"),
            grace=0,
            needs_key=False,
        )
        with (
            served(app, token="none", end=app.state.serving.service.drain, holds=holds) as server,
            httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS, timeout=120) as client,
        ):
            for name in ("text", "ask", "codes"):  # What is imported at the first request is no attack.
                client.post(f"/flows/{name}", json={"codes": ["a"]} if name == "codes" else {"text": "a"})
            yield Attacked(client, holds)


def test_what_holds_others_up_is_seen(attacked: Attacked) -> None:
    """The attempts would notice what they look for."""
    body = json.dumps({"seconds": 3 * MOST * slowness()}).encode()
    with pytest.raises(AssertionError, match=r"^/flows/busy: "):
        attacked.send("/flows/busy", body, (200,))


@pytest.mark.parametrize("name", ["text", "items", "unique", "codes"])
def test_large_bodies_hold_nobody_up(attacked: Attacked, name: str) -> None:
    field = {"text": b"text", "codes": b"codes"}.get(name, b"items")
    for body in LISTS.values():
        attacked.send(f"/flows/{name}", b'{"%s":%s}' % (field, body), (200, 400, 413, 422, 500))


def test_costly_patterns_and_many_items_hold_nobody_up(attacked: Attacked) -> None:
    letters = "a" * 40 + "!"
    many = ["a" * (each % 50) for each in range(MAX_VALUES - 10)]
    cases: dict[str, list[dict[str, object]]] = {
        "names": [{"fields": {f"{letters}{each}": "x" for each in range(count)}} for count in (200, 2_000)],
        "fields": [{"fields": {str(each): "x" for each in range(MAX_VALUES - 10)}}],
        "codes": [{"codes": [letters] * count} for count in (200, 2_000)],
        "replaced": [
            {"text": letters, "pattern": "^(a|a)*$"},
            {"text": "a" * 100_000 + "!", "pattern": "(a*)*b"},
        ],
        "chosen": [{"text": letters}, {"text": "a" * 1_000_000 + "!"}],
        "sorted": [{"items": many}],
        "joined": [{"items": many}],
        "grouped": [{"items": many}],
        "each": [{"items": list(range(1_000))}],
        "ask": [{"text": "a b " * 900_000}],
    }
    for name, bodies in cases.items():
        for body in bodies:
            attacked.send(f"/flows/{name}", json.dumps(body).encode(), (200, 422, 500))


def test_uploads_and_chats_hold_nobody_up(attacked: Attacked) -> None:
    for kind, content in (("text/plain", b""), ("application/pdf", b"%PDF-1.7\n"), ("image/png", b"\x89PNG\r\n\x1a\n")):
        coded = base64.b64encode(content + b"a" * 2_900_000)
        attacked.send("/flows/file", b'{"file":"data:%s;base64,%s"}' % (kind.encode(), coded), (200, 422, 500))
    attacked.send("/flows/file", b'{"file":"data:text/plain,%s"}' % (b"%41" * 1_250_000), (200, 422, 500))
    said = [{"role": "user", "content": "a"}] * 16_000
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 16_000}]
    for messages in (said, parts, [{"role": "user", "content": "a b " * 900_000}]):
        body = {"model": "ask", "messages": messages}
        attacked.send("/v1/chat/completions", json.dumps(body).encode(), (200, 400, 413, 422))
    for given in (said, "a b " * 900_000):
        attacked.send("/v1/responses", json.dumps({"model": "ask", "input": given}).encode(), (200, 400, 413, 422))


def test_webhooks_hold_nobody_up(attacked: Attacked) -> None:
    bodies = {
        b'{"text":"' + b"a" * 250_000 + b'!"}': "application/json",
        b'{"text":"' + b"a" * 40 + b'!"}': "application/json",
        b'{"text":' + fill(b"[]", 100_000) + b"}": "application/json",
        b"payload=" + b"%22" * 80_000: "application/x-www-form-urlencoded",
    }
    for body, kind in bodies.items():
        signature = f"sha256={hmac.new(WORD.encode(), body, hashlib.sha256).hexdigest()}"
        headers = {"content-type": kind, "x-hub-signature-256": signature}
        attacked.send("/hooks/in", body, (202, 200, 400, 413, 422), **headers)


def test_streams_and_tools_of_others_protocols_hold_nobody_up(attacked: Attacked) -> None:
    many: list[object] = [{"id": "1", "role": "user", "content": "a", "parts": [{"type": "text", "text": "a"}]}] * 6_000
    long: list[object] = [{"id": "1", "role": "user", "content": "a b " * 900_000, "parts": []}]
    for messages in (many, long):
        said: dict[str, object] = {
            "threadId": "t",
            "runId": "r",
            "messages": messages,
            "tools": [],
            "context": [],
            "state": {},
        }
        for path in ("/ag-ui/text", "/ai-sdk/text"):
            attacked.send(path, json.dumps({"id": "t", **said}).encode(), (200, 400, 404, 409, 413, 422))
    for body in LISTS.values():
        for path in ("/ag-ui/text", "/ai-sdk/text"):
            attacked.send(path, b'{"messages":%s}' % body, (200, 400, 404, 409, 413, 422))
        call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"items","arguments":{"items":%s}}}'
        answers = {"accept": "application/json, text/event-stream"}
        attacked.send("/mcp", call % body, (200, 400, 404, 413, 422), **answers)


@pytest.fixture(scope="module")
def watched_ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("ui")
    write_flows(folder)
    holds: list[LoopHold] = []
    with (
        closing(open_store(f"sqlite:///{folder / 'runs.db'}", "process")) as store,
        served(make_app(store, [folder], durability="process"), holds=holds) as server,
    ):
        for name in ("text", "codes"):
            server.client.post(
                "/api/runs", json={"flow": name, "inputs": {"text": "a"} if name == "text" else {"codes": []}}
            )
        for path in ("/api/runs", "/", "/flows", "/api/openapi.json"):
            server.client.get(path)
        yield Attacked(server.client, holds)


def test_what_is_started_at_the_pages_holds_nobody_up(watched_ui: Attacked) -> None:
    for field, name in (("text", "text"), ("items", "items"), ("codes", "codes")):
        for body in LISTS.values():
            start = b'{"flow":"%s","inputs":{"%s":%s}}' % (name.encode(), field.encode(), body)
            begun = watched_ui.send("/api/runs", start, (201, 400, 413, 422))
            if begun.status_code == 201:
                for path in ("/api/runs/{}", "/runs/{}"):
                    watched_ui.read(path.format(begun.json()["run_id"]), (200,))


def test_searches_and_pages_hold_nobody_up(watched_ui: Attacked) -> None:
    words = ["a" * 7_000, '"' * 3_000, "a* " * 2_000, "(a OR " * 1_000, "é" * 1_500, "%" * 3_000]
    for each in words:
        for path in ("/api/runs", "/"):
            for name in ("q", "flow", "label", "mark", "session", "since", "page"):
                watched_ui.read(path, (200, 400, 404, 414, 422, 431), **{name: each})
