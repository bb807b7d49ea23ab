"""Requests that may not leave this machine do not."""

from __future__ import annotations

from typing import Any

import pytest
from model_server import ModelServer

from flowengine.errors import ModelConfigError
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.outbound import VARIABLE, allow_requests, check_outbound

ASKED = Request("gpt-4o-mini", (Message("user", "hi"),), timeout=10)


def model(**settings: Any) -> LiteLLMModel:
    return LiteLLMModel("gpt-4o-mini", "openai", settings={"api_key": "secret", **settings})


async def test_a_forbidden_request_is_refused_before_litellm_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.raises(ModelConfigError, match=r"openai/gpt-4o-mini was not asked\. In a test: script the answers"):
        await model().complete(ASKED)
    with pytest.raises(ModelConfigError, match="forbidden here"):
        async with model().stream(ASKED):
            pass


async def test_this_machine_may_be_asked(monkeypatch: pytest.MonkeyPatch, server: ModelServer) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    reply = await model(api_base=server.url).complete(ASKED)
    assert reply.content
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:80/v1", "http://[::1]:80", "localhost:11434", "http://localhost"]
)
def test_loopback_addresses_are_known(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    check_outbound("m", {"api_base": address})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"api_base": None},
        {"api_base": "https://api.openai.com/v1"},
        {"api_base": "http://localhost.example.com"},
        {"api_base": "http://127.0.0.1@example.com"},
        {"api_base": "http://127.0.0.1", "base_url": "https://example.com"},
    ],
)
def test_everything_else_leads_away(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.raises(ModelConfigError):
        check_outbound("m", settings)
    with allow_requests():
        check_outbound("m", settings)


@pytest.mark.parametrize("value", ["1", "", "yes"])
def test_other_values_forbid_nothing(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    check_outbound("m", {})
    monkeypatch.delenv(VARIABLE)
    check_outbound("m", {})


async def test_an_address_of_one_request_counts_as_well(monkeypatch: pytest.MonkeyPatch, server: ModelServer) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    away = Request("m", ASKED.messages, timeout=10, extra={"base_url": "https://example.com"})
    with pytest.raises(ModelConfigError):
        await model(api_base=server.url).complete(away)
