"""Opens the model object for a model's name, with what is wrapped round it.

Where its vendor is, and with which key it is asked, is found in `connection_settings`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from types import NoneType
from typing import Any, Final, Protocol, cast

from flowengine.core.user_code import describe_error, load_entry_point, package_of
from flowengine.errors import DefinitionError, FlowEngineError, ModelConfigError, find_nearest, refuse_other_kind
from flowengine.models.call_options import OPTIONS
from flowengine.models.connection_settings import find_connection
from flowengine.models.model import Model, missing_members
from flowengine.models.throttle import brake_for
from flowengine.models.vendors import ProviderSettings, RateLimits, Vendor, is_packaged, packaged_vendors
from flowengine.models.wrappers.rate import Limiters, RateLimitedModel, limiter_for
from flowengine.models.wrappers.retrying import RetryingModel

__all__ = ["NO_EMBEDDINGS", "PROCESS_MODELS", "Models", "get_embedding", "get_llm", "served_natively"]


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
    **settings: Any,
) -> Model:
    """The model that a name means, with its retries and, where given, the vendor's limits, which `limiters` keep.

    `settings` are further arguments of every call (`api_base`, `api_version`); `environ` is where keys and addresses
    are read from. `adapter`: `litellm` where that is to ask a vendor whom this package can ask by itself.
    `structured_output`: how the model takes an answer's shape, where another way is meant than is known of it. Raises
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
        made = _of_package(vendor.name, name, limits, os.environ if environ is None else environ, settings)
    elif not vendor.is_stand_in and served_natively(vendor.name, adapter):
        made = _find_backend(_NATIVE)(vendor, name, settings, structured_output)
    else:
        made = _find_backend(vendor.backend)(vendor, name, settings, structured_output)
    if vendor.is_stand_in:
        return made
    return _wrap(made, vendor, settings, max_retries, limits, limiters)


def _wrap(
    made: Model,
    vendor: Vendor,
    settings: Mapping[str, Any],
    max_retries: int,
    limits: RateLimits | None,
    limiters: Limiters,
) -> Model:
    """The model with the vendor's limits and retries. All who ask a vendor at an address with a key have one brake."""
    if limits is not None:
        made = RateLimitedModel(made, limiters(vendor.name, limits))
    brake = brake_for(vendor.name, str(settings.get("api_base")), str(settings.get("api_key")))
    return RetryingModel(made, max_retries, brake=brake) if max_retries else made


def get_embedding(
    model: str,
    *,
    environ: Mapping[str, str] | None = None,
    max_retries: int = 2,
    limits: RateLimits | None = None,
    limiters: Limiters = limiter_for,
    adapter: str | None = None,
    structured_output: str | None = None,
    **settings: Any,
) -> Model:
    """The model for embeddings that a name means: `openai/text-embedding-3-small`, `ollama/nomic-embed-text`.

    The vendor, its key and its address are found as `get_llm` finds them; so are its limits. `structured_output` is of
    models that answer, and of no use here.
    """
    vendor, name, found = find_connection(model, environ=environ, **settings)
    if vendor.is_stand_in:
        raise ModelConfigError(NO_EMBEDDINGS)
    if is_packaged(vendor.name):
        raise ModelConfigError(f"no vectors can be made with {vendor.name}, whose package brings models that answer")
    place = (
        _NATIVE_EMBEDDING
        if served_natively(vendor.name, adapter) and vendor.name != "anthropic"
        else _LITELLM_EMBEDDING
    )
    made = _find_backend(place)(vendor, name, found)
    return _wrap(made, vendor, found, max_retries, limits, limiters)


_NATIVE_EMBEDDING: Final = "flowengine.models.http.native_model:make_native_embedding"
_LITELLM_EMBEDDING: Final = "flowengine.models.litellm.model:make_embedding"
NO_EMBEDDINGS: Final = "the offline stand-in makes no embeddings: name a model that does, or leave it out"

_OF_CALLS: Final = frozenset({"api_base", "api_key", "api_version", "temperature", "max_tokens", *OPTIONS})
"""Vendors have further ones of their own."""
_OWN: Final = frozenset({"model", "provider", "environ", "require_key", "max_retries", "limits", "structured_output"})


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
        from flowengine.models.http.vendor_traits import STRUCTURED_OUTPUTS  # As in `served_natively`.

        if structured_output not in STRUCTURED_OUTPUTS:
            ways = ", ".join(STRUCTURED_OUTPUTS)
            raise ModelConfigError(f"structured_output is one of {ways}, not {structured_output!r}")
    for name in settings.keys() - _OF_CALLS:
        if name == "timeout":
            raise ModelConfigError("'timeout' is given to an agent, or with each Request")
        if (meant := find_nearest(name, _OF_CALLS | _OWN, 0.85)) is not None:
            raise ModelConfigError(f"unknown argument '{name}'; did you mean '{meant}'?")


def served_natively(provider: str, adapter: str | None = None) -> bool:
    """Tells whether a vendor is asked without litellm. `adapter`: what the project says of it."""
    from flowengine.models.http.vendor_traits import is_native  # The stand-in needs no table of vendors.

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
        made: object = make(name, ProviderSettings(settings.get("api_base"), limits), environ)
    except FlowEngineError as error:
        raise error if type(error) is not DefinitionError else ModelConfigError(str(error)) from error
    except Exception as error:  # A package is foreign code: whatever it raises means that there is no model.
        raise ModelConfigError(
            f"model '{name}' of {vendor} cannot be made by the package '{package_of(point)}': {describe_error(error)}"
        ) from error
    if lacking := missing_members(made):
        raise ModelConfigError(
            f"the package '{package_of(point)}' gives no model for '{vendor}/{name}': {type(made).__name__} has no "
            f"{', '.join(lacking)}"
        )
    return cast("Model", made)


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
