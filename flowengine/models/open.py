"""Opens the model object for a model's name, with what is wrapped round it.

Which vendor a name goes to is decided in `vendor_choice`. A key or an address that is not set where one is needed is an
error now and not at the first call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from flowengine.core import EMPTY, describe_error, load_entry_point, package_of
from flowengine.errors import DefinitionError, FlowEngineError, ModelConfigError, find_nearest, refuse_other_kind
from flowengine.models.call_options import OPTIONS
from flowengine.models.dotenv import PROCESS_ENVIRONMENT
from flowengine.models.model import Model, missing_members
from flowengine.models.throttle import brake_for
from flowengine.models.vendor_choice import VendorQuestion, choose, known_provider
from flowengine.models.vendors import (
    VENDORS,
    ProviderSettings,
    RateLimits,
    Vendor,
    first_set,
    is_packaged,
    key_of,
    packaged_vendors,
    vendor_named,
)
from flowengine.models.wrappers import Limiters, RateLimitedModel, RetryingModel, limiter_for


def get_llm(
    model: str | None = None,
    provider: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    require_key: bool = True,
    default_provider: str | None = None,
    max_retries: int = 3,
    limits: RateLimits | None = None,
    limiters: Limiters = limiter_for,
    adapter: str | None = None,
    structured_output: str | None = None,
    capabilities: Mapping[str, Any] = EMPTY,
    **settings: Any,
) -> Model:
    """The model that a name means, with its retries and, where given, the vendor's limits, which `limiters` keep.

    `settings` are further arguments of every call (`api_base`, `api_version`); `environ` is where keys and addresses
    are read from. `adapter`: `litellm` where that is to ask a vendor whom this package can ask by itself.
    `structured_output`: how the model takes an answer's shape, where another way is meant than is known of it.
    `capabilities`: what is said that it can do, as `capability_lookup.capabilities_of` takes it. Raises
    `ModelConfigError` for an unknown provider, for a name that no vendor is known to have unless there is a
    `default_provider`, for a missing address, and for a missing key unless `require_key` is False.

    >>> get_llm("offline").provider
    'offline'
    """
    _check_arguments(max_retries, limits, adapter, structured_output, settings)
    vendor, name, settings = find_connection(
        model, provider, environ=environ, require_key=require_key, default_provider=default_provider, **settings
    )
    if is_packaged(vendor.name):
        model_client = _of_package(
            vendor.name, name, limits, PROCESS_ENVIRONMENT if environ is None else environ, settings
        )
    elif not vendor.is_stand_in and served_natively(vendor.name, adapter):
        model_client = _find_backend(_NATIVE)(vendor, name, settings, structured_output, capabilities)
    else:
        model_client = _find_backend(vendor.backend)(vendor, name, settings, structured_output)
    if vendor.is_stand_in:
        return model_client
    return _wrap(model_client, vendor, settings, max_retries, limits, limiters)


def _wrap(
    inner: Model,
    vendor: Vendor,
    settings: Mapping[str, Any],
    max_retries: int,
    limits: RateLimits | None,
    limiters: Limiters,
) -> Model:
    """The model with the vendor's limits and retries. All who ask a model at an address with a key have one brake."""
    if limits is not None:
        inner = RateLimitedModel(inner, limiters(vendor.name, limits))
    brake = brake_for(vendor.name, str(settings.get("api_base")), str(settings.get("api_key")), inner.name)
    return RetryingModel(inner, max_retries, brake=brake) if max_retries else inner


def get_embedding(
    model: str,
    *,
    environ: Mapping[str, str] | None = None,
    max_retries: int = 2,
    limits: RateLimits | None = None,
    limiters: Limiters = limiter_for,
    adapter: str | None = None,
    structured_output: str | None = None,
    capabilities: Mapping[str, Any] = EMPTY,
    **settings: Any,
) -> Model:
    """The model for embeddings that a name means: `openai/text-embedding-3-small`, `ollama/nomic-embed-text`.

    The vendor, its key and its address are found as `get_llm` finds them; so are its limits. `structured_output`
    and `capabilities` are of models that answer, and of no use here.
    """
    vendor, name, connection = find_connection(model, environ=environ, **settings)
    if vendor.is_stand_in:
        raise ModelConfigError(NO_EMBEDDINGS)
    if is_packaged(vendor.name):
        raise ModelConfigError(f"no vectors can be made with {vendor.name}, whose package brings models that answer")
    place = (
        _NATIVE_EMBEDDING
        if served_natively(vendor.name, adapter) and vendor.name != "anthropic"
        else _LITELLM_EMBEDDING
    )
    client = _find_backend(place)(vendor, name, connection)
    return _wrap(client, vendor, connection, max_retries, limits, limiters)


_NATIVE_EMBEDDING: Final = "flowengine.models.http.native_embedding:make_native_embedding"
_LITELLM_EMBEDDING: Final = "flowengine.models.litellm.model:make_embedding"
NO_EMBEDDINGS: Final = "the offline stand-in makes no embeddings: name a model that does, or leave it out"

_OF_CALLS: Final = frozenset({"api_base", "api_key", "api_version", "temperature", "max_tokens", *OPTIONS})
"""Vendors have further ones of their own."""
_OWN: Final = frozenset(
    {"model", "provider", "environ", "require_key", "max_retries", "limits", "structured_output", "capabilities"}
)


def _check_arguments(
    max_retries: Any, limits: Any, adapter: Any, structured_output: Any, settings: Mapping[str, Any]
) -> None:
    """Refuse what no call can be made with, and what would reach a vendor that can do nothing with it."""
    refuse_other_kind(limits, (RateLimits, NoneType), "limits are RateLimits", ModelConfigError)
    if type(max_retries) is not int or max_retries < 0:
        raise ModelConfigError(f"max_retries must be a whole number of at least 0, not {max_retries!r}")
    if adapter not in (None, "native", "litellm"):
        raise ModelConfigError(f"adapter is native or litellm, not {adapter!r}")
    if structured_output is not None:
        from flowengine.models.http import STRUCTURED_OUTPUTS  # As in `served_natively`.

        if structured_output not in STRUCTURED_OUTPUTS:
            ways = ", ".join(STRUCTURED_OUTPUTS)
            raise ModelConfigError(f"structured_output is one of {ways}, not {structured_output!r}")
    for name in settings.keys() - _OF_CALLS:
        if name == "timeout":
            raise ModelConfigError("'timeout' is given to an agent, or with each Request")
        if (nearest := find_nearest(name, _OF_CALLS | _OWN, 0.85)) is not None:
            raise ModelConfigError(f"unknown argument '{name}'; did you mean '{nearest}'?")


def served_natively(provider: str, adapter: str | None = None) -> bool:
    """Tells whether a vendor is asked without litellm. `adapter`: what the project says of it."""
    from flowengine.models.http import is_native  # The stand-in needs no table of vendors.

    return adapter != "litellm" and is_native(provider)


def _find_backend(place: str) -> Callable[..., Model]:
    """The function that makes models, imported now."""
    module, _, function = place.partition(":")
    return getattr(import_module(module), function)


_NATIVE: Final = "flowengine.models.http.native_model:make_native_model"


def _of_package(
    vendor: str, name: str, limits: RateLimits | None, environ: Mapping[str, str], settings: Mapping[str, Any]
) -> Model:
    point = packaged_vendors()[vendor]
    other = [key for key in settings if key != "api_base"]
    if other:
        raise ModelConfigError(f"'{other[0]}' does not go with {vendor}, a vendor of '{package_of(point)}'")
    try:
        make = load_entry_point(point, f"the model vendor '{vendor}'")
        client: object = make(name, ProviderSettings(settings.get("api_base"), limits), environ)
    except FlowEngineError as error:
        raise error if type(error) is not DefinitionError else ModelConfigError(str(error)) from error
    except Exception as error:  # A package is foreign code: whatever it raises means that there is no model.
        raise ModelConfigError(
            f"model '{name}' of {vendor} cannot be made by the package '{package_of(point)}': {describe_error(error)}"
        ) from error
    if lacking := missing_members(client):
        raise ModelConfigError(
            f"the package '{package_of(point)}' gives no model for '{vendor}/{name}': {type(client).__name__} has no "
            f"{', '.join(lacking)}"
        )
    return cast("Model", client)


# --- models for those who know them by name alone


class Models(Protocol):
    """Opens models by name. What is wrong with a name, or a key that is missing, is a `ModelConfigError`."""

    def model(self, name: str) -> Model:
        """One that answers."""
        ...

    def embedding(self, name: str) -> Model | None:
        """One that makes vectors; None where none is to be asked."""
        ...


class _ProcessModels:
    def model(self, name: str) -> Model:
        return get_llm(name)

    def embedding(self, name: str) -> Model | None:
        return get_embedding(name)


PROCESS_MODELS: Final[Models] = _ProcessModels()
"""From the process's own environment."""


# --- What is needed to ask: the vendor, the name there, the address and the key


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
    environ = PROCESS_ENVIRONMENT if environ is None else environ
    if name := environ.get("FLOWENGINE_DEFAULT_MODEL", "").strip():
        return DefaultModel(name, None)
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
    environ = PROCESS_ENVIRONMENT if environ is None else environ
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
    reference = default_model(environ).name if model is None else model
    choice = choose(VendorQuestion(reference.strip(), provider, environ, default_provider))
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
        if address := environ.get(variable):
            return _ollama_address(address) if variable == "OLLAMA_HOST" else address
    return vendor.default_base


def _ollama_address(host: str) -> str:
    """The address for ollama's own variable, which holds what its server listens on, with or without a port.

    >>> _ollama_address("0.0.0.0"), _ollama_address("gpu:8080"), _ollama_address("https://models.example")
    ('http://127.0.0.1:11434', 'http://gpu:8080', 'https://models.example')
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return host
    name, port = match.groups()
    here = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name
    return f"http://{here}:{port or 11434}"


_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:/]*)(?::(\d+))?/?")
_AZURE_VERSIONS: Final = ("AZURE_OPENAI_API_VERSION", "AZURE_API_VERSION", "OPENAI_API_VERSION")
