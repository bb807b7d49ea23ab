"""A language model's HTTP interface without a language model: OpenAI chat completions and embeddings on loopback.

It answers as it is told, keeps every request with its times, and can be slow, busy, broken,
silent or cut off. It knows nothing of FlowEngine: what the product sends is judged by an
outsider. One asyncio loop and a hand-written HTTP/1.1 reader, so that some hundred connections at
once cost little beside what is measured.

    with ModelServer(responder=["first answer", Failure(429, retry_after=0.1), "third"]) as server:
        ...  # server.url is what a client takes as its base URL; server.requests is what it sent

or, in a process of its own (the first line printed is the port, `GET /requests` shows what came):

    python tests/support/model_server.py --port 0 --latency 0.1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

__all__ = [
    "Answer",
    "Completion",
    "Failure",
    "Hang",
    "ModelServer",
    "Raw",
    "Received",
    "ToolCall",
    "Truncated",
    "fill",
    "letters",
]


# --- what a responder may answer --------------------------------------------------------------


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants called; `arguments` is a value, or raw (perhaps broken) text."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = "call_1"


@dataclass(frozen=True)
class Completion:
    """A whole answer, where a text alone does not say enough."""

    content: str | None = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    finish_reason: str | None = None
    """None: `tool_calls` where there are some, else `stop`."""
    usage: Mapping[str, Any] | None = None
    """None: counted roughly. An empty one is sent as no usage at all."""
    latency: float | None = None
    """Seconds before this answer; None takes the server's."""
    piece_delay: float = 0.0
    """Seconds before each piece of a streamed answer."""


@dataclass(frozen=True)
class Failure:
    """An HTTP error."""

    status: int
    message: str = "the server was told to fail"
    retry_after: float | str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Hang:
    """No answer, ever; the connection stays open until the client leaves."""


@dataclass(frozen=True)
class Truncated:
    """An answer whose connection breaks off in the middle of its body."""

    content: str = "an answer that is cut off in the middle"


@dataclass(frozen=True)
class Raw:
    """A whole response with a body that may be no answer at all: a proxy's page, half a JSON, nothing."""

    body: bytes
    kind: str = "application/json"
    status: int = 200


Answer: TypeAlias = str | Mapping[str, Any] | ToolCall | Completion | Failure | Hang | Raw | Truncated
"""A text; a value sent as JSON text; or one of the classes above."""

Responder: TypeAlias = Callable[[dict[str, Any]], Answer]
"""Request body → answer. Runs in the server's thread."""


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


# --- answering without a script -----------------------------------------------------------------


def default_responder(body: dict[str, Any]) -> Answer:
    """Something valid for a JSON Schema that is asked for, else a short text that repeats the question."""
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema is not None:
        return Completion(json.dumps(fill(schema, schema), ensure_ascii=False))
    questions = [each.get("content") for each in body.get("messages", ()) if each.get("role") == "user"]
    asked = questions[-1] if questions and isinstance(questions[-1], str) else ""
    return f"Answer to: {' '.join(asked.split())[:80]}"


def fill(schema: Any, root: Any) -> Any:
    """A plausible value of a JSON Schema: first of an enum, every property, numbers near 0.9."""
    if not isinstance(schema, Mapping):
        return "text"
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return fill(target, root)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return fill(schema[keyword][0], root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _fill_type(kind[0] if isinstance(kind, list) else kind, schema, root)


def _fill_type(kind: str, schema: Mapping[str, Any], root: Any) -> Any:
    if kind == "object":
        return {name: fill(each, root) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [fill(schema.get("items"), root)] * max(1, schema.get("minItems", 1))
    if kind in ("number", "integer"):
        value = min(max(0.9, schema.get("minimum", 0.9)), schema.get("maximum", 0.9))
        return value if kind == "number" else round(value)
    if kind == "string":
        return "text".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
    return {"boolean": True, "null": None}[kind]


# --- the wire format ----------------------------------------------------------------------------


def _as_completion(answer: Any) -> Completion:
    if isinstance(answer, Completion):
        return answer
    if isinstance(answer, ToolCall):
        return Completion(None, (answer,))
    return Completion(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _usage(completion: Completion, body: dict[str, Any]) -> dict[str, Any]:
    if completion.usage is not None:
        return dict(completion.usage)
    prompt = len(json.dumps(body.get("messages", ""), ensure_ascii=False)) // 4 + 1
    answer = len(completion.content or "") // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _tool_calls(completion: Completion) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
            },
        }
        for index, call in enumerate(completion.tool_calls)
    ]


def _finish_reason(completion: Completion) -> str:
    return completion.finish_reason or ("tool_calls" if completion.tool_calls else "stop")


def _envelope(kind: str, body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-local",
        "object": kind,
        "created": 1700000000,
        "model": body.get("model", "local"),
        "choices": [{"index": 0, **choice}],
    }


def _whole(completion: Completion, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": completion.content}
    if completion.tool_calls:
        message["tool_calls"] = _tool_calls(completion)
    if completion.refusal is not None:
        message["refusal"] = completion.refusal
    shape = _envelope("chat.completion", body, {"message": message, "finish_reason": _finish_reason(completion)})
    usage = _usage(completion, body)
    return {**shape, "usage": usage} if usage else shape


def _chunks(completion: Completion, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The pieces of a streamed answer: role, words, tool calls, the end, and the usage where asked for."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    text = completion.content or ""
    deltas += [{"content": text[at : at + 8]} for at in range(0, len(text), 8)]
    deltas += [{"tool_calls": [call]} for call in _tool_calls(completion)]
    kind = "chat.completion.chunk"
    chunks = [_envelope(kind, body, {"delta": each, "finish_reason": None}) for each in deltas]
    chunks.append(_envelope(kind, body, {"delta": {}, "finish_reason": _finish_reason(completion)}))
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**_envelope(kind, body, {}), "choices": [], "usage": _usage(completion, body)})
    return chunks


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
        if method == "POST" and path.endswith("/chat/completions"):
            shape = json.loads(body)
            self._current = Received(method, path, headers, shape, time.time(), connection=self._number)
            self._server.requests.append(self._current)
            self._plan(self._server.answer(shape), shape)
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
            head = {"content-type": answer.kind, "content-length": len(answer.body)}
            self._transport.write(_head(answer.status, head) + answer.body)
        elif body.get("stream"):
            self._stream = asyncio.get_running_loop().create_task(self._send_stream(answer, body))
            return
        elif isinstance(answer, Truncated):
            whole = _response(200, _whole(Completion(answer.content), body))
            self._transport.write(whole[:-20])
            self._transport.close()
        else:
            self._transport.write(_response(200, _whole(_as_completion(answer), body)))
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
        headers = {} if failure.retry_after is None else {"retry-after": failure.retry_after}
        error = {"message": failure.message, "type": "local_error", "param": None, "code": failure.code}
        self._transport.write(_response(failure.status, {"error": error}, headers))

    async def _send_stream(self, answer: Any, body: dict[str, Any]) -> None:
        cut = isinstance(answer, Truncated)
        completion = Completion(answer.content) if cut else _as_completion(answer)
        self._transport.write(_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        chunks = _chunks(completion, body)
        for chunk in chunks[: len(chunks) // 2] if cut else chunks:
            if completion.piece_delay:
                await asyncio.sleep(completion.piece_delay)
            self._write_chunk(f"data: {json.dumps(chunk)}\n\n".encode())
        self._note_answer()
        if cut:
            self._transport.close()
        else:
            self._write_chunk(b"data: [DONE]\n\n")
            self._transport.write(b"0\r\n\r\n")
        self._done()

    def _write_chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _note_answer(self) -> None:
        """Before the last byte leaves: a test that has its answer may look at once."""
        assert self._current is not None
        self._current.answered = time.time()

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
        """Chat completions and embeddings asked for, in order of arrival."""
        self.connections = 0
        """Connections ever made."""
        self._responder: Responder = default_responder
        if responder is not None:
            self.respond_with(responder)

    @property
    def url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://{self.host}:{self.port}/v1"

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
            connection._transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _listen(self, connect: Callable[[], _Connection]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(connect, self.host, self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server


def _read_answers(path: str) -> list[Answer]:
    """A JSON list: texts, and objects that name one of the answer classes (`{"Failure": {"status": 429}}`)."""
    kinds: dict[str, type[Any]] = {kind.__name__: kind for kind in (Completion, Failure, Hang, ToolCall, Truncated)}
    answers: list[Answer] = []
    for each in json.loads(Path(path).read_text("utf-8")):
        name = next(iter(each)) if isinstance(each, dict) and len(each) == 1 else ""
        answers.append(kinds[name](**each[name]) if name in kinds else each)
    return answers


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
