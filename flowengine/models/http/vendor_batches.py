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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import anyio

from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.loop_client import HttpCall, send_call
from flowengine.models.http.vendor_endpoint import VendorEndpoint

__all__ = ["BATCHING", "BatchAnswer", "BatchLook", "BatchableCall", "VendorBatches", "batches_of"]

_ID: Final = re.compile(r"[\w-]{1,200}", re.ASCII)
"""Of batches and files: it goes into addresses."""
_SECONDS: Final = 120.0
"""For one request to the vendor."""
_OPENAI_ENDED: Final = frozenset({"completed", "expired", "cancelled", "failed"})


@dataclass(frozen=True)
class BatchableCall:
    """One request as it would be sent alone."""

    endpoint: VendorEndpoint
    post: HttpCall
    provider: str
    model: str

    @property
    def body(self) -> Mapping[str, Any]:
        """What is asked."""
        return cast("dict[str, Any]", json.loads(self.post.body))


class Batcher(Protocol):
    """Answers requests through batches."""

    def answer(self, call: BatchableCall, /) -> Awaitable[tuple[Mapping[str, Any], bool]]:
        """The vendor's answer, and whether it came at the price of a batch."""
        ...


BATCHING: Final[ContextVar[Batcher | None]] = ContextVar("BATCHING", default=None)
"""Who answers requests through batches, in the tasks below the one that set it."""

State: TypeAlias = Literal["running", "ended", "failed"]


class BatchLook(NamedTuple):
    """How a batch stands."""

    state: State
    """`failed`: nothing of it was done."""
    error: str = ""


class BatchAnswer(NamedTuple):
    """What came back for one request."""

    body: Mapping[str, Any] | None
    error: ModelError | None
    """Why it was not answered; None with no body: it was not done, and may be asked again."""


class VendorBatches(Protocol):
    """The batch interface of one vendor, at one address."""

    async def submit(self, requests: Mapping[str, BatchableCall], mark: str) -> str:
        """Send a batch; its id. `mark` is by what it is found again, where the vendor keeps one."""
        ...

    async def find(self, mark: str, ids: Iterable[str], since: float) -> str | None:
        """The batch of a mark that was sent, if it was: whoever sent it died before it knew its id."""
        ...

    async def look(self, batch: str) -> BatchLook: ...

    async def answers(self, batch: str) -> Mapping[str, BatchAnswer]: ...

    async def cancel(self, batch: str) -> None: ...


class _Exchange:
    """Requests below the address that a call goes to."""

    def __init__(self, call: BatchableCall, suffix: str) -> None:
        self._endpoint = call.endpoint
        self._root, _, query = call.post.url.partition("?")
        self._root = self._root.removesuffix(suffix)
        self._query = f"?{query}" if query else ""
        self._headers = [pair for pair in call.post.headers if pair[0].lower() not in ("content-type", "accept")]

    async def get(self, path: str) -> bytes:
        return await self._send(HttpCall(self._address(path), self._headers, b"", "GET"))

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> Mapping[str, Any]:
        call = HttpCall(self._address(path), [*self._headers, ("content-type", kind)], body)
        return self.parse(await self._send(call))

    async def look(self, path: str) -> Mapping[str, Any]:
        return self.parse(await self.get(path))

    def parse(self, body: bytes) -> Mapping[str, Any]:
        return self._endpoint.parse(body)

    def failure(self, status: int, body: Mapping[str, Any]) -> ModelError:
        return self._endpoint.failure(status, json.dumps(body).encode(), {})

    def _address(self, path: str) -> str:
        if "?" in path and self._query:
            return f"{self._root}{path}&{self._query[1:]}"
        return f"{self._root}{path}{self._query}"

    async def _send(self, call: HttpCall) -> bytes:
        with self._endpoint.telling_errors(_SECONDS), anyio.fail_after(_SECONDS):
            async with send_call(call) as answer:
                body = await answer.read()
                answer.keep_arrived()
        if not answer.is_fine:
            raise self._endpoint.failure(answer.status, body, answer.headers)
        return body


def _lines(body: bytes) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for line in body.split(b"\n"):
        try:
            value: Any = json.loads(line) if line.strip() else None
        except ValueError:
            raise TransientModelError("the vendor's file of answers breaks off") from None
        if isinstance(value, dict):
            found.append(cast("dict[str, Any]", value))
    return found


def _id_of(said: Mapping[str, Any]) -> str:
    found = said.get("id")
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise TransientModelError("the vendor's answer has no id")
    return found


def _object(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class OpenAIBatches:
    """OpenAI's: a file, a batch of it, a file of answers and one of errors."""

    def __init__(self, call: BatchableCall) -> None:
        self._server = _Exchange(call, "/chat/completions")

    async def submit(self, requests: Mapping[str, BatchableCall], mark: str) -> str:
        lines = [
            json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": call.body})
            for name, call in requests.items()
        ]
        uploaded = await self._upload("\n".join(lines).encode(), mark)
        asked = {
            "input_file_id": uploaded,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"flowengine": mark},
        }
        return _id_of(await self._server.post("/batches", json.dumps(asked).encode()))

    async def _upload(self, content: bytes, mark: str) -> str:
        boundary = secrets.token_hex(16)
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'.encode(),
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{mark}.jsonl"\r\n'.encode(),
            b"Content-Type: application/jsonl\r\n\r\n",
            content,
            f"\r\n--{boundary}--\r\n".encode(),
        ]
        said = await self._server.post("/files", b"".join(parts), f"multipart/form-data; boundary={boundary}")
        return _id_of(said)

    async def find(self, mark: str, ids: Iterable[str], since: float) -> str | None:
        listed = await self._server.look("/batches?limit=100")
        for each in map(_object, listed.get("data") or ()):
            if _object(each.get("metadata")).get("flowengine") == mark:
                return _id_of(each)
        return None

    async def look(self, batch: str) -> BatchLook:
        found = await self._server.look(f"/batches/{batch}")
        status = str(found.get("status"))
        if status not in _OPENAI_ENDED:
            return BatchLook("running")
        if status == "failed":
            told = [str(_object(each).get("message", "")) for each in _object(found.get("errors")).get("data") or ()]
            return BatchLook("failed", "; ".join(told) or "the vendor refused the batch")
        return BatchLook("ended")

    async def answers(self, batch: str) -> Mapping[str, BatchAnswer]:
        found = await self._server.look(f"/batches/{batch}")
        answers: dict[str, BatchAnswer] = {}
        for name in ("error_file_id", "output_file_id"):
            file = _id_of({"id": found[name]}) if found.get(name) else ""
            for line in _lines(await self._server.get(f"/files/{file}/content")) if file else ():
                answers[str(line.get("custom_id"))] = self._read(line)
        return answers

    def _read(self, line: Mapping[str, Any]) -> BatchAnswer:
        response, error = _object(line.get("response")), _object(line.get("error"))
        body = _object(response.get("body"))
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

    async def submit(self, requests: Mapping[str, BatchableCall], mark: str) -> str:
        asked = [{"custom_id": name, "params": call.body} for name, call in requests.items()]
        return _id_of(await self._server.post("/batches", json.dumps({"requests": asked}).encode()))

    async def find(self, mark: str, ids: Iterable[str], since: float) -> str | None:
        """There are no marks here: the answers tell whose they are, once there are some."""
        wanted = set(ids)
        listed = await self._server.look("/batches?limit=100")
        for each in map(_object, listed.get("data") or ()):
            counts = _object(each.get("request_counts"))
            total = sum(count for count in counts.values() if isinstance(count, int))
            if total != len(wanted):
                continue
            if each.get("processing_status") != "ended":
                return _id_of(each)  # Looked at again when it has ended.
            if wanted & set(await self.answers(_id_of(each))):
                return _id_of(each)
        return None

    async def look(self, batch: str) -> BatchLook:
        found = await self._server.look(f"/batches/{batch}")
        return BatchLook("ended" if found.get("processing_status") == "ended" else "running")

    async def answers(self, batch: str) -> Mapping[str, BatchAnswer]:
        lines = _lines(await self._server.get(f"/batches/{batch}/results"))
        return {str(line.get("custom_id")): self._read(_object(line.get("result"))) for line in lines}

    def _read(self, result: Mapping[str, Any]) -> BatchAnswer:
        kind = result.get("type")
        if kind == "succeeded":
            return BatchAnswer(_object(result.get("message")), None)
        if kind in ("expired", "canceled"):
            return BatchAnswer(None, None)
        error = _object(result.get("error"))
        inner = _object(error.get("error")) or error
        status = {"invalid_request_error": 400, "overloaded_error": 529, "rate_limit_error": 429}
        return BatchAnswer(None, self._server.failure(status.get(str(inner.get("type")), 500), {"error": inner}))

    async def cancel(self, batch: str) -> None:
        await self._server.post(f"/batches/{batch}/cancel", b"{}")


_VENDORS: Final[Mapping[str, Callable[[BatchableCall], VendorBatches]]] = {
    "openai": OpenAIBatches,
    "anthropic": AnthropicBatches,
}


def batches_of(call: BatchableCall) -> VendorBatches:
    """The batch interface of the vendor that a call goes to."""
    make = _VENDORS.get(call.provider)
    if make is None:
        raise PermanentModelError(f"{call.provider} has no batches: {', '.join(sorted(_VENDORS))} have")
    return make(call)
