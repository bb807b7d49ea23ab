"""Speaks the batch interfaces of OpenAI and Anthropic: send many requests, ask how they stand, take their answers.

OpenAI takes a file of JSON lines and makes a batch of it; Anthropic takes the requests themselves. Both answer within a
day, in any order, and some requests may come back failed or not at all. Who gathers requests and waits is not known
here. Source: https://platform.openai.com/docs/api-reference/batch and
https://docs.anthropic.com/en/api/creating-message-batches.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import anyio

from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.chat_protocol import as_object, list_of_objects
from flowengine.models.http.loop_client import BrokenExchangeError, HttpCall, send_call
from flowengine.models.http.status_errors import status_of_body
from flowengine.models.http.vendor_endpoint import Patience, VendorEndpoint

_ID: Final = re.compile(r"[\w-]{1,200}", re.ASCII)
"""The id of a batch or a file: it goes into addresses."""
_SECONDS: Final = 120.0
"""Seconds for one request to the vendor."""
_MOST_PAGES: Final = 50
"""Pages, of a hundred batches each, that are looked through for one."""
_CLOCKS: Final = 3600.0
"""Seconds by which the vendor's clock may be behind."""
_LARGEST: Final = 2_000_000_000
"""Bytes of the answers of one batch; they are read line by line."""
_LONGEST_LINE: Final = 32 * 1024 * 1024
"""Bytes of one answer among them."""
_OPENAI_ENDED: Final = frozenset({"completed", "expired", "cancelled", "failed"})


@dataclass(frozen=True)
class BatchableCall:
    """One request as it would be sent alone."""

    endpoint: VendorEndpoint
    post: HttpCall
    provider: str
    model: str


State: TypeAlias = Literal["running", "ended", "failed"]


class BatchLook(NamedTuple):
    """The state of a batch."""

    state: State
    """`failed`: nothing of it was done."""
    error: str = ""


class BatchAnswer(NamedTuple):
    """The answer to one request of a batch."""

    body: Mapping[str, Any] | None
    error: ModelError | None
    """Why it was not answered; None with no body: it was not done, and may be asked again."""


class _Exchange:
    """Requests below the address that a call goes to."""

    def __init__(self, call: BatchableCall, suffix: str) -> None:
        self._endpoint = call.endpoint
        self._root, _, query = call.post.url.partition("?")
        self._root = self._root.removesuffix(suffix)
        self._query = f"?{query}" if query else ""
        self._headers = [pair for pair in call.post.headers if pair[0].lower() not in ("content-type", "accept")]

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> Mapping[str, Any]:
        call = HttpCall(self._address(path), [*self._headers, ("content-type", kind)], body)
        return await self._endpoint.exchange(call, _SECONDS)

    async def look(self, path: str) -> Mapping[str, Any]:
        return await self._endpoint.exchange(HttpCall(self._address(path), self._headers, b"", "GET"), _SECONDS)

    async def read_lines(self, path: str, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Hand over the objects of a file of JSON lines as they come."""
        rest = b""
        with self._endpoint.telling_errors(Patience(_SECONDS)):
            async with send_call(HttpCall(self._address(path), self._headers, b"", "GET")) as answer:
                answer.largest = _LARGEST
                is_open = answer.is_fine
                while is_open:
                    with anyio.fail_after(_SECONDS):
                        chunk = await answer.receive()
                    is_open = bool(chunk)
                    *lines, rest = (rest + chunk).split(b"\n") if is_open else (rest, b"")
                    if len(rest) > _LONGEST_LINE:
                        raise BrokenExchangeError(f"a line of the answers has more than {_LONGEST_LINE:,} bytes")
                    for each in _objects(lines):
                        take(each)
                failure = None if answer.is_fine else await answer.read()
                answer.keep_arrived()
        if failure is not None:
            raise self._endpoint.failure(answer.status, failure, answer.headers)

    async def list_batches(self, since: float, created: str, after: str) -> AsyncGenerator[Mapping[str, Any]]:
        """The batches that were made from a time on, the newest first, page by page."""
        last = ""
        for _ in range(_MOST_PAGES):
            page = await self.look(f"/batches?limit=100{f'&{after}={last}' if last else ''}")
            for each in list_of_objects(page.get("data")):
                if _seconds_of(each.get(created)) < since - _CLOCKS:
                    return
                last = _id_of(each)
                yield each
            if not last or page.get("has_more") is not True:
                return

    def failure(self, status: int, body: Mapping[str, Any]) -> ModelError:
        return self._endpoint.failure(status, json.dumps(body).encode(), {})

    def _address(self, path: str) -> str:
        if "?" in path and self._query:
            return f"{self._root}{path}&{self._query[1:]}"
        return f"{self._root}{path}{self._query}"


def _objects(lines: list[bytes]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            value: Any = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            raise TransientModelError("the vendor's file of answers breaks off") from None
        if isinstance(value, dict):
            yield cast("dict[str, Any]", value)


def _seconds_of(moment: Any) -> float:
    """A moment as the vendors write it, as Unix seconds; what cannot be read counts as now.

    >>> _seconds_of(1700000000), _seconds_of("2023-11-14T22:13:20Z"), _seconds_of(None)
    (1700000000.0, 1700000000.0, inf)
    """
    try:
        return float(moment) if isinstance(moment, int) else datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError, OverflowError):
        return inf


def _id_of(resource: Mapping[str, Any]) -> str:
    id = resource.get("id")
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise TransientModelError("the vendor's answer has no id")
    return id


class OpenAIBatches:
    """OpenAI's: a file, a batch of it, a file of answers and one of errors."""

    def __init__(self, call: BatchableCall) -> None:
        service = "/responses" if call.post.url.partition("?")[0].endswith("/responses") else "/chat/completions"
        self._server = _Exchange(call, service)
        self._place = f"/v1{service}"

    async def submit(self, requests: Mapping[str, bytes], mark: str) -> str:
        """Send a batch (name of a request → its body); its id. `mark` is by what it is found again, where the vendor
        keeps one."""
        head, place = b'{"custom_id": "%b", "method": "POST", "url": "%b", "body": %b}\n', self._place.encode()
        uploaded = await self._upload([head % (name.encode(), place, body) for name, body in requests.items()], mark)
        order = {
            "input_file_id": uploaded,
            "endpoint": self._place,
            "completion_window": "24h",
            "metadata": {"flowengine": mark},
        }
        return _id_of(await self._server.post("/batches", json.dumps(order).encode()))

    async def _upload(self, lines: list[bytes], mark: str) -> str:
        boundary = secrets.token_hex(16)
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'.encode(),
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{mark}.jsonl"\r\n'.encode(),
            b"Content-Type: application/jsonl\r\n\r\n",
            *lines,
            f"\r\n--{boundary}--\r\n".encode(),
        ]
        file = await self._server.post("/files", b"".join(parts), f"multipart/form-data; boundary={boundary}")
        return _id_of(file)

    async def find(self, mark: str, names: Collection[str], since: float) -> str | None:
        """The batch of a mark that was sent, if it was: its sender died before it knew the id. A
        `TransientModelError` where that cannot be told yet."""
        async with aclosing(self._server.list_batches(since, "created_at", "after")) as batches:
            async for each in batches:
                if as_object(each.get("metadata")).get("flowengine") == mark:
                    return _id_of(each)
        return None

    async def look(self, batch: str) -> BatchLook:
        resource = await self._server.look(f"/batches/{batch}")
        status = str(resource.get("status"))
        if status not in _OPENAI_ENDED:
            return BatchLook("running")
        if status == "failed":
            errors = list_of_objects(as_object(resource.get("errors")).get("data"))
            messages = [str(each.get("message", "")) for each in errors]
            return BatchLook("failed", "; ".join(messages) or "the vendor refused the batch")
        return BatchLook("ended")

    async def read_answers(self, batch: str, take: Callable[[str, BatchAnswer], None]) -> None:
        """Hand over the answers of a batch that has ended, one by one, under the names of their requests."""
        resource = await self._server.look(f"/batches/{batch}")
        for name in ("error_file_id", "output_file_id"):
            if resource.get(name):
                file = _id_of({"id": resource[name]})
                await self._server.read_lines(
                    f"/files/{file}/content", lambda line: take(str(line.get("custom_id")), self._read(line))
                )

    def _read(self, line: Mapping[str, Any]) -> BatchAnswer:
        response, error = as_object(line.get("response")), as_object(line.get("error"))
        body = as_object(response.get("body"))
        if response.get("status_code") == 200:
            return BatchAnswer(body, None)
        if error.get("code") in ("batch_expired", "batch_cancelled"):
            return BatchAnswer(None, None)
        status = response.get("status_code")
        return BatchAnswer(
            None, self._server.failure(status if isinstance(status, int) else 500, body or {"error": error})
        )

    async def cancel(self, batch: str) -> None:
        await self._server.post(f"/batches/{batch}/cancel", b"{}")


class AnthropicBatches:
    """Anthropic's: the requests as they are, and answers as lines."""

    def __init__(self, call: BatchableCall) -> None:
        self._server = _Exchange(call, "")

    async def submit(self, requests: Mapping[str, bytes], mark: str) -> str:
        entries = [b'{"custom_id": "%b", "params": %b}' % (name.encode(), body) for name, body in requests.items()]
        return _id_of(await self._server.post("/batches", b'{"requests": [%b]}' % b",".join(entries)))

    async def find(self, mark: str, names: Collection[str], since: float) -> str | None:
        """There are no marks here: the answers tell whose they are, once there are some."""
        ids, may_come = set(names), False
        async with aclosing(self._server.list_batches(since, "created_at", "after_id")) as batches:
            async for each in batches:
                counts = as_object(each.get("request_counts"))
                if sum(count for count in counts.values() if isinstance(count, int)) != len(ids):
                    continue
                if each.get("processing_status") != "ended":
                    may_come = True
                elif await self._has_any(_id_of(each), ids):
                    return _id_of(each)
        if may_come:
            raise TransientModelError("a batch of that size is at work, and only its answers tell whose it is")
        return None

    async def _has_any(self, batch: str, ids: Collection[str]) -> bool:
        ids_there: set[str] = set()
        await self._server.read_lines(
            f"/batches/{batch}/results", lambda line: ids_there.add(str(line.get("custom_id")))
        )
        return not ids_there.isdisjoint(ids)

    async def look(self, batch: str) -> BatchLook:
        resource = await self._server.look(f"/batches/{batch}")
        return BatchLook("ended" if resource.get("processing_status") == "ended" else "running")

    async def read_answers(self, batch: str, take: Callable[[str, BatchAnswer], None]) -> None:
        await self._server.read_lines(
            f"/batches/{batch}/results",
            lambda line: take(str(line.get("custom_id")), self._read(as_object(line.get("result")))),
        )

    def _read(self, result: Mapping[str, Any]) -> BatchAnswer:
        kind = result.get("type")
        if kind == "succeeded":
            return BatchAnswer(as_object(result.get("message")), None)
        if kind in ("expired", "canceled"):
            return BatchAnswer(None, None)
        error = as_object(result.get("error"))
        inner = as_object(error.get("error")) or error
        return BatchAnswer(None, self._server.failure(status_of_body({"error": inner}), {"error": inner}))

    async def cancel(self, batch: str) -> None:
        await self._server.post(f"/batches/{batch}/cancel", b"{}")


VendorBatches: TypeAlias = OpenAIBatches | AnthropicBatches
"""The batch interface of one vendor, at one address."""

_VENDORS: Final[Mapping[str, type[VendorBatches]]] = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}


def batches_of(call: BatchableCall) -> VendorBatches:
    """The batch interface of the vendor that a call goes to."""
    make = _VENDORS.get(call.provider)
    if make is None:
        raise PermanentModelError(f"{call.provider} has no batches: {', '.join(sorted(_VENDORS))} have")
    return make(call)
