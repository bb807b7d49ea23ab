"""Followers of runs: server-sent events from any position, of any writer, shared by many, at nobody's cost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from flowengine.core.context import NodeResult
from flowengine.engine.events import Event, NodeFinished, NodeStarted, RunFinished, RunStarted, TokenStreamed
from flowengine.errors import RunNotFoundError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.runtime import run_feed
from flowengine.runtime.run_feed import RunFeed
from flowengine.web.api.event_lines import encode_events
from flowengine.web.app import make_app
from flowengine.web.service import run_follower as module
from flowengine.web.service.run_follower import RunFollower
from flowengine.web.service.token_order import join_tokens, merge_tokens
from tests.support.pace import measured_pace
from tests.support.plain_http import NO_TLS
from tests.support.sample_run import START, layered_run, research_run
from tests.support.ui_server import Served, served

OTHER = """
    import sys, time
    from flowengine.journal.sqlite.store import SQLiteStore
    from tests.support.sample_run import layered_run

    first, pause = int(sys.argv[1]), float(sys.argv[2])
    journal = SQLiteStore("runs.db").create("other")
    events = layered_run(100)
    events[0] = events[0]._replace(run_id="other")
    for event in events[:first]:
        journal.append(event)
    journal.commit()
    print("begun", flush=True)
    for number, event in enumerate(events[first:]):
        time.sleep(pause)
        if number == 150 and sys.argv[3:]:
            sys.stdin.readline()
        journal.append(event)
        journal.commit()
"""


@contextmanager
def other_process(first: int = 2, pause: float = 0.01, *until_told: str) -> Generator[subprocess.Popen[str]]:
    """A process that writes the run `other` of 302 events into the store; `until_told`: half of them, and the others
    once it is told to."""
    code, root = textwrap.dedent(OTHER), Path(__file__).parents[3]
    arguments = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{code}", str(first), str(pause)]
    arguments += until_told
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
    assert process.returncode == 0


def messages(response: httpx.Response) -> Iterator[tuple[str | None, Any]]:
    """Id and data of each message."""
    seq = None
    for line in response.iter_lines():
        name, _, rest = line.partition(": ")
        if name == "id":
            seq = rest
        elif name == "data":
            yield seq, json.loads(rest)
            seq = None


def read_watched(server: Served, path: str, **headers: str) -> list[tuple[str | None, Any]]:
    with server.client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        return list(messages(response))


def test_events_are_told_whole_from_the_api_and_short_to_the_pages(server: Served):
    run_id = server.post("/api/runs", {"flow": "shout"}, 201)["run_id"]
    server.until(run_id, "succeeded")
    whole = read_watched(server, f"/api/runs/{run_id}/events")
    assert [seq for seq, _ in whole] == [str(number) for number in range(len(whole))]
    assert [each["type"] for _, each in whole] == [
        "RunStarted",
        "NodeStarted",
        "NodeRecorded",
        "NodeFinished",
        "RunFinished",
    ]
    assert whole[3][1]["result"]["output"] == "HELLO"
    assert [each["seq"] for _, each in whole] == [0, 1, 2, 3, 4]
    short = read_watched(server, f"/runs/{run_id}/events?after=1")
    assert [each["kind"] for _, each in short] == ["start", "told", "finish", "end"]


def test_a_follower_goes_on_after_the_last_event_that_it_has(server: Served):
    run_id = server.post("/api/runs", {"flow": "shout"}, 201)["run_id"]
    server.until(run_id, "succeeded")
    path = f"/api/runs/{run_id}/events"
    assert [seq for seq, _ in read_watched(server, f"{path}?after=2")] == ["2", "3", "4"]
    assert [seq for seq, _ in read_watched(server, f"{path}?after=0", **{"Last-Event-ID": "1"})] == ["2", "3", "4"]
    assert server.client.get(path, headers={"Last-Event-ID": "4"}).status_code == 204
    for wrong in ("x", "-1", "99999999999999", "1.5"):
        assert server.get(f"{path}?after={wrong}", 400)["title"] == "No such position"
    assert "fewer than 7 events" in server.get(f"{path}?after=7", 404)["detail"]
    assert server.get("/api/runs/nobody/events", 404)["title"] == "No such run"


def test_a_run_of_another_process_is_followed_while_it_is_written(server: Served):
    found: list[tuple[str | None, Any]] = []
    with (
        other_process(2, 0.001, "wait") as process,
        server.client.stream("GET", "/runs/other/events?after=1") as response,
    ):
        for message in messages(response):
            found.append(message)
            if message[0] == "100":  # It is told of before the others are written.
                assert process.stdin is not None
                process.stdin.write("go on\n")
                process.stdin.flush()
    assert [seq for seq, _ in found] == [str(number) for number in range(1, 302)]
    assert found[-1][1]["kind"] == "end"


@pytest.mark.long
def test_twenty_followers_share_one_look_at_the_run(server: Served, monkeypatch: pytest.MonkeyPatch):
    looks: list[str] = []
    events = RunFollower.events

    async def counted(follower: RunFollower, run_id: str, after: int = 0, until: int | None = None) -> Any:
        looks.append(run_id)
        return await events(follower, run_id, after, until)

    begun = time.monotonic()
    found: list[list[Any]] = [[] for _ in range(20)]

    def follow(number: int) -> None:
        with server.client.stream("GET", "/runs/other/events?after=1") as response:
            found[number] = [seq for seq, _ in messages(response)]

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(20)]
    with other_process():
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        monkeypatch.setattr(RunFollower, "events", counted)
        for thread in threads:
            thread.join()
    assert all(each == [str(number) for number in range(1, 302)] for each in found)
    assert len(looks) < (time.monotonic() - begun) / module._FIRST_LOOK * 1.5 + 40


def test_whatever_agents_write_is_told_while_they_write(server: Served):
    run_id = server.post("/api/runs", {"flow": "write"}, 201)["run_id"]
    with server.client.stream("GET", f"/runs/{run_id}/events") as response:
        kinds = [(seq, each["kind"]) for seq, each in messages(response)]
    assert kinds[-1][1] == "end"
    assert all(seq is None for seq, kind in kinds if kind == "token")


def test_a_client_that_stops_reading_is_dropped_and_the_others_are_not_held_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("flowengine.web.api.sse._PATIENCE", 3.0)
    monkeypatch.setattr(run_feed, "_MOST_BYTES", 200_000)
    store = SQLiteStore("runs.db", "process")
    journal = store.create("large")
    journal.append(RunStarted("large", "large", START, {}, {}, {}))
    app = make_app("sqlite:///runs.db", durability="process")
    with served(app) as server:
        deaf = socket.create_connection(("127.0.0.1", server.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = (
            f"GET /api/runs/large/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        )
        deaf.sendall(request.encode())
        heard: list[Any] = []

        def listen() -> None:
            with server.client.stream("GET", "/api/runs/large/events") as response:
                heard.extend(messages(response))

        listener = threading.Thread(target=listen)
        listener.start()
        following: RunFollower = app.state.parts.acts.follower
        deadline = time.monotonic() + 30
        while following.followers < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for number in range(400):
            journal.append(NodeFinished(f"n{number}", START, NodeResult("x" * 20_000)))
            journal.commit()
            time.sleep(0.002)
        deadline = time.monotonic() + 60
        while following.followers > 1:
            assert time.monotonic() < deadline, "it was never dropped"
            time.sleep(0.01)
        assert listener.is_alive()
        journal.append(RunFinished(START, "succeeded"))
        journal.commit()
        listener.join(30)
        assert len(heard) == 402
        deaf.close()
    anyio.run(journal.close)
    store.close()


def test_the_end_of_the_server_lets_go_of_its_followers(folder: Path):
    app = make_app("sqlite:///runs.db", ["sleep.yaml"], durability="process")
    found: list[Any] = []
    with measured_pace() as pace, served(app) as server:
        run_id = server.post("/api/runs", {"flow": "sleep"}, 201)["run_id"]
        client = httpx.Client(base_url=server.url, headers=server.client.headers, trust_env=False, verify=NO_TLS)

        def listen() -> None:
            with client.stream("GET", f"/runs/{run_id}/events") as response:
                found.extend(messages(response))

        thread = threading.Thread(target=listen)
        thread.start()
        while app.state.parts.acts.follower.followers == 0:
            time.sleep(0.01)
        begun = time.monotonic()
    thread.join(60)
    assert time.monotonic() - begun < 4 * pace.factor()
    assert found[0][1]["kind"] == "begin"
    client.close()


# --- without a server


def begun(store: MemoryStore) -> Any:
    journal = store.create("r")
    journal.append(RunStarted("r", "f", START, {}, {}, {}))
    return journal


def following(store: MemoryStore) -> RunFollower:
    """A follower of runs that other processes drive."""
    return RunFollower(store, lambda run_id: None, lambda run_id: False, retells=True)


async def test_a_run_that_is_removed_lets_go_of_its_followers():
    store = MemoryStore()
    journal, follower = begun(store), following(store)
    async with anyio.create_task_group() as tasks:
        follower.begin(tasks)
        with anyio.fail_after(60):
            batches = follower.follow("r", 0, stay=True)
            assert [seq for seq, _ in await anext(batches)] == [0]
            tasks.start_soon(_remove_soon, store, journal)
            with pytest.raises(RunNotFoundError):
                await anext(batches)
        assert follower.followers == 0
        tasks.cancel_scope.cancel()


async def _remove_soon(store: MemoryStore, journal: Any) -> None:
    await anyio.sleep(0.15)
    await journal.close()
    store.remove("r")


async def test_a_run_that_waits_is_followed_on_after_its_answer():
    store = MemoryStore()
    journal = store.create("r")
    events = research_run()
    for event in events:
        journal.append(event)
    follower = following(store)
    async with anyio.create_task_group() as tasks:
        follower.begin(tasks)
        tasks.start_soon(_go_on_soon, journal)
        with anyio.fail_after(60):
            found = [item async for batch in follower.follow("r", len(events), stay=True) for item in batch]
    assert [(seq, type(event)) for seq, event in found] == [(len(events), RunFinished)]


async def _go_on_soon(journal: Any) -> None:
    await anyio.sleep(0.15)
    journal.append(RunFinished(START + 100, "succeeded"))


async def test_who_comes_late_is_told_from_its_beginning_what_is_being_written():
    store, feed = MemoryStore(), RunFeed(retells=True)
    journal = begun(store)
    journal.append(NodeStarted("write", START))
    feed.begin_at(2)
    follower = RunFollower(store, lambda run_id: feed, lambda run_id: True, retells=True)
    texts = ["Bees ", "fly", "."]
    feed.hear_token(TokenStreamed("write", START, texts[0], True))
    feed.hear_token(TokenStreamed("write", START, texts[1]))
    async with aclosing(follower.follow("r", 0, stay=True)) as batches:
        found = [item for _ in range(2) for item in await anext(batches)]
        feed.hear_token(TokenStreamed("write", START, texts[2]))
        found += await anext(batches)
    assert [seq for seq, _ in found] == [0, 1, None, None]
    assert [(each.text, each.begins) for _, each in found if isinstance(each, TokenStreamed)] == [
        ("Bees fly", True),
        (".", False),
    ]


async def test_what_is_kept_for_followers_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_feed, "_MOST_BYTES", 100_000)
    feed = RunFeed()
    with feed.follow() as place:
        for number in range(100):
            feed.hear(NodeFinished(f"n{number}", START, NodeResult({"text": ["x" * 9_000]})))
        assert sum(len(str(event)) for _, event in feed._items) < 100_000
        assert [batch async for batch in feed.read(0, place)] == []  # It reads from the store.
        feed.hear(NodeFinished("large", START, NodeResult("x" * 1_000_000)))
        assert [seq for seq, _ in feed._items] == [100]


def test_text_stands_between_the_events_by_time_and_its_pieces_are_joined():
    events: list[Event] = [NodeStarted("a", 1.0), NodeFinished("a", 2.0, NodeResult()), NodeStarted("b", 2.0)]
    tokens = [
        TokenStreamed("a", 1.0, "Lost", True), TokenStreamed("a", 1.5, "He", True), TokenStreamed("a", 2.0, "llo"),
        TokenStreamed("b", 2.0, "x", True), TokenStreamed("b", 2.5, "y"),
    ]  # fmt: skip
    told = join_tokens(merge_tokens(events, 7, tokens))
    assert [(seq, getattr(each, "text", type(each).__name__)) for seq, each in told] == [
        (7, "NodeStarted"), (None, "Hello"), (None, "x"), (8, "NodeFinished"), (9, "NodeStarted"), (None, "y"),
    ]  # fmt: skip


def test_text_of_two_nodes_that_comes_node_by_node_is_told_once_and_whole():
    now = time.time()
    old, new = TokenStreamed("b", now - 9, "older"), TokenStreamed("a", now + 9, "newer")
    other = module._OtherProcess(MemoryStore(), "r")
    other.tokens = [new, old]
    assert other.merge([], 0) == [(None, old)]
    assert other.tokens == [new]  # The event that it follows may not be in the store yet.
    ended = NodeFinished("a", now + 10, NodeResult("newer"))
    assert other.merge([ended], 0) == [(None, new), (0, ended)]
    events = [NodeStarted("c", now)]
    assert [seq for seq, _ in merge_tokens(events, 7, [new, old])] == [None, 7, None]


def test_each_event_is_one_message():
    items = list(enumerate(layered_run(10), 5))
    assert encode_events(items, "feed").count(b"data: ") == 32
    assert encode_events(items, "plain").startswith(b"id: 5\ndata: {")
