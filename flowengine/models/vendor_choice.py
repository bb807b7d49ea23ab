"""Chooses the vendor that a model's name goes to, and says why. Decides from names and variables alone.

The rules stand in `ORDER` and nowhere else. A name goes to another vendor than its own only where a variable says so,
and a name that no table knows goes to the vendor that a variable or the project file names for such names. Nothing is
guessed: a provider that is unknown, and a name that no vendor is said to have, are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from flowengine.errors import ModelConfigError, did_you_mean, find_nearest
from flowengine.models.pricing import is_listed, listed_names, listed_vendor
from flowengine.models.vendors import (
    ALIASES,
    VENDORS,
    Vendor,
    is_stand_in,
    is_vendor,
    key_of,
    packaged_vendors,
    vendor_names,
)


@dataclass(frozen=True, slots=True)
class VendorQuestion:
    """A model as a user writes it, and where it is asked for."""

    model: str
    provider: str | None
    environ: Mapping[str, str] = field(repr=False)
    default_provider: str | None = None
    """The vendor that the project file names for names that no table knows."""


class VendorChoice(NamedTuple):
    """The vendor that a name goes to."""

    provider: str
    name: str
    """The model's name there."""
    because: str
    """The reason of the choice, as the end of a sentence."""
    variable: str | None = None
    """The environment variable that decided; None where the name or the project did."""

    @property
    def notice(self) -> str | None:
        """The notice if the environment chose the vendor and another environment would choose differently."""
        if self.variable is None:
            return None
        full = f"{self.provider}/{self.name}"
        return (
            f"model '{self.name}' goes to {self.provider}, since {self.because}; write {full} to fix that in the file"
        )


_Found: TypeAlias = VendorChoice | None
"""None where a rule does not decide."""


# --- the rules --------------------------------------------------------------------------------


def _explicit(question: VendorQuestion) -> _Found:
    """`provider=` as given; a prefix that repeats it is dropped."""
    if question.provider is None:
        return None
    provider = known_provider(question.provider)
    prefix, name = _split(question.model)
    return VendorChoice(provider, name if prefix == provider else question.model, "its provider is given")


def _prefix(question: VendorQuestion) -> _Found:
    """`provider:model:tag` and `provider/model`, where the prefix is a known provider."""
    prefix, name = _split(question.model)
    return None if prefix is None else VendorChoice(prefix, name, "its prefix says so")


def _own_vendor(question: VendorQuestion) -> _Found:
    """The vendor that the name belongs to, where its key is set, whatever else is set."""
    vendor = _vendor_of_name(question.model)
    return VendorChoice(vendor.name, question.model, _BY_NAME) if vendor and key_of(vendor, question.environ) else None


def _project(question: VendorQuestion) -> _Found:
    """The project's vendor, for a name that no table knows."""
    if question.default_provider is None or is_known_name(question.model):
        return None
    return VendorChoice(question.default_provider, question.model, "the project file's `default_provider` says so")


def _environment(question: VendorQuestion) -> _Found:
    """The first of these variables that is set; a key alone draws no name that the vendor is not known to have."""
    for variable, provider in _VARIABLES:
        if question.environ.get(variable) and (
            variable not in _KEYS or _vendor_of_name(question.model) or is_listed(provider, question.model)
        ):
            return VendorChoice(provider, question.model, f"{variable} is set", variable)
    return None


def _name(question: VendorQuestion) -> _Found:
    """The vendor that the name belongs to."""
    provider = _vendor_known_for(question.model)
    return None if provider is None else VendorChoice(provider, question.model, _BY_NAME)


def _default(question: VendorQuestion) -> _Found:
    """The vendor whose address the environment holds, for a name that no table knows."""
    for variable, provider in _DEFAULTS:
        if question.environ.get(variable):
            return VendorChoice(provider, question.model, f"{variable} is set", variable)
    return None


_BY_NAME: Final = "that is whose name it is"

_VARIABLES: Final = (
    ("OLLAMA_BASE_URL", "ollama"),
    ("LM_STUDIO_BASE_URL", "lmstudio"),
    ("OPENROUTER_API_KEY", "openrouter"),
    ("GROQ_API_KEY", "groq"),
    ("ANTHROPIC_API_KEY", "anthropic"),
    ("AZURE_OPENAI_ENDPOINT", "azure"),
)
_KEYS: Final = frozenset({"OPENROUTER_API_KEY", "GROQ_API_KEY", "ANTHROPIC_API_KEY"})

_DEFAULTS: Final = (
    ("OLLAMA_API_BASE", "ollama"),
    ("OLLAMA_HOST", "ollama"),
    ("LM_STUDIO_API_BASE", "lmstudio"),
    ("OPENAI_BASE_URL", "openai"),
    ("OPENAI_API_BASE", "openai"),
)

ORDER: Final[tuple[Callable[[VendorQuestion], _Found], ...]] = (
    _explicit,
    _prefix,
    _own_vendor,
    _project,
    _environment,
    _name,
    _default,
)
"""The first rule that finds a provider decides."""


def choose(question: VendorQuestion) -> VendorChoice:
    """The vendor of a name; `ModelConfigError` where there is none.

    >>> choose(VendorQuestion("gpt-4o", None, {"GROQ_API_KEY": "k"})).notice
    "model 'gpt-4o' goes to groq, since GROQ_API_KEY is set; write groq/gpt-4o to fix that in the file"
    """
    check_name(question.model)
    for rule in ORDER:
        choice = rule(question)
        if choice is not None:
            return choice
    raise _refuse_unknown(question.model)


def default_vendor(environ: Mapping[str, str], default_provider: str | None = None) -> VendorChoice | None:
    """Returns the vendor for unknown names; None if they are errors. The choice's `name` is empty."""
    question = VendorQuestion("", None, environ, default_provider)
    return next((vendor for rule in (_project, _environment, _default) if (vendor := rule(question))), None)


def known_provider(provider: str) -> str:
    """The provider's own name, of whichever spelling; `ModelConfigError` for one that is unknown."""
    canonical = ALIASES.get(provider, provider)
    if not is_vendor(canonical):
        names = ", ".join((*VENDORS, *packaged_vendors()))
        raise ModelConfigError(f"unknown provider '{provider}'{_nearest(provider)}; known are {names}")
    return canonical


# --- names --------------------------------------------------------------------------------------

_NO_NAME: Final = re.compile(r"://|\.\.|[?#\\]|[\x00-\x1f\x7f]")
"""Signs that make an address, or another place at one, of a name: some libraries send requests, and keys, there."""


def check_name(model: str) -> None:
    """Refuse what is a model's name in no environment: an address, or a provider that is misspelt."""
    if not model:
        raise ModelConfigError("the model's name is empty")
    if model.endswith("/") or (model.endswith(":") and "/" not in model):
        raise ModelConfigError(f"'{model:.80}' names a provider and no model")
    if _NO_NAME.search(model):
        raise ModelConfigError(
            f"'{model:.80}' is no model's name: where a provider is, its `base_url` in the project file says"
        )
    _split(model)


def _split(model: str) -> tuple[str | None, str]:
    """The known provider in front of a model's name, or None, and the rest."""
    if is_stand_in(model):
        return model, model
    prefix, name = _split_prefix(model)
    if prefix is not None:
        canonical = ALIASES.get(prefix, prefix)
        if is_vendor(canonical):
            return canonical, name
        # `opnai/gpt-4o` is meant for somebody; `meta-llama/llama-3` may be a name with a slash.
        nearest = find_nearest(prefix, vendor_names(), 0.85)
        if nearest:
            message = f"unknown provider '{prefix}' in model '{model}'{_nearest(prefix)}"
            # `mistralai/Mistral-7B` is such a name, too, but `opnai/…` is none.
            own = f" For a model of that name write whose it is, as in openai/{model}" if nearest in prefix else ""
            raise ModelConfigError(message + own)
    prefix, colon, name = model.partition(":")
    canonical = ALIASES.get(prefix, prefix)
    return (canonical, name) if colon and name and canonical in VENDORS else (None, model)


def _split_prefix(model: str) -> tuple[str | None, str]:
    prefix, slash, name = model.partition("/")
    return (prefix, name) if slash and name and ":" not in prefix else (None, model)


def _refuse_unknown(model: str) -> ModelConfigError:
    prefix, _ = _split_prefix(model)
    if prefix is not None:
        text = (
            f"unknown provider '{prefix}' in model '{model}', and no default vendor is set for names that no table "
            f"knows ({_HOW}){_nearest(prefix)}"
        )
    else:
        text = (
            f"no vendor is known to have a model '{model}', and no default vendor is set for such names ({_HOW}): "
            f"write whose it is, as in ollama/{model}{_nearest_model(model)}"
        )
    return ModelConfigError(text)


_HOW: Final = "OLLAMA_HOST or OPENAI_BASE_URL in the environment, `default_provider` in the project file"


def _nearest(provider: str) -> str:
    names = vendor_names()
    longer = [each for each in names if len(provider) > 2 and provider in each]
    return f"; did you mean '{longer[0]}'?" if longer else did_you_mean(provider, names)


def _nearest_model(model: str) -> str:
    prefix, colon, name = model.partition(":")
    provider = find_nearest(prefix, VENDORS, 0.85) if colon else None  # No other one may stand before a colon.
    if provider is not None:
        return f"; did you mean '{provider}:{name}'?"
    return did_you_mean(model, [*listed_names(), *filter(is_stand_in, VENDORS)])


def is_known_name(model: str) -> bool:
    """Tells whether a name without a vendor says by itself whose model it is."""
    return _vendor_known_for(model) is not None


def _vendor_known_for(model: str) -> str | None:
    vendor = _vendor_of_name(model)
    return listed_vendor(model) if vendor is None else vendor.name


def _vendor_of_name(model: str) -> Vendor | None:
    """A fine-tuned copy (`ft:gpt-4o-mini:org::id`) belongs to whom its model does."""
    name = model.removeprefix("ft:")
    return next((vendor for vendor in VENDORS.values() if name.startswith(vendor.name_starts or ("\0",))), None)
