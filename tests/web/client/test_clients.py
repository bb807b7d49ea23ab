"""Calling flows from Python: of a server over HTTP, and by a PostgreSQL store without one."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest

from flowengine.client import AsyncClient, CalledRun, Client, ClientError, RunProgress
from flowengine.errors import RunError
from flowengine.journal.postgres.store import PostgresStore
from flowengine.web.client.server_backend import ServerBackend, _read_progress
from tests.support.chat_server import ChatServer, chat_server
from tests.support.postgres import empty_database
from tests.web.service.test_flow_service import drain

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    samples = [ROOT / "flows" / f"{name}.yaml" for name in ("support_triage", "release_approval")]
    with chat_server(tmp_path_factory.mktemp("client"), samples) as found:
        yield found


@pytest.fixture
def client(server: ChatServer) -> Iterator[Client]:
    with Client(server.url, key=server.ann) as found:
        yield found


def test_a_run_is_started_and_waited_for(client: Client) -> None:
    run = client.run("echo", {"message": "hello \u2028 \ud83d"}, labels={"team": "a", "env": "test"})
    assert run.raise_for_status().outputs["reply"].startswith("hello \u2028")
    listed = client.list_runs(flow="echo", labels={"team": "a", "env": "test"})
    assert [each.run_id for each in listed] == [run.run_id]
    assert client.get(run.run_id) == run


def test_a_start_that_is_repeated_with_its_key_finds_the_run(client: Client) -> None:
    first = client.start("echo", {"message": "once"}, key="k1")
    assert client.start("echo", {"message": "once"}, key="k1").run_id == first.run_id
    assert client.run("echo", {"message": "once"}).run_id != first.run_id
    with pytest.raises(ClientError, match="other inputs") as refused:
        client.start("echo", {"message": "twice"}, key="k1")
    assert refused.value.status == 422


@pytest.mark.parametrize("text", ["山田 é", " spaced ", 'a "quoted"', "UTF-8''%41", "50%25"])
def test_names_of_sessions_keys_and_labels_arrive_whatever_letters_they_have(
    client: Client, server: ChatServer, text: str
) -> None:
    begun = client.start("echo", {"message": "x"}, key=text, session=text, labels={"team": text})
    assert [each.run_id for each in client.list_runs(labels={"team": text})] == [begun.run_id]
    if text in ("山田 é", "50%25"):  # Who knows no RFC 8187 sends the letters themselves.
        sent = {"idempotency-key": text, "flowengine-session": text, "authorization": f"Bearer {server.ann}"}
        raw = [(name, value.encode()) for name, value in {**sent, "prefer": "respond-async"}.items()]
        again = httpx.post(f"{server.url}/flows/echo", json={"message": "x"}, headers=raw, timeout=30)
        assert again.json()["run_id"] == begun.run_id


@pytest.mark.parametrize("address", ["http://[", "https://a:word", "http://"])
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(ClientError, match=r"one such as http://127\.0\.0\.1:8000 is expected") as refused:
        Client(address)
    assert "word" not in str(refused.value)


def test_text_that_cannot_be_sent_is_refused(client: Client) -> None:
    for session in ("\ud83d", "a\0b"):
        with pytest.raises(ClientError, match=r"half of a surrogate pair|1 to 200 characters"):
            client.start("echo", {"message": "x"}, session=session)
    with pytest.raises(ClientError, match="what is sent cannot be written as JSON: Out of range float values"):
        client.start("echo", {"message": float("nan")})


def test_a_run_is_followed_to_its_end(client: Client) -> None:
    told = list(client.follow(client.start("poet", {"message": "Bees fly."}).run_id))
    states = [(each.node, each.state) for each in told if each.state]
    assert ("plan", "succeeded") in states
    assert told[-1].run is not None
    assert told[-1].run.outputs["reply"].startswith("Bees fly.")


def test_a_question_is_answered_and_the_run_goes_on(client: Client) -> None:
    run = client.run("ship", {"message": "v1"})
    assert run.status == "waiting"
    (question,) = run.questions
    assert (question.message, list(question.choices)) == ("Ship v1?", ["ship it", "hold"])
    with pytest.raises(ClientError, match="did you mean 'ship it'"):
        client.answer(run.run_id, "ship")
    client.answer(run.run_id, "ship it", question=question.name, comment="fine")
    assert client.wait(run.run_id).outputs == {"reply": "shipped v1"}


def test_who_waits_no_longer_than_told_leaves_the_run_as_it_is(client: Client) -> None:
    run = client.start("slow", {"message": "x"})
    with pytest.raises(TimeoutError, match=f"run {run.run_id} has neither ended nor asked anybody after 0.05 s"):
        client.wait(run.run_id, timeout=0.05)
    assert not client.get(run.run_id).is_settled
    client.cancel(run.run_id)
    assert client.wait(run.run_id, timeout=60).status == "cancelled"


def test_a_run_is_cancelled(client: Client) -> None:
    run = client.start("slow", {"message": "x"})
    with_events = client.follow(run.run_id)
    assert next(with_events) == RunProgress("begin", "running")
    client.cancel(run.run_id)
    last = list(with_events)[-1]
    assert last.run is not None
    assert last.run.status == "cancelled"


def test_a_run_that_fails_says_where(client: Client) -> None:
    run = client.run("fail", {"message": "x"})
    assert (run.status, run.failed_node) == ("failed", "break")
    with pytest.raises(RunError, match=r"node 'break': .*no such thing"):
        run.raise_for_status()


def test_what_the_server_refuses_is_told(client: Client, server: ChatServer) -> None:
    with pytest.raises(ClientError, match="did you mean 'echo'") as refused:
        client.start("ecko", {})
    assert refused.value.status == 404
    with pytest.raises(ClientError, match="missing input 'message'"):
        client.start("echo", {})
    with pytest.raises(ClientError, match="no run 'nope' of yours"):
        client.get("nope")
    with pytest.raises(ClientError, match="is no run's id"):
        client.cancel("../flows")
    with Client(server.url, key="nonsense") as stranger, pytest.raises(ClientError) as unknown:
        stranger.list_runs()
    assert unknown.value.status == 401


def test_leaving_a_run_that_is_followed_lets_it_go_on(client: Client) -> None:
    run = client.start("slow", {"message": "x"})
    following = client.follow(run.run_id)
    next(following)
    following.close()
    assert client.get(run.run_id).status == "running"
    client.cancel(run.run_id)


def test_a_client_ends_while_a_run_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow(backend: ServerBackend, run_id: str) -> AsyncGenerator[RunProgress]:
        yield RunProgress("a", "running")
        await anyio.sleep_forever()

    monkeypatch.setattr(ServerBackend, "follow", follow)
    ended = threading.Event()

    def use() -> None:
        with Client("http://127.0.0.1:9") as client:
            following.append(client.follow("r1"))
            assert next(following[0]).node == "a"
        ended.set()

    following: list[Any] = []
    threading.Thread(target=use, daemon=True).start()
    assert ended.wait(20), "the client waits for the end of the run"
    with pytest.raises(ClientError, match="closed before run r1 was followed to its end"):
        next(following[0])


@pytest.mark.parametrize("questions", [[{"message": "Ship it?"}], ["ship"], [None], {"a": 1}, 5])
def test_questions_of_another_form_are_no_answer_of_ours(monkeypatch: pytest.MonkeyPatch, questions: Any) -> None:
    async def ask(backend: ServerBackend, *given: Any, **named: Any) -> Any:
        return {"run_id": "r1", "questions": questions}

    monkeypatch.setattr(ServerBackend, "_ask", ask)
    with Client("http://127.0.0.1:9") as client, pytest.raises(ClientError, match="is not that of `flowengine serve`"):
        client.get("r1")


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_many_runs_go_on_at_once(server: ChatServer) -> None:
    found: dict[str, str] = {}

    async with AsyncClient(server.url, key=server.ann) as client:

        async def call(text: str) -> None:
            found[text] = (await client.run("echo", {"message": text})).outputs["reply"]

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(call, f"n{number}")
    assert found == {f"n{number}": f"n{number}!" for number in range(10)}


def test_a_key_is_in_no_message_and_no_repr(server: ChatServer) -> None:
    client = Client("http://ann:hunter2@127.0.0.1:9", key="fe_secret")
    assert "secret" not in repr(client)
    assert "hunter2" not in repr(client)
    with pytest.raises(ClientError) as broken, Client("http://127.0.0.1:9", key="fe_\r\nX-Evil: 1"):
        pass
    assert "Evil" not in str(broken.value)


def test_the_page_runs_as_it_stands(server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "flowengine/docs/client.md").read_text("utf-8").replace("http://127.0.0.1:8000", server.url)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "client.md", "exec"), names)
    assert "charged twice" in names["triage"](server.ann, "I was charged twice")
    anyio.run(names["publish"], server.ann)
    assert "announce succeeded" in capsys.readouterr().out


def test_one_that_is_not_open_and_an_address_that_is_none_are_refused() -> None:
    with pytest.raises(ClientError, match="open the client first"):
        Client("http://127.0.0.1:9").get("x")
    with pytest.raises(ClientError, match="an address begins with"):
        Client("sqlite:///runs.db")


def test_a_client_that_cannot_be_opened_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(backend: ServerBackend) -> None:
        raise ClientError("not here")

    monkeypatch.setattr(ServerBackend, "connect", refuse)
    before = threading.enumerate()
    with pytest.raises(ClientError, match="not here"), Client("http://127.0.0.1:9"):
        pass
    assert threading.enumerate() == before, "a thread that is left keeps the program from ending"


def test_a_store_is_called_without_the_libraries_of_a_server() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import flowengine.web.client.store_backend, sys; sys.exit('starlette' in sys.modules)"],
        check=False,
    )
    assert found.returncode == 0


def test_a_server_that_comes_back_is_asked_again() -> None:
    """The first connection is cut before an answer; the second one is answered."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for number in range(2):
                connection, _ = listening.accept()
                with connection:
                    asked.append(connection.recv(65_536))
                    if number:
                        body = b'{"run_id": "r1", "flow": "f", "status": "succeeded", "outputs": {"a": 1}}'
                        head = f"HTTP/1.1 202 Accepted\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                        connection.sendall(head.encode() + body)

        thread = threading.Thread(target=serve)
        thread.start()
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            assert client.run("f").outputs == {"a": 1}
        thread.join()
    keys = [next(line for line in each.split(b"\r\n") if line.startswith(b"idempotency-key")) for each in asked]
    assert keys[0] == keys[1], "a repeated start is the same start"


def test_a_server_that_says_nothing_is_not_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.web.client.server_backend._SILENCE", 0.05)
    monkeypatch.setattr("flowengine.web.client.server_backend.pause_before", lambda tried: 0.0)
    listening = socket.create_server(("127.0.0.1", 0), backlog=20)
    with listening, Client(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
        with pytest.raises(ClientError, match=r"broke: it was silent for 0\.05 s"):
            client.get("r1")
        with pytest.raises(ClientError, match="it was silent"):
            next(client.follow("r1"))


@pytest.mark.parametrize("status", ["gone", None, 1e400, 404])
def test_an_error_on_the_way_is_told_whatever_its_status_is(status: Any) -> None:
    with pytest.raises(ClientError, match="no such run") as refused:
        _read_progress("error", json.dumps({"status": status, "detail": "no such run"}))
    assert refused.value.status == (404 if status == 404 else 500)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("has_news", [True, False])
async def test_a_run_is_awaited_for_as_long_as_it_tells_something_new(
    monkeypatch: pytest.MonkeyPatch, has_news: bool
) -> None:
    connections = 0

    async def follow(run_id: str) -> AsyncGenerator[RunProgress]:
        nonlocal connections
        connections += 1
        for node in range(connections if has_news else 1):
            yield RunProgress(f"n{node}", "succeeded")
        if connections == 12:
            yield RunProgress(run=CalledRun(run_id, "f", "succeeded", {}))
        raise ClientError("the connection broke")

    client = AsyncClient("http://127.0.0.1:1")
    monkeypatch.setattr(client, "follow", follow)
    monkeypatch.setattr("flowengine.web.client.clients.pause_before", lambda tried: 0.0)
    with nullcontext() if has_news else pytest.raises(ClientError, match="broke"):
        assert (await client.wait("r1")).status == "succeeded"
    assert connections == (12 if has_news else 5)


def test_a_request_that_can_never_be_sent_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    monkeypatch.setattr("flowengine.web.client.server_backend.pause_before", lambda tried: tries.append(tried) or 0.0)
    with Client("http://127.0.0.1:1/?a b") as client, pytest.raises(ClientError, match="cannot be sent"):
        client.start("f")
    assert len(tries) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_store_on_postgresql_needs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hello.yaml").write_text(
        "flowengine: v1\nname: hello\ninputs: {who: {type: string}}\nnodes:\n"
        '  ask: {type: approval, message: "Greet {{ inputs.who }}?", routes: {"yes": {}, "no": {}}}\n'
        'outputs: {said: "{{ nodes.ask.output.choice }} {{ inputs.who }} by {{ nodes.ask.output.by }}"}\n'
    )
    monkeypatch.chdir(tmp_path)
    address = empty_database()
    with closing(PostgresStore(address, "full")) as store:
        async with AsyncClient(address, flows=["hello.yaml"], by="ann") as client:
            assert "s3cret-word" not in repr(client)
            run = await client.start("hello", {"who": "Ben"}, key="k")
            assert (await client.start("hello", {"who": "Ben"}, key="k")).run_id == run.run_id
            await drain(store)
            waiting = await client.wait(run.run_id)
            assert [each.message for each in waiting.questions] == ["Greet Ben?"]
            await client.answer(run.run_id, "yes")
            await drain(store)
            assert (await client.wait(run.run_id)).outputs == {"said": "yes Ben by ann"}
            assert [each.run_id for each in await client.list_runs(flow="hello")] == [run.run_id]


def test_what_is_no_text_names_no_flow() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(ClientError, match="a name is a text, not NoneType"):
        client.run(cast(Any, None), {})
