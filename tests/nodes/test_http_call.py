"""Requests as nodes, to real servers on loopback: what is sent, where it may go, what comes back, what is repeated."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from flowengine import Flow
from flowengine.core.file_values import FileValue
from flowengine.core.records import Retry, ToolCall
from flowengine.engine.events import Event, NodeRecorded
from flowengine.errors import DefinitionError, EffectPendingError
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.http_call import HttpNode
from flowengine.nodes.http_request import Expected
from flowengine.nodes.http_sender import HttpSender
from flowengine.nodes.node import RetryPolicy
from flowengine.runtime.run import Run
from tests.support.http_script import ScriptedHttp
from tests.support.odd_server import OddServer, say
from tests.support.quiet_ports import quiet_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[OddServer]:
    with OddServer() as running:
        yield running


def node(
    server: OddServer,
    path: str = "/",
    *,
    allowed: Sequence[str] = (),
    sender: HttpSender | None = None,
    **settings: Any,
) -> HttpNode:
    given = {key: settings.pop(key) for key in ("query", "headers", "json", "form", "body") if key in settings}
    values = {name: (lambda _, value=value: value) for name, value in given.items()}
    url = path if "://" in path else f"{server.url}{path}"
    sender = sender or HttpSender([f"{server.url}/"], {"TOKEN": "secret-12345678"})
    return HttpNode(sender, {"url": lambda _: url, **values}, **settings)


async def run_of(one: HttpNode, **options: Any) -> Run:
    return await Flow("f", {"a": one}).run(**options)


def message(run: Run) -> str:
    assert run.status == "failed", run.outputs
    assert run.error is not None
    return run.error.message


async def test_values_are_sent_as_data(server: OddServer):
    sent = node(
        server, "/a?x=1", query={"q": "a&b=c d/é", "n": [1, 2], "t": True, "no": None}, headers={"X-One": "a b"}
    )
    run = (await run_of(sent)).raise_for_status()
    assert run.outputs["a"]["status"] == 200
    assert run.outputs["a"]["body"]["path"] == "/a?x=1&q=a%26b%3Dc%20d%2F%C3%A9&n=1&n=2&t=true"
    assert server.seen[0].headers["x-one"] == "a b"
    run = (await run_of(node(server, "/a#part", query={"q": 1}))).raise_for_status()
    assert run.outputs["a"]["body"]["path"] == "/a?q=1"
    assert server.seen[0].headers["host"] == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("body", "content", "media_type"),
    [
        ({"json": {"a": [1, "é"]}}, '{"a": [1, "é"]}', "application/json"),
        ({"form": {"a": "1&2", "b": None}}, "a=1%262", "application/x-www-form-urlencoded"),
        ({"body": "plain"}, "plain", "text/plain; charset=utf-8"),
        ({"body": "<a/>", "headers": {"Content-Type": "application/xml"}}, "<a/>", "application/xml"),
    ],
)
async def test_bodies(server: OddServer, body: dict[str, Any], content: str, media_type: str):
    (await run_of(node(server, method="PUT", **body))).raise_for_status()
    assert (server.seen[0].body, server.seen[0].headers["content-type"]) == (content, media_type)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00", "é"])
async def test_no_value_makes_a_header_of_its_own(server: OddServer, value: str):
    assert "the header 'X-One' has characters" in message(await run_of(node(server, headers={"X-One": value})))
    assert server.seen == []


async def test_only_what_the_project_allows_is_asked(server: OddServer):
    with OddServer() as other:
        told = message(await run_of(node(server, other.url)))
        assert f"the address '{other.url}' is not allowed" in told
        server.redirect("/away", f"{other.url}/x")
        assert "is not allowed" in message(await run_of(node(server, "/away")))
        assert other.seen == []
    for url in ("ftp://127.0.0.1/", "file:///etc/passwd", "http://127.0.0.1", f"{server.url}/a/../b", "nothing"):
        assert "is not allowed" in message(await run_of(node(server, url, sender=HttpSender([f"{server.url}/a/"]))))


async def test_redirects_inside_of_what_is_allowed_are_followed_so_often(server: OddServer):
    server.redirect("/1", "/2")
    server.redirect("/2", "3")
    run = (await run_of(node(server, "/1"))).raise_for_status()
    assert run.outputs["a"]["body"]["path"] == "/3"
    assert "answered 302 where 2xx" in message(await run_of(node(server, "/1", follow=1)))
    server.redirect("/p", "/3", 307)
    assert "answered 307" in message(await run_of(node(server, "/p", method="POST")))
    server.redirect("/broken", "http://[x")
    assert "answered with a redirect to 'http://[x', which is no address" in message(
        await run_of(node(server, "/broken"))
    )
    server.redirect("/round", "/round")
    assert "answered 302" in message(await run_of(node(server, "/round")))


async def test_a_name_that_leads_inside_is_refused_also_when_it_led_elsewhere_before(server: OddServer):
    answers = [["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    name = f"http://api.example.com:{server.port}/"
    sender = HttpSender([name], resolve=resolve)
    while answers:
        assert "leads to the private address" in message(await run_of(node(server, name, sender=sender)))
    assert server.seen == []


async def test_the_connection_goes_to_the_address_that_was_looked_at(server: OddServer):
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2", "127.0.0.1"] if len(asked) == 1 else ["192.0.2.1"]

    name = f"http://crm.example.com:{server.port}/"
    sender = HttpSender([f"{name} 127.0.0.0/8"], resolve=resolve)
    (await run_of(node(server, f"{name}x", sender=sender))).raise_for_status()
    assert asked == ["crm.example.com"]
    assert server.seen[0].headers["host"] == f"crm.example.com:{server.port}"


async def test_a_secret_goes_only_where_the_project_says_and_comes_back_nowhere(server: OddServer):
    secret = {"Authorization": "TOKEN"}
    told = message(await run_of(node(server, headers_env=secret)))
    assert f"the value of TOKEN may not be sent to '{server.url}/'" in told
    with OddServer() as other:
        environ = {"TOKEN": "Bearer secret-12345678"}
        sender = HttpSender([f"{server.url}/ TOKEN", f"{other.url}/ TOKEN"], environ)
        server.routes["/echo"] = lambda handler: say(
            handler, handler.headers["authorization"].encode(), X_Echo=handler.headers["authorization"]
        )
        store = MemoryStore()
        run = (await run_of(node(server, "/echo", sender=sender, headers_env=secret), store=store)).raise_for_status()
        assert server.seen[0].headers["authorization"] == "Bearer secret-12345678"
        assert "secret-12345678" not in "".join(encode(event) for event in store.events(run.id))
        assert run.outputs["a"]["body"] == "[hidden]"
        server.redirect("/away", f"{other.url}/x")
        away = node(server, "/away", sender=sender, headers_env=secret, headers={"Cookie": "a=b", "X-Plain": "c"})
        (await run_of(away)).raise_for_status()
        assert "authorization" not in other.seen[0].headers
        assert "cookie" not in other.seen[0].headers
        assert other.seen[0].headers["x-plain"] == "c"
        server.redirect("/leak", f"{other.url}/secret-12345678")
        environ = {"TOKEN": "secret-12345678"}
        sender = HttpSender([f"{server.url}/ TOKEN", f"{other.url}/"], environ)
        run = (await run_of(node(server, "/leak", sender=sender, headers_env=secret))).raise_for_status()
        assert run.outputs["a"]["body"]["path"] == "/[hidden]"
        gone, count = HttpSender([f"{server.url}/ TOKEN"], {}), len(server.seen)
        with pytest.raises(DefinitionError, match="comes from the environment variable TOKEN, which is not set"):
            await run_of(node(server, sender=gone, headers_env=secret))  # Before anything starts, or anybody is asked.
        assert len(server.seen) == count


@pytest.mark.parametrize(
    ("content", "media_type", "body"),
    [
        (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        ("é".encode("latin-1"), "text/plain; charset=iso-8859-1", "é"),
        (b"x-" + b"a" * 900_000, "text/plain; charset=punycode", "x-" + "a" * 900_000),
        (rb"\u0041", "text/plain; charset=unicode_escape", r"\u0041"),
        (b"<a/>", "application/xml", "<a/>"),
        (b"plain", "", "plain"),
        (b"", "application/json", None),
    ],
)
async def test_what_an_answers_body_is(server: OddServer, content: bytes, media_type: str, body: Any):
    server.routes["/"] = lambda handler: say(handler, content, content_type=media_type)
    assert (await run_of(node(server))).raise_for_status().outputs["a"]["body"] == body


@pytest.mark.parametrize("content", [b"{", b"NaN", b"[" * 40_000])
async def test_json_that_is_none_is_an_invalid_output(server: OddServer, content: bytes):
    server.routes["/"] = lambda handler: say(handler, content, content_type="application/json")
    assert "says that it is JSON, and it is not" in message(await run_of(node(server)))


async def test_bytes_and_long_answers_become_files_and_longer_ones_an_error(server: OddServer):
    server.routes["/png"] = lambda handler: say(handler, b"\x89PNG\r\n\x1a\n", content_type="image/png")
    server.routes["/long"] = lambda handler: say(handler, b"x" * 1_500_000, content_type="text/plain")
    picture = (await run_of(node(server, "/png"))).raise_for_status().outputs["a"]["body"]
    assert isinstance(picture, FileValue)
    assert (picture.name, picture.media_type) == ("png.png", "image/png")
    file = (await run_of(node(server, "/long"))).raise_for_status().outputs["a"]["body"]
    assert (file.size, file.read_text()[:3]) == (1_500_000, "xxx")
    told = message(await run_of(node(server, "/long", expected=Expected(schema={"type": "string"}))))
    assert "has more than 1,000,000 bytes" in told
    server.routes["/many"] = lambda handler: say(
        handler, b"[" + b"1," * 50_000 + b"1]", content_type="application/json"
    )
    many = (await run_of(node(server, "/many"))).raise_for_status().outputs["a"]["body"]
    assert isinstance(many, FileValue)
    assert json.loads(many.read_text()) == [1] * 50_001
    told = message(await run_of(node(server, "/many", expected=Expected(schema={"type": "array"}))))
    assert "has more than 50,000 values: it is a file, and has no schema" in told
    small = HttpSender([f"{server.url}/"], max_bytes=10)
    assert "the answer has more than 10 bytes" in message(await run_of(node(server, "/long", sender=small)))
    assert "the request's body has 11 bytes" in message(
        await run_of(node(server, method="PUT", body="x" * 11, sender=small))
    )


async def test_an_endless_answer_is_left_at_its_bound(server: OddServer):
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        try:
            while not server.stopped.is_set():
                handler.wfile.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        except OSError:
            handler.close_connection = True

    server.routes["/"] = endless
    assert "more than 20,971,520 bytes" in message(await run_of(node(server)))
    bomb = gzip.compress(b" " * 40_000_000)
    server.routes["/"] = lambda handler: say(handler, bomb, content_encoding="gzip")
    assert "more than 20,971,520 bytes" in message(await run_of(node(server)))
    assert server.seen[0].headers["accept-encoding"] == "identity"


PACKED = gzip.compress(b'{"a": ', mtime=0) + gzip.compress(b"1}", mtime=0)


@pytest.mark.parametrize(
    ("packed", "encoding", "told"),
    [
        (PACKED, "gzip", None),
        (zlib.compress(b'{"a": 1}'), "deflate", None),
        (PACKED[:-9], "gzip", "breaks off"),
        (b"oops", "gzip", "cannot be unpacked"),
        (b"oops", "br", "packs its answer as 'br'"),
    ],
    ids=["gzip", "deflate", "cut", "broken", "unknown"],
)
async def test_an_answer_that_is_packed_unasked_is_unpacked_whole_or_not_at_all(
    server: OddServer, packed: bytes, encoding: str, told: str | None
):
    server.routes["/"] = lambda handler: say(
        handler, packed, content_encoding=encoding, content_type="application/json"
    )
    run = await run_of(node(server))
    if told is None:
        assert run.raise_for_status().outputs["a"]["body"] == {"a": 1}
    else:
        assert told in message(run)
        assert message(run).count(told) == 1, "the cause says nothing else"


async def test_a_retry_waits_for_as_long_as_the_server_asks_within_reason(server: OddServer):
    asked = ["0.05", "7200"]
    server.routes["/"] = lambda handler: say(handler, b"", status=429, retry_after=asked[len(server.seen) - 1])
    run = await run_of(node(server, retry=RetryPolicy(attempts=5, initial=0.001, max=0.002)))
    assert "answered 429 where 2xx is expected; it asks to wait 7,200 s, which is too long" in message(run)
    assert len(server.seen) == 2
    [pause] = [each.record for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is Retry]
    assert pause.delay >= 0.05


async def test_an_address_that_is_refused_says_why(server: OddServer):
    sender = HttpSender([f"{server.url}/v1/ TOKEN"])
    run = await run_of(node(server, f"{server.url}/v1/compare/main...dev", sender=sender))
    assert run.raise_for_status().outputs["a"]["status"] == 200
    for path, why in (("v1/..%2Fx", "a part `..`"), ("v1\\x", "or a backslash"), ("v1/a\r\nb", "a blank")):
        told = message(await run_of(node(server, f"{server.url}/{path}", sender=sender)))
        assert why in told
        assert "TOKEN" not in told
        assert told.isprintable()


async def test_a_slow_sender_is_left_at_the_nodes_timeout(server: OddServer):
    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "100")
        handler.end_headers()
        handler.wfile.write(b"x")
        server.stopped.wait()

    server.routes["/"] = slow
    assert "took longer than its timeout of 0.2 s" in message(await run_of(node(server, timeout=0.2)))


async def test_what_is_expected_of_an_answer(server: OddServer):
    server.routes["/"] = lambda handler: say(handler, b'{"error": "gone"}', status=404, content_type="application/json")
    told = message(await run_of(node(server, "/?key=abc")))
    assert told == f'GET {server.url}/?… answered 404 where 2xx is expected: {{"error": "gone"}}'
    found = await run_of(node(server, expected=Expected([200, 404])))
    assert found.raise_for_status().outputs["a"]["body"] == {"error": "gone"}
    schema = {"type": "object", "required": ["id"]}
    told = message(await run_of(node(server, expected=Expected(["4xx"], schema))))
    assert "the answer's body does not fit: 'id' is a required property at $" in told


async def test_a_request_is_repeated_only_where_that_does_no_harm(server: OddServer):
    tries = iter([503, 503, 200] * 2)
    server.routes["/"] = lambda handler: say(handler, b"ok", status=next(tries))
    again = RetryPolicy(attempts=3, initial=0)
    for method, settings in (("GET", {}), ("POST", {"effect": "idempotent"})):
        server.seen.clear()
        (await run_of(node(server, method=method, retry=again, **settings))).raise_for_status()
        assert len(server.seen) == 3
        assert len({each.headers.get("idempotency-key") for each in server.seen}) == 1
    assert len(server.seen[0].headers["idempotency-key"]) == 32
    for settings in ({"retry": again}, {"cache": True}):
        with pytest.raises(DefinitionError, match="external effect"):
            node(server, method="POST", **settings)


def cut(events: Sequence[Event], at: int) -> MemoryStore:
    """A store with the run as a process left it that died after so many events."""
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


async def test_a_request_under_way_at_a_kill_is_asked_about_and_not_sent_twice(server: OddServer):
    flow = Flow("f", {"a": node(server, method="POST", json={"a": 1})})
    run = (await flow.run(run_id="r1", store=MemoryStore())).raise_for_status()
    assert len(server.seen) == 1
    sent = server.seen[0].headers["idempotency-key"]
    begun = [getattr(each, "record", None) for each in run.events]
    first = next(at for at, each in enumerate(begun) if isinstance(each, ToolCall) and each.started)
    for at in range(first + 1, len(run.events) - 1):
        if any(type(each).__name__ == "NodeFinished" for each in run.events[:at]):
            continue
        with pytest.raises(EffectPendingError, match="node 'a'"):
            await flow.resume("r1", store=cut(run.events, at))
        assert len(server.seen) == 1
        assert (await flow.resume("r1", store=cut(run.events, at), assume_done=["a"])).outputs == {"a": None}
        assert len(server.seen) == 1
    (await flow.resume("r1", store=cut(run.events, first + 1), retry_effects=["a"])).raise_for_status()
    assert [each.headers["idempotency-key"] for each in server.seen] == [sent, sent]


@pytest.mark.parametrize("doubt", ["lost", "server", pytest.param("slow", marks=pytest.mark.long), "wrong"])
async def test_a_request_that_may_have_been_done_waits_for_a_decision(server: OddServer, doubt: str):
    def lost(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    server.routes["/"] = {
        "lost": lost,
        "server": lambda handler: say(handler, b"", status=502),
        "slow": lambda handler: server.stopped.wait() and None,
        "wrong": lambda handler: say(handler, b"{", content_type="application/json"),
    }[doubt]
    store = MemoryStore()
    flow = Flow("f", {"a": node(server, method="POST", timeout=2.0 if doubt == "slow" else None)})
    assert (await flow.run(run_id="r1", store=store)).status == "failed"
    with pytest.raises(EffectPendingError, match="node 'a'"):
        await flow.resume("r1", store=store)
    assert len(server.seen) == 1


async def test_a_request_that_was_refused_or_never_sent_is_sent_by_the_next_resume(server: OddServer):
    server.routes["/"] = lambda handler: say(handler, b"", status=400)
    store = MemoryStore()
    flow = Flow("f", {"a": node(server, method="POST")})
    assert (await flow.run(run_id="r1", store=store)).status == "failed"
    del server.routes["/"]
    (await flow.resume("r1", store=store)).raise_for_status()
    away = f"http://127.0.0.1:{quiet_port()}/"
    flow = Flow("f", {"a": node(server, away, sender=HttpSender([away], {}), method="POST")})
    run = await flow.run(run_id="r2", store=store)
    assert "no connection to 127.0.0.1" in message(run)
    assert (await flow.resume("r2", store=store)).status == "failed"


async def test_what_was_asked_is_in_the_trace_and_the_cache_takes_its_place(server: OddServer):
    store = MemoryStore()
    run = (await run_of(node(server, "/x?key=abc", cache=True), store=store)).raise_for_status()
    [record] = [each.record for each in run.events if isinstance(each, NodeRecorded)]
    assert (record.name, record.arguments, record.effect) == (
        "http",
        {"method": "GET", "url": f"{server.url}/x?…"},
        "none",
    )
    assert json.loads(json.dumps((await run_of(node(server, "/x?key=abc", cache=True), store=store)).outputs))
    assert len(server.seen) == 1
    (await run_of(node(server, "/x?key=abd", cache=True), store=store)).raise_for_status()
    assert len(server.seen) == 2


# --- proxies


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedHttp]:
    """One that answers itself, and is named by the environment."""
    script = ScriptedHttp(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\ntrue")
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with script as url:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, url.replace("http://", "http://me:word@"))
        yield script


def through_a_proxy(url: str, found: Sequence[str] = (), **settings: Any) -> Flow:
    async def resolve(host: str, port: int) -> Sequence[str]:
        if not found:
            raise OSError("this machine knows no names")
        return found

    sender = HttpSender(["http://out.example/", "https://out.example/"], resolve=resolve, **settings)
    return Flow("f", {"a": HttpNode(sender, {"url": lambda _: url})})


async def test_a_proxy_is_asked_where_the_project_says_so(proxy: ScriptedHttp):
    run = (await through_a_proxy("http://out.example/a?b=c", uses_proxy=True).run()).raise_for_status()
    assert run.outputs["a"]["body"] is True
    [sent] = proxy.requests
    assert sent.startswith(b"GET http://out.example/a?b=c HTTP/1.1\r\n")
    assert b"host: out.example\r\n" in sent
    assert b"proxy-authorization: Basic bWU6d29yZA==" in sent
    assert "bWU6d29yZA" not in "".join(encode(each) for each in run.events)


async def test_a_tunnel_that_a_proxy_refuses_is_told_and_nothing_of_the_request_is_sent(
    monkeypatch: pytest.MonkeyPatch,
):
    script = ScriptedHttp(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
    with script as url:
        monkeypatch.setenv("https_proxy", url.replace("http://", "http://me:word@"))
        monkeypatch.setenv("no_proxy", "")
        run = await through_a_proxy("https://out.example/secret", uses_proxy=True).run()
    assert run.error is not None
    told = "no connection to out.example through its proxy: the proxy 127.0.0.1 answers 403"
    assert run.error.message == f"GET https://out.example/secret: {told}"
    assert script.requests[0].startswith(b"CONNECT out.example:443 ")
    assert not any(b"secret" in each for each in script.requests)


async def test_what_a_name_leads_to_is_judged_before_a_proxy_is_asked(proxy: ScriptedHttp):
    run = await through_a_proxy("http://out.example/", ["10.0.0.7"], uses_proxy=True).run()
    assert run.error is not None
    assert "leads to the private address 10.0.0.7" in run.error.message
    assert proxy.requests == []


async def test_no_proxy_is_asked_where_nobody_says_so(proxy: ScriptedHttp, monkeypatch: pytest.MonkeyPatch):
    assert "is not known" in str((await through_a_proxy("http://out.example/").run()).error)
    monkeypatch.setenv("no_proxy", "out.example")
    assert "is not known" in str((await through_a_proxy("http://out.example/", uses_proxy=True).run()).error)
    assert proxy.requests == []


async def test_a_machine_without_a_way_out_is_told_of_the_proxy(proxy: ScriptedHttp, monkeypatch: pytest.MonkeyPatch):
    sender = HttpSender(["http://127.0.0.2:9/ 127.0.0.0/8", "http://out.example/ 127.0.0.0/8"], resolve=to_nobody)
    run = await Flow("f", {"a": HttpNode(sender, {"url": lambda _: "http://out.example/"})}).run()
    assert "the environment names a proxy: `http_proxy = true` in the project file" in str(run.error)
    monkeypatch.setenv("http_proxy", "http://me:pa/ss@proxy:1")
    run = await Flow("f", {"a": HttpNode(sender, {"url": lambda _: "http://out.example/"})}).run()
    assert message(run).endswith("Connection refused")
    through = replace(sender, uses_proxy=True)
    run = await Flow("f", {"a": HttpNode(through, {"url": lambda _: "http://out.example/"})}).run()
    assert message(run).endswith("the proxy that the environment names for http:// is no address")


async def to_nobody(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.2"]
