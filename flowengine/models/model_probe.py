"""Asks vendors whether they answer: a model for one token, a self-hosted server for its list of models.

Each is asked once, for a few seconds, with the key and the address that runs would use. What came back is told as a
line; nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import anyio

from flowengine.core import call_abandonable
from flowengine.errors import FlowEngineError, ModelConfigError
from flowengine.models.definitions import ModelDefinition, ModelMeaning, find_meaning, read_said_key
from flowengine.models.http import (
    BrokenExchangeError,
    HttpCall,
    NoConnectionError,
    as_object,
    list_of_objects,
    send_call,
    show_address,
)
from flowengine.models.litellm import secrets_of
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.open import address_of, get_llm, is_address
from flowengine.models.outbound import check_outbound
from flowengine.models.vendors import OTHERS, VENDORS, ProviderSettings, Vendor, first_set, key_of, vendor_named

_TIMEOUT: Final = 15.0
"""Seconds for one vendor."""
_LONGEST: Final = 300
"""Characters of what a server said."""
_LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a list of models."""


class ProbeAnswer(NamedTuple):
    """The answer to a probe."""

    subject: str
    """The model, or the vendor whose list was asked for."""
    text: str
    is_fine: bool


@dataclass(frozen=True, slots=True)
class ProbePlace:
    """The environment in which models are probed."""

    environ: Mapping[str, str] = field(repr=False)
    providers: Mapping[str, ProviderSettings]
    """The project's."""
    default_provider: str | None = None
    models: Mapping[str, ModelDefinition] = field(default_factory=dict[str, ModelDefinition])
    """Names of the project's own."""

    def meaning(self, model: str) -> ModelMeaning:
        return find_meaning(model, self.models, self.environ, self.default_provider)

    def address(self, vendor: Vendor) -> str | None:
        settings = self.providers.get(vendor.name)
        return (settings and settings.base_url) or address_of(vendor, self.environ)

    def uses(self, vendor: Vendor) -> bool:
        """Tells whether a key or an address of it is set."""
        settings = self.providers.get(vendor.name)
        is_placed = first_set(vendor.base_variables, self.environ) or (settings and settings.base_url)
        has_key = key_of(vendor, self.environ) or (
            settings and (settings.key_command or self.environ.get(settings.key_env or ""))
        )
        return bool(has_key or is_placed)

    async def key(self, vendor: Vendor, definition: ModelDefinition | None = None) -> str | None:
        """The key of a vendor, or of a model of it. A command may ask a person for it, so it waits in a thread."""
        settings = self.providers.get(vendor.name)
        ask = partial(read_said_key, vendor.name, self.environ, definition, settings)
        return await call_abandonable(ask)


async def probe(place: ProbePlace, models: Sequence[str]) -> list[ProbeAnswer]:
    """Probes these models, and the other vendors whose key or address is set."""
    names = [*dict.fromkeys(models)]
    covered = {provider for each in names if (provider := _provider(each, place)) is not None}
    vendors = [each for each in (*VENDORS.values(), *OTHERS.values()) if place.uses(each) and each.name not in covered]
    answers: dict[int, ProbeAnswer] = {}

    async def ask(number: int, subject: str | Vendor) -> None:
        if isinstance(subject, Vendor) and subject.default_model is not None:
            subject = f"{subject.name}/{subject.default_model}"
        answers[number] = await (_model(subject, place) if isinstance(subject, str) else _list(subject, place))

    async with anyio.create_task_group() as tasks:
        for number, subject in enumerate([*names, *vendors]):
            tasks.start_soon(ask, number, subject)
    return [answers[number] for number in sorted(answers)]


def _provider(model: str, place: ProbePlace) -> str | None:
    try:
        return place.meaning(model).choice.provider
    except ModelConfigError:
        return None


async def _model(name: str, place: ProbePlace) -> ProbeAnswer:
    """One token of a model."""
    began = perf_counter()
    try:
        meaning = place.meaning(name)
        provider, own = meaning.choice.provider, meaning.definition
        settings = place.providers.get(provider)
        base_url = (own and own.base_url) or (settings and settings.base_url)
        arguments: dict[str, Any] = {"api_base": base_url} if base_url else {}
        key = await place.key(vendor_named(provider), own)
        arguments |= {} if key is None else {"api_key": key}
        model = get_llm(
            meaning.model, environ=place.environ, default_provider=place.default_provider, max_retries=0, **arguments
        )
        await model.complete(Request(model.name, (Message("user", "Hi"),), max_tokens=1, timeout=_TIMEOUT))
    except FlowEngineError as error:
        return ProbeAnswer(name, str(error), is_fine=False)
    return ProbeAnswer(name, f"{provider} answered within {perf_counter() - began:.1f} s", is_fine=True)


async def _list(vendor: Vendor, place: ProbePlace) -> ProbeAnswer:
    """The models of a server that has no default one."""
    base = place.address(vendor)
    if base is None:
        return ProbeAnswer(vendor.name, "not asked: name one of its models, or set its address", is_fine=True)
    if not is_address(base):
        return ProbeAnswer(
            vendor.name, "its address is none; one such as https://host:8000/v1 is expected", is_fine=False
        )
    url = f"{base.rstrip('/')}/{'api/tags' if vendor.name == 'ollama' else 'models'}"
    address, secrets = show_address(base), secrets_of({"api_base": base})
    try:
        check_outbound(vendor.name, {"api_base": base})
        key = await place.key(vendor) or key_of(vendor, place.environ)
        secrets = secrets_of({"api_key": key, "api_base": base})
        headers = {"authorization": f"Bearer {key}"} if key else {}
        with anyio.fail_after(_TIMEOUT):
            async with send_call(HttpCall(url, headers, b"", "GET")) as answer:
                answer.largest = _LARGEST
                body = await answer.read()
        if answer.is_fine:
            names = _read_names(body)
            beginning = secrets.hide(", ".join(names[:5]) + (", …" if len(names) > 5 else ""))[:_LONGEST]
            message = f"{address} has {len(names)} model(s){': ' if names else ''}{beginning}"
            return ProbeAnswer(vendor.name, message, is_fine=True)
        message = f"{address} answers with status {answer.status}"
    except NoConnectionError as error:
        message = f"no connection to {address}: {error}"
    except TimeoutError:
        message = f"{address} did not answer within {_TIMEOUT:g} s"
    except (BrokenExchangeError, ValueError, RecursionError, FlowEngineError) as error:
        message = f"{address}: {error}"
    return ProbeAnswer(vendor.name, secrets.hide(message)[:_LONGEST], is_fine=False)


def _read_names(body: bytes) -> list[str]:
    table = as_object(json.loads(body))
    entries = list_of_objects(table.get("data") or table.get("models"))
    return [str(each.get("id") or each.get("name")) for each in entries]
