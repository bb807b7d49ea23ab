"""A language model's HTTP interface without a language model: OpenAI chat completions, responses and
embeddings, Anthropic messages, on loopback.

It answers as it is told, keeps every request with its times, and can be slow, busy, broken,
silent or cut off. It knows nothing of FlowEngine: what the product sends is judged by an
outsider. One asyncio loop and a hand-written HTTP/1.1 reader, so that some hundred connections at
once cost little beside what is measured.

    with ModelServer(responder=["first answer", Failure(429, retry_after=0.1), "third"]) as server:
        ...  # server.url is what an OpenAI client takes as its base URL; server.requests is what it sent

or, in a process of its own (the first line printed is the port, `GET /requests` shows what came):

    python tests/support/model_server.py --port 0 --latency 0.1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

sys.path.append(str(Path(__file__).parents[2]))  # for a process of its own, and for who names it without its package

from tests.support.anthropic_wire import AnthropicWire
from tests.support.model_answers import (
    Answer,
    Completion,
    Failure,
    Hang,
    Raw,
    Responder,
    StreamFailure,
    Thinking,
    ToolCall,
    Truncated,
    default_responder,
    fill,
    to_completion,
)
from tests.support.openai_wire import OpenAIWire
from tests.support.responses_wire import ResponsesWire

__all__ = [
    "Answer",
    "Completion",
    "Failure",
    "Hang",
    "ModelServer",
    "Raw",
    "Received",
    "Responder",
    "StreamFailure",
    "Thinking",
    "ToolCall",
    "Truncated",
    "fill",
    "letters",
]


@dataclass
class Received:
    """One request as it came in. Times are Unix seconds."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    arrived: float
    answered: float | None = None
    """None while it waits, and for ever where the client left or the server hung."""
    abandoned: bool = False
    """The client closed the connection before it was answered."""
    connection: int = 0
    """Number of the connection that it came on; equal numbers mean a connection used again."""
    began: float | None = None
    """When its answer began to leave."""


# --- the wire format ----------------------------------------------------------------------------


_WIRES: Final = (OpenAIWire(), AnthropicWire(), ResponsesWire())


def letters(text: str) -> list[float]:
    """The embedding of a text: how often each letter is in it."""
    return [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]


def _head(status: int, headers: Mapping[str, Any]) -> bytes:
    lines = [f"HTTP/1.1 {status} Local", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def _response(status: int, value: Any, headers: Mapping[str, Any] | None = None) -> bytes:
    body = json.dumps(value).encode()
    return _head(status, {"content-type": "application/json", "content-length": len(body), **(headers or {})}) + body


class _Connection(asyncio.Protocol):
    """One client: cuts requests out of the byte stream and answers them one after the other."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = b""
        self._current: Received | None = None
        self._wire: OpenAIWire | AnthropicWire | ResponsesWire = _WIRES[0]
        self._timer: asyncio.TimerHandle | None = None
        self._stream: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections += 1
        self._number = self._server.connections

    def connection_lost(self, exc: Exception | None) -> None:
        if self._current is not None:
            self._current.abandoned = True
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._read_next()

    def _read_next(self) -> None:
        if self._current is not None:
            return
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        request_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = request_line.split(" ", 2)
        self._handle(method, path, headers, rest[:length])

    def _handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        wire = next((each for each in _WIRES if path.partition("?")[0].endswith(each.path)), None)
        if method == "POST" and wire is not None:
            self._wire = wire
            shape = json.loads(body)
            self._current = Received(method, path, headers, shape, time.time(), connection=self._number)
            self._server.requests.append(self._current)
            refused = wire.refuse(shape) if isinstance(wire, ResponsesWire) else None
            self._plan(refused or self._server.answer(shape), shape)
        elif method == "POST" and path.endswith("/embeddings"):
            shape = json.loads(body)
            arrived = time.time()
            self._server.requests.append(Received(method, path, headers, shape, arrived, arrived, False, self._number))
            self._embed(shape)
        elif method == "GET" and path == "/requests":
            self._transport.write(_response(200, [asdict(each) for each in self._server.requests]))
        elif method == "DELETE" and path == "/requests":
            self._server.requests.clear()
            self._transport.write(_response(200, {}))
        elif method == "GET" and path.endswith("/models"):
            self._transport.write(_response(200, {"object": "list", "data": []}))
        else:
            self._transport.write(_response(404, {"error": {"message": f"no {method} {path} here"}}))

    def _plan(self, answer: Any, body: dict[str, Any]) -> None:
        if isinstance(answer, Hang):
            return
        latency = getattr(answer, "latency", None)
        latency = self._server.latency if latency is None else latency
        if latency:
            self._timer = asyncio.get_running_loop().call_later(latency, self._send, answer, body)
        else:
            self._send(answer, body)

    def _send(self, answer: Any, body: dict[str, Any]) -> None:
        if not body.get("stream") or isinstance(answer, Failure | Raw):
            self._note_answer()
        if isinstance(answer, Failure):
            self._fail(answer)
        elif isinstance(answer, Raw):
            head = {"content-type": answer.kind, "content-length": len(answer.body), **answer.headers}
            self._transport.write(_head(answer.status, head) + answer.body)
        elif body.get("stream"):
            self._stream = asyncio.get_running_loop().create_task(self._send_stream(answer, body))
            return
        elif isinstance(answer, Truncated):
            whole = _response(200, self._wire.whole(Completion(answer.content), body))
            self._transport.write(whole[:-20])
            self._transport.close()
        elif isinstance(answer, StreamFailure):
            self._fail(Failure(500, answer.message, code=answer.kind))
        else:
            self._transport.write(_response(200, self._wire.whole(to_completion(answer), body)))
        self._done()

    def _embed(self, body: dict[str, Any]) -> None:
        """Vectors; a responder is asked only for whether it fails."""
        answer = self._server.answer(body)
        if isinstance(answer, Failure):
            self._fail(answer)
            return
        data = [
            {"object": "embedding", "index": at, "embedding": letters(text)} for at, text in enumerate(body["input"])
        ]
        usage = {"prompt_tokens": len(body["input"]), "total_tokens": len(body["input"])}
        self._transport.write(_response(200, {"object": "list", "model": body["model"], "data": data, "usage": usage}))

    def _fail(self, failure: Failure) -> None:
        asked = {} if failure.retry_after is None else {"retry-after": failure.retry_after}
        self._transport.write(_response(failure.status, self._wire.failure(failure), {**asked, **failure.headers}))

    async def _send_stream(self, answer: Any, body: dict[str, Any]) -> None:
        cut = isinstance(answer, Truncated)
        fails = isinstance(answer, StreamFailure)
        completion = Completion(answer.content) if cut or fails else to_completion(answer)
        self._transport.write(_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        *frames, last = self._wire.frames(completion, body)
        if cut or fails:
            del frames[len(frames) // 2 :]
        for frame in frames:
            if completion.piece_delay:
                await asyncio.sleep(completion.piece_delay)
            self._note_begin()
            self._write_chunk(frame)
        self._note_answer()
        if cut:
            self._transport.close()
        else:
            self._write_chunk(self._wire.broken_frame(answer) if fails else last)
            self._transport.write(b"0\r\n\r\n")
        self._done()

    def _write_chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _note_answer(self) -> None:
        """Before the last byte leaves: a test that has its answer may look at once."""
        assert self._current is not None
        self._current.answered = time.time()
        self._note_begin()

    def _note_begin(self) -> None:
        if self._current is not None and self._current.began is None:
            self._current.began = time.time()

    def _done(self) -> None:
        self._current = self._timer = self._stream = None
        self._read_next()


# --- the server ---------------------------------------------------------------------------------


class ModelServer:
    """Serves in a thread of this process while its `with` block lasts.

    A responder is a function of the request's body, or a list of answers given in order and then
    an HTTP 400 that says so. Without one, `default_responder` answers.
    """

    def __init__(
        self,
        responder: Responder | Sequence[Answer] | None = None,
        *,
        latency: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.latency = latency
        self.host = host
        self.port = port
        self.requests: list[Received] = []
        """Chat completions, responses, messages and embeddings asked for, in order of arrival."""
        self.connections = 0
        """Connections ever made."""
        self._responder: Responder = default_responder
        if responder is not None:
            self.respond_with(responder)

    @property
    def url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.root}/v1"

    @property
    def root(self) -> str:
        """What an Anthropic client takes as its base URL."""
        return f"http://{self.host}:{self.port}"

    def respond_with(self, responder: Responder | Sequence[Answer]) -> None:
        """Answer like this from now on."""
        if callable(responder):
            self._responder = responder
            return
        left = deque(responder)
        spent = Failure(400, f"the {len(left)} answers of the script are used up")
        self._responder = lambda _: left.popleft() if left else spent

    def answer(self, body: dict[str, Any]) -> Answer:
        try:
            return self._responder(body)
        except Exception as error:  # a responder is a test's own code: its failure has to be seen by the client
            return Failure(400, f"the responder raised {error!r}")

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="model-server", daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self, started: threading.Event) -> None:
        transports: set[_Connection] = set()

        def connect() -> _Connection:
            connection = _Connection(self)
            transports.add(connection)
            return connection

        server = self._loop.run_until_complete(self._listen(connect))
        started.set()
        self._loop.run_forever()
        server.close()
        for connection in transports:
            connection.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _listen(self, connect: Callable[[], _Connection]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(connect, self.host, self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server


def _read_answers(path: str) -> list[Answer]:
    """A JSON list: texts, and objects that name one of the answer classes (`{"Failure": {"status": 429}}`)."""
    known = (Completion, Failure, Hang, ToolCall, Truncated)
    kinds: dict[str, type[Any]] = {kind.__name__: kind for kind in known}

    def to_answer(value: Any) -> Answer:
        for name, kind in kinds.items():
            if isinstance(value, dict) and value.keys() == {name}:
                return kind(**value[name])
        return cast("Answer", value)

    return [to_answer(each) for each in json.loads(Path(path).read_text("utf-8"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--answers", help="JSON file with the answers in order")
    options = parser.parse_args()
    responder = _read_answers(options.answers) if options.answers else None
    with ModelServer(responder, latency=options.latency, port=options.port) as server:
        print(server.port, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
