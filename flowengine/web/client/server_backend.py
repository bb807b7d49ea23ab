"""Calls the flows of a server over HTTP. What may be repeated is, where no answer came or the server asks it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, urlsplit

import anyio
from pydantic_core import to_jsonable_python

from flowengine.core import is_map, refusing_no_json
from flowengine.engine import RunInfo
from flowengine.errors import InputError, RunError
from flowengine.journal import check_run_id
from flowengine.models.http import (
    BrokenExchangeError,
    EventReader,
    HttpCall,
    IncompleteAnswerError,
    NoConnectionError,
    send_call,
)
from flowengine.web.client.called_runs import CalledRun, ClientError, RunProgress, RunQuestion

_TRIES: Final = 5
"""How often a request is sent at most."""
_LONGEST_PAUSE: Final = 20.0
_SILENCE: Final = 60.0
"""Seconds without a byte after which a connection counts as broken: the server tells that it is there."""
_RETRY_STATUSES: Final = (429, 502, 503, 504)
"""Statuses after which a request is sent again: the server may answer otherwise later."""


def pause_before(attempt: int) -> float:
    """Returns the seconds to pause before attempt 2, 3 and so on of a request.

    >>> [pause_before(attempt) for attempt in (2, 3, 4)]
    [0.25, 0.5, 1.0]
    """
    return min(_LONGEST_PAUSE, 0.25 * 2 ** (attempt - 2))


class _Answer(NamedTuple):
    status: int
    data: Any
    """The body as JSON; None where it is none."""
    retry_after: float | None


class ServerBackend:
    """One server."""

    def __init__(self, base_url: str, key: str | None) -> None:
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ClientError("a key has printable ASCII characters alone")
        self._base = base_url.rstrip("/")
        self._name = _show_server(base_url)
        self._key = key

    def connect(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    async def start(
        self, flow: str, inputs: Mapping[str, Any], key: str, session: str | None, labels: Mapping[str, str]
    ) -> CalledRun:
        headers = [("idempotency-key", _to_header(key)), ("prefer", "respond-async")]
        headers += [("flowengine-session", _to_header(session))] if session is not None else []
        headers += [("flowengine-label", _to_header(f"{name}={value}")) for name, value in labels.items()]
        path = f"/flows/{_quote(flow)}"
        return _read_run(await self._ask("POST", path, inputs, headers))

    async def get(self, run_id: str) -> CalledRun:
        return _read_run(await self._ask("GET", _path_of(run_id)))

    async def follow(self, run_id: str) -> AsyncGenerator[RunProgress]:
        call = self._call("GET", f"{_path_of(run_id)}/events", None, [("accept", "text/event-stream")])
        reader = EventReader()
        try:
            async with AsyncExitStack() as stack:
                with anyio.fail_after(_SILENCE):
                    answer = await stack.enter_async_context(send_call(call))
                    if not answer.is_fine:
                        raise _refusal(_Answer(answer.status, _parse(await answer.read()), None))
                while True:
                    with anyio.fail_after(_SILENCE):
                        chunk = await answer.receive()
                    if not chunk:
                        return
                    for event in reader.feed(chunk):
                        progress = _read_progress(event.kind, event.data)
                        if progress is not None:
                            yield progress
        except (NoConnectionError, BrokenExchangeError, IncompleteAnswerError, OSError) as error:
            raise self._connection_error(error) from error

    async def answer(self, run_id: str, question: str | None, choice: str, form: Any, comment: str) -> None:
        body: dict[str, Any] = {"choice": choice, "comment": comment}
        body |= {} if question is None else {"node": question}
        body |= {} if form is None else {"form": form}
        await self._ask("POST", f"{_path_of(run_id)}/answer", body, may_repeat=False)

    async def cancel(self, run_id: str) -> None:
        await self._ask("POST", f"{_path_of(run_id)}/cancel", {})

    async def list_runs(self, flow: str, status: str, labels: Mapping[str, str]) -> Sequence[RunInfo]:
        filters = [*{"flow": flow, "status": status}.items(), *(("label", f"{name}={labels[name]}") for name in labels)]
        query = "&".join(f"{name}={_quote(value)}" for name, value in filters if value)
        data = await self._ask("GET", f"/runs?{query}")
        rows = data.get("runs") if is_map(data) else None
        if not isinstance(rows, list):
            raise _unreadable()
        return [_read_info(each) for each in cast("list[Any]", rows)]

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
        *,
        may_repeat: bool = True,
    ) -> Any:
        """The answer's JSON; raises what the server refuses, and `ClientError` where no answer comes."""
        call = self._call(method, path, body, headers)
        for attempt in range(1, _TRIES + 1):
            pause, is_last = pause_before(attempt + 1), attempt == _TRIES
            try:
                with anyio.fail_after(_SILENCE):
                    reply = await _send(call)
            except NoConnectionError as error:
                if is_last:
                    raise ClientError(f"no server answers at {self}: {error}") from error
            except (BrokenExchangeError, OSError) as error:
                if is_last or not may_repeat or (isinstance(error, BrokenExchangeError) and error.is_final):
                    raise self._connection_error(error) from error
            else:
                if reply.status < 300:
                    return reply.data
                if is_last or reply.status not in _RETRY_STATUSES:
                    raise _refusal(reply)
                pause = max(pause, min(_LONGEST_PAUSE, reply.retry_after or 0.0))
            await anyio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Sequence[tuple[str, str]]
    ) -> HttpCall:
        fields = list(headers)
        if self._key is not None:
            fields.append(("authorization", f"Bearer {self._key}"))
        if body is not None:
            fields.append(("content-type", "application/json"))
        data = b""
        if body is not None:
            try:
                with refusing_no_json("what is sent"):
                    data = json.dumps(to_jsonable_python(dict(body)), allow_nan=False).encode()
            except RunError as error:
                raise ClientError(str(error)) from error
        return HttpCall(f"{self._base}{path}", fields, data, method)

    def _connection_error(self, error: Exception) -> ClientError:
        return ClientError(f"the connection to {self} broke: {str(error) or f'it was silent for {_SILENCE:g} s'}")

    def __str__(self) -> str:
        return self._name


def _show_server(address: str) -> str:
    """The server, without what an address may hold of secrets; `ClientError` where it is no address."""
    try:
        parts = urlsplit(address)
        if parts.hostname and (parts.port is None or parts.port):
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        pass
    raise ClientError("the server's address is none: one such as http://127.0.0.1:8000 is expected")


async def _send(call: HttpCall) -> _Answer:
    async with send_call(call) as answer:
        wait = answer.headers.get("retry-after", "")
        seconds = float(wait) if wait.isascii() and wait.isdecimal() else None
        return _Answer(answer.status, _parse(await answer.read()), seconds)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _quote(text: str) -> str:
    if not isinstance(cast(Any, text), str):
        raise ClientError(f"a name is a text, not {type(text).__name__}")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise ClientError(f"{text!r:.80} cannot be sent: it has half of a surrogate pair") from None


def _to_header(text: str) -> str:
    """A text as a header's value: as it is, or as RFC 8187 writes it.

    >>> _to_header("Ada, 50%"), _to_header("山"), _to_header(" a")
    ('Ada, 50%', "UTF-8''%E5%B1%B1", "UTF-8''%20a")
    """
    is_plain = text.isascii() and text.isprintable() and text == text.strip(' "') and text[:6].upper() != "UTF-8'"
    return text if is_plain else f"UTF-8''{_quote(text)}"


def _path_of(run_id: str) -> str:
    try:
        return f"/runs/{check_run_id(run_id)}"
    except InputError as error:
        raise ClientError(str(error)) from None


def _refusal(answer: _Answer) -> ClientError:
    """Makes an error of the server's refusal."""
    data = answer.data if is_map(answer.data) else dict[str, Any]()
    detail = data.get("detail") or data.get("title") or f"the server answers {answer.status}"
    return ClientError(str(detail), answer.status)


def _read_run(data: Any) -> CalledRun:
    """A run as the server tells it."""
    if not is_map(data) or not isinstance(data.get("run_id"), str):
        raise _unreadable()
    error = data["error"] if is_map(data.get("error")) else dict[str, Any]()
    questions: Any = data.get("questions") or ()
    if not isinstance(questions, list | tuple):
        raise _unreadable()
    return CalledRun(
        data["run_id"],
        str(data.get("flow", "")),
        str(data.get("status", "running")),
        data.get("outputs") or {},
        error.get("message"),
        error.get("node"),
        [_read_question(each) for each in cast("Sequence[Any]", questions)],
    )


def _read_info(data: Any) -> RunInfo:
    """A run of a list; what a later server tells beside is left out."""
    try:
        return RunInfo(**{name: data[name] for name in RunInfo._fields if name in data})
    except TypeError:
        raise _unreadable() from None


def _unreadable() -> ClientError:
    return ClientError("the server's answer is not that of `flowengine serve`")


def _read_question(data: Any) -> RunQuestion:
    try:
        return RunQuestion(data["node"], data["message"], data["choices"], data.get("form"), data.get("expires"))
    except (AttributeError, LookupError, TypeError):
        raise _unreadable() from None


def _read_progress(kind: str, text: str) -> RunProgress | None:
    data = _parse(text.encode())
    if not is_map(data):
        return None
    match kind:
        case "progress":
            return RunProgress(str(data.get("node", "")), str(data.get("state", "")))
        case "token":
            return RunProgress(str(data.get("node", "")), text=str(data.get("text", "")))
        case "result" | "question" | "interrupted" | "error" if "run_id" in data:
            return RunProgress(run=_read_run(data))
        case "error":
            status = data.get("status")
            raise _refusal(_Answer(status if isinstance(status, int) else 500, data, None))
        case _:
            return None
