"""Finds what is needed to ask for a model: its vendor, its name there, the address and the key.

Which vendor a name goes to is decided in `vendor_choice`. A key or an address that is not set where one is needed is an
error now and not at the first call. No model is opened here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from flowengine.errors import ModelConfigError, refuse_other_kind
from flowengine.models.vendor_choice import VendorQuestion, choose, known_provider
from flowengine.models.vendors import VENDORS, Vendor, first_set, key_of, vendor_named

__all__ = ["DefaultModel", "address_of", "default_model", "find_connection", "is_address"]


class DefaultModel(NamedTuple):
    """The model taken where none is given, and what to tell the user about it."""

    name: str
    notice: str | None
    """Set where no key is: the answers will not be a language model's."""


def default_model(environ: Mapping[str, str] | None = None) -> DefaultModel:
    """`FLOWENGINE_DEFAULT_MODEL`, else the default of the first vendor whose key is set, else `offline`.

    >>> default_model({"ANTHROPIC_API_KEY": "k"}).name
    'anthropic/claude-haiku-4-5'
    """
    environ = os.environ if environ is None else environ
    if chosen := environ.get("FLOWENGINE_DEFAULT_MODEL", "").strip():
        return DefaultModel(chosen, None)
    for vendor in VENDORS.values():
        if vendor.default_model is not None and key_of(vendor, environ):
            return DefaultModel(f"{vendor.name}/{vendor.default_model}", None)
    return DefaultModel(
        "offline",
        "no model is chosen and no vendor's key is set: the offline stand-in answers, which is no language model. "
        "Set FLOWENGINE_DEFAULT_MODEL or a key such as OPENAI_API_KEY",
    )


def find_connection(
    model: str | None = None,
    provider: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    require_key: bool = True,
    default_provider: str | None = None,
    **settings: Any,
) -> tuple[Vendor, str, dict[str, Any]]:
    """Returns the vendor, the model's name there, and the further arguments of every call: key, address, version, and
    what was asked for."""
    refuse_other_kind(model, (str, NoneType), "a model is named by text", ModelConfigError)
    refuse_other_kind(provider, (str, NoneType), "a provider is named by text", ModelConfigError)
    environ = os.environ if environ is None else environ
    vendor, name = _resolve_name(model, provider, environ, default_provider)
    for each in ("api_base", "api_key", "api_version"):
        refuse_other_kind(settings.get(each), (str, NoneType), f"{each} is text", ModelConfigError)
    settings = {**_connection(vendor, environ), **settings}
    address = settings.get("api_base")
    if address and not is_address(str(address)):
        raise ModelConfigError(f"the address of {vendor.name} is none: one such as https://host:8000/v1 is expected")
    if vendor.needs_address and not address:
        raise ModelConfigError(
            f"model '{name}' of {vendor.name} needs an address: set {' or '.join(vendor.base_variables)}, or "
            f"`base_url` in [providers.{vendor.name}] of the project file"
        )
    if require_key and vendor.key_variables and not settings.get("api_key"):
        raise ModelConfigError(
            f"model '{name}' of {vendor.name} needs a key: set {' or '.join(vendor.key_variables)}, "
            f"or choose another model ('offline' needs none)"
        )
    return vendor, name, settings


def is_address(text: str) -> bool:
    """Tells whether a text can be the address of a server; one that cannot may hold a password anywhere."""
    try:
        _ = urlsplit(text if "//" in text else f"//{text}").port
    except ValueError:
        return False
    return True


def _resolve_name(
    model: str | None, provider: str | None, environ: Mapping[str, str], default_provider: str | None
) -> tuple[Vendor, str]:
    if model is None and provider is not None:
        vendor = vendor_named(known_provider(provider))
        if vendor.default_model is None:
            raise ModelConfigError(f"{vendor.name} has no default model: name one")
        return vendor, vendor.default_model
    written = default_model(environ).name if model is None else model
    choice = choose(VendorQuestion(written.strip(), provider, environ, default_provider))
    return vendor_named(choice.provider), choice.name


def _connection(vendor: Vendor, environ: Mapping[str, str]) -> dict[str, str]:
    """Key, address and version as litellm wants them. They come from `environ`, never from the process's own."""
    settings: dict[str, str] = {}
    if key := key_of(vendor, environ) or vendor.placeholder_key:
        settings["api_key"] = key
    if base := address_of(vendor, environ):
        settings["api_base"] = base
    if vendor.name == "azure" and (version := first_set(_AZURE_VERSIONS, environ)):
        settings["api_version"] = version
    return settings


def address_of(vendor: Vendor, environ: Mapping[str, str]) -> str | None:
    """Returns a vendor's address from the environment or its default; None leaves it to litellm."""
    for variable in vendor.base_variables:
        if given := environ.get(variable):
            return _ollama_address(given) if variable == "OLLAMA_HOST" else given
    return vendor.default_base


def _ollama_address(host: str) -> str:
    """The address for ollama's own variable, which holds what its server listens on, with or without a port.

    >>> _ollama_address("0.0.0.0"), _ollama_address("gpu:8080"), _ollama_address("https://models.example")
    ('http://127.0.0.1:11434', 'http://gpu:8080', 'https://models.example')
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return host
    name, port = found.groups()
    here = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name
    return f"http://{here}:{port or 11434}"


_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:/]*)(?::(\d+))?/?")
_AZURE_VERSIONS: Final = ("AZURE_OPENAI_API_VERSION", "AZURE_API_VERSION", "OPENAI_API_VERSION")
