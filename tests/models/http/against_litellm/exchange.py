"""Sends a case both ways to the recording server, and tells where what was sent or what came of it differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import anyio

from flowengine.errors import ModelError
from flowengine.models.http.native_model import NativeModel
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.model import Model, Reply
from tests.models.http.against_litellm.grid import Case
from tests.support.model_server import ModelServer

__all__ = ["Divergence", "diverge"]

KEY = "sk-0a1b2c3d4e5f"


class Divergence(NamedTuple):
    """A place where both ways differ; a value that is not there is None."""

    place: str
    """`body.messages.0.content`, `reply.usage.cached_tokens`, `error`, …"""
    litellm: Any
    native: Any


async def diverge(case: Case, server: ModelServer) -> list[Divergence]:
    """Where the two ways differ."""
    address = server.url if case.vendor == "openai" else server.root
    settings = {"api_key": KEY, "api_base": address, **case.settings}
    name = case.request.model
    models: list[Model] = [
        LiteLLMModel(name, case.vendor, settings=settings),
        NativeModel(name, case.vendor, settings=settings),
    ]
    theirs, ours = [await _outcome(case, model, server) for model in models]
    return sorted(set(_compare("", theirs, ours)))


async def _outcome(case: Case, model: Model, server: ModelServer) -> dict[str, Any]:
    server.requests.clear()
    server.respond_with([case.answer])
    told = await _told(case, model)
    if not server.requests:
        return {"sent": False, **told}
    received = server.requests[0]
    authorization = {each: received.headers.get(each) for each in ("authorization", "x-api-key", "anthropic-version")}
    return {"path": received.path, "headers": authorization, "body": received.body, **told}


async def _told(case: Case, model: Model) -> dict[str, Any]:
    said = None
    try:
        with anyio.fail_after(30):
            if case.stream:
                said, reply = await _read_stream(case, model)
            else:
                reply = await model.complete(case.request)
    except ModelError as error:
        wait = getattr(error, "retry_after", None)
        limited = getattr(error, "is_rate_limit", False)
        about = {"class": type(error).__name__, "retry_after": wait, "is_rate_limit": limited}
        return {"error": about, "reply": None if error.reply is None else _plain(error.reply)}
    return {"reply": _plain(reply), **({"said": said} if said is not None else {})}


async def _read_stream(case: Case, model: Model) -> tuple[str, Reply]:
    async with model.stream(case.request) as pieces:
        got = [each async for each in pieces]
    last = got.pop()
    assert isinstance(last, Reply)
    return "".join(each for each in got if isinstance(each, str)), last


def _plain(reply: Reply) -> dict[str, Any]:
    shape = reply._asdict() | {"usage": reply.usage._asdict(), "cost_usd": _rounded(reply.cost_usd)}
    shape["tool_calls"] = [each._asdict() | {"arguments": _value(each.arguments)} for each in reply.tool_calls]
    del shape["seconds"]
    return cast("dict[str, Any]", json.loads(json.dumps(shape)))


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, 12)


def _value(arguments: str) -> Any:
    """How a value is written as JSON makes no difference."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _compare(place: str, theirs: Any, ours: Any) -> Iterator[Divergence]:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        one, other = cast("Mapping[str, Any]", theirs), cast("Mapping[str, Any]", ours)
        for name in {**one, **other}:
            yield from _compare(f"{place}.{name}".lstrip("."), one.get(name), other.get(name))
    elif (
        isinstance(theirs, list)
        and isinstance(ours, list)
        and len(cast("list[Any]", theirs)) == len(cast("list[Any]", ours))
    ):
        for number, (one, other) in enumerate(zip(cast("list[Any]", theirs), cast("list[Any]", ours), strict=True)):
            yield from _compare(f"{place}.{number}", one, other)
    elif theirs != ours:
        yield Divergence(place, json.dumps(theirs, ensure_ascii=False), json.dumps(ours, ensure_ascii=False))
