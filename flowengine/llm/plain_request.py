"""A request as plain data that may be written down and shown, and back again.

Secrets must not travel in records: of `extra`, which reaches the vendor as it is and may hold keys,
headers and addresses, only numbers, booleans and a few well-known options keep their value. The
messages are left out; records hold them beside this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from flowengine.llm.messages import from_dict
from flowengine.llm.model import Request

__all__ = ["MASKED", "as_json", "plain_request", "request_of", "without_secrets"]

MASKED: Final = "***"

_HARMLESS: Final = frozenset({"reasoning_effort", "service_tier", "stop", "thinking", "verbosity"})
"""Options whose values are no secrets, whatever they hold."""


def plain_request(request: Request) -> dict[str, Any]:
    """What shapes the answer beside the messages, as JSON values; what has its default is left out.

    >>> plain_request(Request("gpt-4o", (), 0.2, extra={"seed": 7, "api_key": "sk-1"}))
    {'model': 'gpt-4o', 'temperature': 0.2, 'extra': {'seed': 7, 'api_key': '***'}}
    """
    shape: dict[str, Any] = {"model": as_json(request.model)}
    if request.temperature is not None:
        shape["temperature"] = as_json(request.temperature)
    if request.max_tokens is not None:
        shape["max_tokens"] = as_json(request.max_tokens)
    if request.tools:
        shape["tools"] = as_json(list(request.tools))
    if request.response_schema is not None:
        shape["response_schema"] = as_json(request.response_schema)
        shape["response_name"] = as_json(request.response_name)
    if request.extra:
        shape["extra"] = as_json(without_secrets(request.extra))
    return shape


def request_of(shape: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> Request:
    """The request that `plain_request` described, masked values included."""
    given = {name: value for name, value in shape.items() if name != "tools"}
    tools = cast("Iterable[Mapping[str, Any]]", shape.get("tools", ()))
    return Request(messages=tuple(from_dict(each) for each in messages), tools=tuple(tools), **given)


def without_secrets(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a model call, the values that could be secrets masked."""
    return {
        name: value if value is None or isinstance(value, int | float) or name in _HARMLESS else MASKED
        for name, value in extra.items()
    }


def as_json(value: Any) -> Any:
    """The value as JSON has it; text that no encoding can carry is mended."""
    if value is None or type(value) in (bool, int, float) or (type(value) is str and value.isascii()):
        return value
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else repr(value)
