"""Webhooks in, with the signatures of their senders; call-backs out, signed, tried again and written down."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from flowengine.core.file_values import FileRules
from flowengine.core.secret_values import Secrets
from flowengine.engine.ports import JournalStore
from flowengine.errors import DefinitionError, FlowNotFoundError, InputError, RunError
from flowengine.flowfile.project.project import Project, project_of
from flowengine.flowfile.project.webhook_tables import WebhookRule, read_webhooks
from flowengine.journal.stores import open_store
from flowengine.nodes.http_request import Answer, HttpRequest
from flowengine.nodes.http_sender import HttpSender, SentAnswer
from flowengine.runs import RunRecord
from flowengine.web.hooks import callbacks
from flowengine.web.hooks.callbacks import SECRET, CallbackSender
from flowengine.web.hooks.signatures import SignatureError, read_secrets, sign_message, verify
from flowengine.web.service.flow_service import FlowService
from flowengine.web.serving_app import make_serving_app
from tests.support.counted_flows import Counted
from tests.support.plain_http import NO_TLS
from tests.support.ui_server import served

WORD = "a-secret-of-sixteen"
STANDARD = f"whsec_{b64encode(WORD.encode()).decode()}"
BODY = b'{"issue": {"title": "It breaks", "number": 7}}'
NOW = 1_800_000_000


def rule(signature: Any, **more: Any) -> WebhookRule:
    return WebhookRule("in", "quick", signature, "WORD", **more)


def digest(signed: bytes) -> str:
    return hmac.new(WORD.encode(), signed, hashlib.sha256).hexdigest()


def headers_of(signature: str, body: bytes = BODY, at: int = NOW) -> dict[str, str]:
    """What the sender sends."""
    match signature:
        case "github":
            return {"x-hub-signature-256": f"sha256={digest(body)}"}
        case "stripe":
            return {"stripe-signature": f"t={at},v0=00,v1={digest(f'{at}.'.encode() + body)}"}
        case "slack":
            signed = f"v0:{at}:".encode() + body
            return {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={digest(signed)}"}
        case "standard":
            said = sign_message([WORD.encode()], "msg_1", at, body)
            return {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": f"v1,AAAA {said}"}
        case _:
            return {"x-webhook-secret": WORD}


KINDS = ["github", "stripe", "slack", "standard", "secret"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_proved_by_its_signature(kind: str):
    secrets = [b"an-older-secret-word", WORD.encode()]
    first = verify(rule(kind), secrets, headers_of(kind), BODY, NOW)
    assert verify(rule(kind), secrets, headers_of(kind), BODY, NOW + 60) == first
    for wrong in ({}, {name: f"{value}0" for name, value in headers_of(kind).items()}):
        with pytest.raises(SignatureError):
            verify(rule(kind), secrets, wrong, BODY, NOW)
    with pytest.raises(SignatureError):
        verify(rule(kind), [b"another-secret-word"], headers_of(kind), BODY, NOW)
    if kind != "secret":
        with pytest.raises(SignatureError):
            verify(rule(kind), secrets, headers_of(kind), BODY + b" ", NOW)
    if kind in ("stripe", "slack", "standard"):
        for later in (301, -301):
            with pytest.raises(SignatureError, match="more than 300 s"):
                verify(rule(kind), secrets, headers_of(kind), BODY, NOW + later)


def test_a_secret_is_long_enough_and_of_its_form():
    assert read_secrets(f"{STANDARD} {STANDARD}", standard=True) == [WORD.encode()] * 2
    for wrong, standard in (("", False), ("short", False), ("whsec_%%%", True), ("whsec_YQ==", True)):
        with pytest.raises(DefinitionError) as refused:
            read_secrets(wrong, standard=standard)
        assert not wrong or wrong not in str(refused.value)


def test_tables_of_webhooks_are_checked_with_the_nearest_name(tmp_path: Path):
    (tmp_path / "flowengine.toml").write_text(
        'allow_callbacks = ["no-address"]\n'
        '[[webhooks]]\npath = "a"\nflow = "f"\nsignature = "github"\nsecret_env = "W"\n'
        '[[webhooks]]\npath = "a"\nflow = "f"\nsignature = "slack"\nsecret_env = "W"\n'
        '[[webhooks]]\npath = "../x"\nflow = "f"\nsignature = "githup"\nsecret_env = "s3cret!"\nreplay_window = "1y"\n'
        '[[webhooks]]\npath = "b"\nflow = "f"\nsignature = "stripe"\nsecret_env = "W"\ninputs = {a = "{{ body. }}"}\n'
        '[[webhooks]]\npth = "c"\nflow = 1\n'
        '[[webhooks]]\npath = "d"\nflow = "f"\nsignature = "slack"\nsecret_env = "W"\nreplay_window = -1\n'
        '[[webhooks]]\npath = "e"\nflow = "f"\nsignature = "slack"\nsecret_env = "W"\nreplay_window = 60\n'
    )
    project, problems = project_of(tmp_path)
    assert [(each.path, each.replay_window) for each in project.webhooks] == [("a", 300.0), ("e", 60)]
    told = "\n".join(f"{each.message}{each.hint}" for each in problems)
    for part in (
        "'no-address' in `allow_callbacks`",
        "number 2: the path 'a' stands twice",
        "'../x' is no path",
        "did you mean 'github'?",
        "never the secret itself",
        "number 3: 'replay_window' is a time like \"5m\"",
        "number 6: 'replay_window' is a time like \"5m\"",
        "number 4: input 'a'",
        "did you mean 'path'?",
        "'flow' is a string",
    ):
        assert part in told
    assert "s3cret" not in told


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JournalStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'runs.db'}")) as opened:
        yield opened


def test_a_webhook_starts_its_flow_once_with_inputs_from_the_body(store: JournalStore, tmp_path: Path):
    table = {"path": "in/issues", "flow": "quick", "signature": "github", "secret_env": "WORD"}
    table |= {"inputs": {"text": "{{ body.issue.title }} #{{ body.issue.number }}"}, "when": "body.issue.number > 5"}
    problems: list[str] = []
    rules = read_webhooks([table], lambda message, hint="", path=(): problems.append(message))
    assert problems == []
    project, counted = Project(tmp_path, webhooks=rules, files=FileRules()), Counted()
    app = make_serving_app(store, counted.flows, environ={"WORD": WORD}, project=project)  # Its runs end before it.
    with (
        served(app, token="none", end=app.state.serving.service.drain) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=NO_TLS) as client,
    ):

        def call(body: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
            said = {"content-type": "application/json", **(headers or headers_of("github", body))}
            return client.post("/hooks/in/issues", content=body, headers=said)

        first, again = call(BODY), call(BODY, {**headers_of("github"), "x-github-delivery": "another"})
        assert (first.status_code, first.json()["is_new"], again.json()["is_new"]) == (202, True, False)
        assert first.json()["run_id"] == again.json()["run_id"]
        assert call(b'{"issue": {"title": "x", "number": 1}}').json() == {"started": False}
        assert call(b'{"issue": {"number": 9}}').status_code == 422
        assert call(b"{").status_code == 400
        assert call(BODY, {"x-hub-signature-256": "sha256=00"}).status_code == 401
        form = b"payload=" + httpx.QueryParams({"p": BODY.decode().replace("7", "8")}).__str__()[2:].encode()
        sent = {**headers_of("github", form), "content-type": "application/x-www-form-urlencoded"}
        assert call(form, sent).status_code == 202
        assert client.post("/hooks/other", content=BODY).status_code == 404
        assert client.get("/flows").status_code == 401
    assert counted.calls == ["It breaks #7", "It breaks #8"]


def test_a_webhook_without_flow_or_secret_keeps_the_server_from_starting(store: JournalStore, tmp_path: Path):
    project = Project(tmp_path, webhooks=(rule("github"),))
    with pytest.raises(DefinitionError, match="the environment has no WORD"):
        make_serving_app(store, Counted().flows, environ={}, project=project)
    other = Project(tmp_path, webhooks=(WebhookRule("in", "quik", "github", "WORD"),))
    with pytest.raises(FlowNotFoundError, match="did you mean 'quick'"):
        make_serving_app(store, Counted().flows, environ={"WORD": WORD}, project=other)


class Receiver:
    """Takes call-backs in the place of the web; `answers` are the next ones."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.got: list[HttpRequest] = []
        self.came = anyio.Event()

    async def send(self, request: HttpRequest, seconds: float | None, /) -> SentAnswer:
        self.got.append(request)
        answer = self.answers.pop(0) if self.answers else 200
        if not self.answers:
            self.came.set()
        if isinstance(answer, Exception):
            raise answer
        return SentAnswer(Answer(answer), request.url, Secrets([]))


def sender(service: FlowService, receiver: Receiver | HttpSender, **more: Any) -> CallbackSender:
    return CallbackSender(service, ["https://shop.example/"], {SECRET: STANDARD}, sender=receiver, **more)


URL = "https://shop.example/told"


@pytest.mark.long
async def test_the_end_and_the_question_of_a_run_are_told_signed_and_once(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service, anyio.create_task_group() as tasks:
        receiver = Receiver(500, RunError("no connection"), 200)
        told = sender(service, receiver, pauses=(0.0, 0.0))
        run = await service.start("ask", {}, around=lambda run_id: told.expecting(URL, run_id))
        tasks.start_soon(told.run)
        await receiver.came.wait()
        receiver.came, receiver.answers = anyio.Event(), [204]
        await service.answer(run.run_id, None, "yes")
        await receiver.came.wait()
        await service.wait(run.run_id)
        tasks.cancel_scope.cancel()
    bodies = [json.loads(each.content) for each in receiver.got]
    assert [each["type"] for each in bodies] == ["run.question"] * 3 + ["run.succeeded"]
    assert bodies[0]["data"]["questions"][0]["choices"] == ["yes", "no"]
    assert len({each.headers["webhook-id"] for each in receiver.got}) == 2
    for each in receiver.got:
        proved = verify(rule("standard"), [WORD.encode()], each.headers, each.content, time.time())
        assert proved == each.headers["webhook-id"]
    question = told.record(run.run_id)[0]
    assert [each["answer"] for each in question["tries"]] == ["500", "no connection", "200"]
    assert question["state"] == "delivered"


async def test_the_end_does_not_wait_for_the_next_try_to_tell_a_question(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service, anyio.create_task_group() as tasks:
        receiver = Receiver(404)
        told = sender(service, receiver, pauses=(7_200.0,))
        run = await service.start("ask", {}, around=lambda run_id: told.expecting(URL, run_id))
        tasks.start_soon(told.run)
        await receiver.came.wait()
        receiver.came = anyio.Event()
        await service.answer(run.run_id, None, "yes")
        with anyio.fail_after(30):
            await receiver.came.wait()
        tasks.cancel_scope.cancel()
    assert [json.loads(each.content)["type"] for each in receiver.got] == ["run.question", "run.succeeded"]
    assert told.record(run.run_id)[0]["state"] == "open"


async def test_what_was_to_be_told_is_told_by_the_next_server(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows, grace=0) as service:
        told = sender(service, Receiver())
        run = await service.start("slow", {}, run_key="a", around=lambda run_id: told.expecting(URL, run_id))
    counted.gate.set()
    async with FlowService(store, counted.flows) as service, anyio.create_task_group() as tasks:
        receiver = Receiver(200)
        told = sender(service, receiver)
        tasks.start_soon(told.run)
        await receiver.came.wait()
        tasks.cancel_scope.cancel()
    assert receiver.got[0].headers["webhook-id"].startswith(run.run_id)


async def test_a_run_that_did_not_begin_is_told_to_nobody(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        told = sender(service, Receiver())
        with pytest.raises(InputError):
            await service.start("quick", {}, run_key="a", around=lambda run_id: told.expecting(URL, run_id))
        assert store.recall("serve.callbacks", "open") is None


async def test_a_run_whose_server_died_before_it_began_is_looked_for_ever_more_rarely_and_for_a_day(
    store: JournalStore, counted: Counted, monkeypatch: pytest.MonkeyPatch
):
    now, looks = [1e9], list[float]()
    monkeypatch.setattr(callbacks, "time", lambda: now[0])
    service = FlowService(store, counted.flows)
    told, record = sender(service, Receiver()), service.record

    async def note_look(run_id: str) -> RunRecord:
        looks.append(now[0] - 1e9)
        return await record(run_id)

    monkeypatch.setattr(service, "record", note_look)
    await anyio.to_thread.run_sync(told._expect, "r", URL)  # pyright: ignore[reportPrivateUsage]
    for later in (0, 1, 2, 3, 6, 86_300, 86_500, 90_000):
        now[0] = 1e9 + later
        await told._send_due()  # pyright: ignore[reportPrivateUsage]
    assert looks == [0, 2, 6, 86_300, 86_500]
    assert store.recall("serve.callbacks", "open") is store.recall("serve.callbacks", "r") is None


async def test_a_run_that_another_server_began_meanwhile_is_told_although_this_one_refuses_it(
    store: JournalStore, counted: Counted
):
    async with FlowService(store, counted.flows) as service:
        told = sender(service, Receiver())
        run = await service.start("quick", {"text": "x"}, run_key="a")
        with pytest.raises(InputError):
            async with told.expecting(URL, run.run_id):
                raise InputError("too many")
        assert list(store.recall("serve.callbacks", "open")) == [run.run_id]


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example.evil.org/told",
        "http://shop.example/told",
        "https://me@shop.example/told",
        "https://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "https://shop.example/\r\nX: y",
        "file:///etc/passwd",
        "https://shop.example/" + "a" * 2_000,
        "",
    ],
)
def test_an_address_that_the_project_does_not_list_is_refused(store: JournalStore, counted: Counted, url: str):
    with pytest.raises(InputError):
        sender(FlowService(store, counted.flows), Receiver()).check(url)


async def test_a_listed_name_that_leads_into_the_network_is_not_asked(store: JournalStore, counted: Counted):
    async def inside(host: str, port: int) -> list[str]:
        return ["10.0.0.7"]

    async with FlowService(store, counted.flows) as service, anyio.create_task_group() as tasks:
        told = sender(service, HttpSender(["https://shop.example/"], {}, inside), pauses=())
        run = await service.start("quick", {"text": "x"}, around=lambda run_id: told.expecting(URL, run_id))
        await service.wait(run.run_id)
        tasks.start_soon(told.run)
        with anyio.fail_after(60):
            while not told.record(run.run_id):  # noqa: ASYNC110 - nobody is told that it was not sent
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    [message] = told.record(run.run_id)
    assert message["state"] == "given up"
    assert "10.0.0.7" in message["tries"][0]["answer"]
