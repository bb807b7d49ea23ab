"""Which vendor a model name means, and the model object for it.

The order in which a vendor is looked for is the table `ORDER`, and stands nowhere else. Nothing is
guessed in silence: a provider that is named but unknown, and a key that is not set, are errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeAlias

from flowengine.errors import ModelConfigError, did_you_mean
from flowengine.llm.litellm_model import LiteLLMModel
from flowengine.llm.model import Model
from flowengine.llm.offline import OfflineModel
from flowengine.llm.provider import RateLimits
from flowengine.llm.rate import Limiters, RateLimitedModel, limiter_for
from flowengine.llm.retrying import RetryingModel
from flowengine.llm.vendors import ALIASES, OTHERS, VENDORS, Vendor

__all__ = ["Connection", "DefaultModel", "connection_to", "default_model", "detect", "get_llm"]


class _Question(NamedTuple):
    model: str
    provider: str | None
    environ: Mapping[str, str]


_Found: TypeAlias = tuple[str, str] | None
"""(provider, the model's name there), or None where a rule does not decide."""


_NO_NAME: Final = re.compile(r"://|\.\.|[?#\\]|[\x00-\x1f\x7f]")
"""What makes an address, or another place at an address, of a name: some libraries send requests, and keys, there."""


# --- the rules --------------------------------------------------------------------------------


def _explicit(question: _Question) -> _Found:
    """`provider=` as given; a prefix that repeats it is dropped."""
    if question.provider is None:
        return None
    provider = _known(question.provider)
    prefix, name = _split(question.model)
    return provider, name if prefix == provider else question.model


def _prefix(question: _Question) -> _Found:
    """`provider:model:tag` and `provider/model`, where the prefix is a known provider."""
    prefix, name = _split(question.model)
    return None if prefix is None else (prefix, name)


def _own_vendor(question: _Question) -> _Found:
    """The vendor that the name belongs to, where its key is set, whatever else is set."""
    vendor = _vendor_of_name(question.model)
    return (vendor.name, question.model) if vendor and _key(vendor, question.environ) else None


def _environment(question: _Question) -> _Found:
    """The first of these variables that is set."""
    for variable, provider in _VARIABLES:
        if question.environ.get(variable):
            return provider, question.model
    return None


def _name(question: _Question) -> _Found:
    """The vendor that the name belongs to; anything else is ollama's."""
    vendor = _vendor_of_name(question.model)
    return ("ollama" if vendor is None else vendor.name), question.model


_VARIABLES: Final = (
    ("OLLAMA_BASE_URL", "ollama"),
    ("LM_STUDIO_BASE_URL", "lmstudio"),
    ("OPENROUTER_API_KEY", "openrouter"),
    ("GROQ_API_KEY", "groq"),
    ("ANTHROPIC_API_KEY", "anthropic"),
    ("AZURE_OPENAI_ENDPOINT", "azure"),
)

ORDER: Final[tuple[Callable[[_Question], _Found], ...]] = (_explicit, _prefix, _own_vendor, _environment, _name)
"""The first rule that finds a provider decides."""


def detect(model: str, provider: str | None = None, environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """(provider, the model's name there) for a model as a user writes it.

    >>> detect("openai/gpt-4o-mini", environ={})
    ('openai', 'gpt-4o-mini')
    >>> detect("llama3.2:3b", environ={})
    ('ollama', 'llama3.2:3b')
    """
    question = _Question(model.strip(), provider, os.environ if environ is None else environ)
    if not question.model:
        raise ModelConfigError("the model's name is empty")
    if _NO_NAME.search(question.model):
        raise ModelConfigError(
            f"'{question.model:.80}' is no model's name: where a provider is, its `base_url` in the project file says"
        )
    return next(found for rule in ORDER if (found := rule(question)) is not None)


# --- the default ------------------------------------------------------------------------------


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
        if vendor.default_model is not None and _key(vendor, environ):
            return DefaultModel(f"{vendor.name}/{vendor.default_model}", None)
    return DefaultModel(
        "offline",
        "no model is chosen and no vendor's key is set: the offline stand-in answers, which is no language model. "
        "Set FLOWENGINE_DEFAULT_MODEL or a key such as OPENAI_API_KEY",
    )


# --- the model ----------------------------------------------------------------------------------


def get_llm(
    model: str | None = None,
    provider: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    require_key: bool = True,
    max_retries: int = 3,
    limits: RateLimits | None = None,
    limiters: Limiters = limiter_for,
    **settings: Any,
) -> Model:
    """The model that a name means, with its retries and, where given, the vendor's limits, which `limiters` keep.

    `settings` are further arguments of every call (`api_base`, `api_version`); `environ` is where
    keys and addresses are read from. Raises `ModelConfigError` for an unknown provider, and for a
    missing key unless `require_key` is False.

    >>> get_llm("offline").provider
    'offline'
    """
    vendor, name, settings = connection_to(model, provider, environ=environ, require_key=require_key, **settings)
    if vendor.name == "offline":
        return OfflineModel()
    made: Model = LiteLLMModel(name, vendor.name, prefix=vendor.prefix, settings=settings)
    if limits is not None:
        made = RateLimitedModel(made, limiters(vendor.name, limits))
    return RetryingModel(made, max_retries) if max_retries else made


class Connection(NamedTuple):
    """What has to be known to call a model."""

    vendor: Vendor
    name: str
    """The model's, without its provider."""
    settings: dict[str, Any]
    """Further arguments of every call: key, address, version, and what was asked for."""


def connection_to(
    model: str | None = None,
    provider: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    require_key: bool = True,
    **settings: Any,
) -> Connection:
    """Where a model is and how to call it, as `get_llm` finds it; for models that do something else than answer."""
    environ = os.environ if environ is None else environ
    vendor, name = _resolved(model, provider, environ)
    settings = {**_connection(vendor, environ), **settings}
    if require_key and vendor.key_variables and not settings.get("api_key"):
        raise ModelConfigError(
            f"model '{name}' of {vendor.name} needs a key: set {' or '.join(vendor.key_variables)}, "
            f"or choose another model ('offline' needs none)"
        )
    return Connection(vendor, name, settings)


def _resolved(model: str | None, provider: str | None, environ: Mapping[str, str]) -> tuple[Vendor, str]:
    if model is None and provider is not None:
        vendor = _vendor(_known(provider))
        if vendor.default_model is None:
            raise ModelConfigError(f"{vendor.name} has no default model: name one")
        return vendor, vendor.default_model
    found, name = detect(default_model(environ).name if model is None else model, provider, environ)
    return _vendor(found), name


def _connection(vendor: Vendor, environ: Mapping[str, str]) -> dict[str, str]:
    """Key, address and version as litellm wants them. They come from `environ`, never from the process's own."""
    settings: dict[str, str] = {}
    if key := _key(vendor, environ) or vendor.placeholder_key:
        settings["api_key"] = key
    if base := _first_set(vendor.base_variables, environ) or vendor.default_base:
        settings["api_base"] = base
    if vendor.name == "azure" and (version := _first_set(_AZURE_VERSIONS, environ)):
        settings["api_version"] = version
    return settings


_AZURE_VERSIONS: Final = ("AZURE_OPENAI_API_VERSION", "AZURE_API_VERSION", "OPENAI_API_VERSION")


# --- names --------------------------------------------------------------------------------------


def _split(model: str) -> tuple[str | None, str]:
    """The known provider in front of a model's name, or None, and the rest."""
    if model == "offline":
        return "offline", model
    prefix, slash, name = model.partition("/")
    if slash and name and ":" not in prefix:
        canonical = ALIASES.get(prefix, prefix)
        if canonical in VENDORS or canonical in OTHERS:
            return canonical, name
        _refuse_misspelling(prefix, model)
    prefix, colon, name = model.partition(":")
    canonical = ALIASES.get(prefix, prefix)
    return (canonical, name) if colon and name and canonical in VENDORS else (None, model)


def _refuse_misspelling(prefix: str, model: str) -> None:
    """`opnai/gpt-4o` is meant for somebody; `meta-llama/llama-3` is a name with a slash."""
    if get_close_matches(prefix, [*VENDORS, *OTHERS, *ALIASES], n=1, cutoff=0.85):
        raise ModelConfigError(f"unknown provider '{prefix}' in model '{model}'{_nearest(prefix)}")


def _known(provider: str) -> str:
    canonical = ALIASES.get(provider, provider)
    if canonical not in VENDORS and canonical not in OTHERS:
        raise ModelConfigError(f"unknown provider '{provider}'{_nearest(provider)}; known are {', '.join(VENDORS)}")
    return canonical


def _nearest(provider: str) -> str:
    return did_you_mean(provider, [*VENDORS, *OTHERS, *ALIASES])


def _vendor(provider: str) -> Vendor:
    return VENDORS.get(provider) or OTHERS[provider]


def _vendor_of_name(model: str) -> Vendor | None:
    return next((vendor for vendor in VENDORS.values() if model.startswith(vendor.name_starts or ("\0",))), None)


def _key(vendor: Vendor, environ: Mapping[str, str]) -> str | None:
    return _first_set(vendor.key_variables, environ)


def _first_set(variables: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((value for name in variables if (value := environ.get(name))), None)
