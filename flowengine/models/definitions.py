"""Defines what a project says of models under names of its own, and finds it by a written name and of an opened model.

    [models.fast]
    model = "openai/gpt-4o-mini"

A name of the project goes before all others, since none of them is the name of a vendor or of a vendor's model. Where
keys come from is decided here too, and the key itself is looked up only for whom is asked. It opens no model, and knows
wrappers of models by what they have inside alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Protocol, cast, runtime_checkable

from flowengine.core import EMPTY
from flowengine.errors import ModelConfigError, did_you_mean, find_nearest
from flowengine.models.model import Model
from flowengine.models.pricing import Price, context_window, longest_answer
from flowengine.models.vendor_choice import VendorChoice, VendorQuestion, choose
from flowengine.models.vendors import ProviderSettings, is_stand_in, key_of, needs_key, vendor_named


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """One name of a project's own, and what is said of its model. What is None is as it is without the name."""

    name: str
    model: str
    """The model's name as flows have it: `openai/gpt-4o-mini`."""
    base_url: str | None = None
    """The address where it is asked."""
    key_env: str | None = None
    """The environment variable that holds the key."""
    key_command: tuple[str, ...] | None = field(default=None, repr=False)
    """The command that prints the key."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of every call, in the shape of `Request.extra`; those of a node go before them."""
    price: Price | None = None
    """Its price, as in `prices`."""
    window: int | None = None
    """The longest question, in tokens."""
    longest_answer: int | None = None
    """In tokens."""
    structured_output: str | None = None
    """How it takes the shape of an answer."""
    images: bool | None = None
    """Whether it takes images."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its capabilities, by the names that `capabilities_of` takes."""
    adapter: str | None = None
    """`native`, or `litellm`: through litellm although there is a client for it here."""
    place: str = ""
    """The place where it is written."""

    def __str__(self) -> str:
        return f"model '{self.name}' ({self.place})" if self.place else f"model '{self.name}'"


class ModelMeaning(NamedTuple):
    """The meaning of a written model name."""

    choice: VendorChoice
    definition: ModelDefinition | None
    """None where it is no name of the project's own."""
    model: str
    """The name that goes to a vendor."""


def find_meaning(
    reference: str,
    definitions: Mapping[str, ModelDefinition],
    environ: Mapping[str, str],
    default_provider: str | None = None,
) -> ModelMeaning:
    """The vendor's model that a name stands for; `ModelConfigError` where it stands for none.

    >>> fast = ModelDefinition("fast", "openai/gpt-4o-mini")
    >>> find_meaning("fast", {"fast": fast}, {}).choice[:2]
    ('openai', 'gpt-4o-mini')
    """
    definition = definitions.get(reference.strip())
    if definition is None:
        try:
            choice = choose(VendorQuestion(reference.strip(), None, environ, default_provider))
        except ModelConfigError as error:
            if find_nearest(reference, definitions) is None:
                raise
            hint = did_you_mean(reference, definitions)
            raise ModelConfigError(f"no model '{reference:.80}' is in `models` of the project file{hint}") from error
        return ModelMeaning(choice, None, reference)
    try:
        choice = choose(VendorQuestion(definition.model, None, environ, default_provider))
    except ModelConfigError as error:
        raise ModelConfigError(f"{definition}: {error}") from error
    because = f"the project names {choice.provider}/{choice.name} so"
    return ModelMeaning(VendorChoice(choice.provider, choice.name, because), definition, definition.model)


# --- keys


class KeySource(NamedTuple):
    """The source of a model's key."""

    kind: str
    """`variable`, `command`, `elsewhere` where a vendor's own library finds it, or `none` where none is needed."""
    name: str
    """The variable; the program of the command."""
    is_set: bool | None
    """Whether the variable is set; None where that is not known without asking."""
    owner: str
    """The definition or table that names the source, for errors; empty for the vendor's usual variable."""
    command: tuple[str, ...] | None = None


_NO_KEY: Final = KeySource("none", "", True, "")


def find_key_source(
    provider: str, environ: Mapping[str, str], definition: ModelDefinition | None, settings: ProviderSettings | None
) -> KeySource:
    """Returns where the key for a vendor's model is looked up, without running a command."""
    for holder, owner in ((definition, str(definition)), (settings, f"[providers.{provider}]")):
        if holder is not None and holder.key_env is not None:
            return KeySource("variable", holder.key_env, bool(environ.get(holder.key_env)), owner)
        if holder is not None and holder.key_command is not None:
            return KeySource("command", PurePath(holder.key_command[0]).name, None, owner, holder.key_command)
    vendor = vendor_named(provider)
    if not needs_key(provider):
        return _NO_KEY
    if not vendor.key_variables:
        return KeySource("elsewhere", "", None, "")
    name = next((each for each in vendor.key_variables if environ.get(each)), vendor.key_variables[0])
    is_set = key_of(vendor, environ) is not None
    return _NO_KEY if not is_set and vendor.placeholder_key else KeySource("variable", name, is_set, "")


def read_said_key(
    provider: str, environ: Mapping[str, str], definition: ModelDefinition | None, settings: ProviderSettings | None
) -> str | None:
    """The key that the project says how to find; None where it says nothing, and the vendor's own variables count.

    A command is run. `ModelConfigError` where the variable is not set, or the command gives no key.
    """
    source = find_key_source(provider, environ, definition, settings)
    if not source.owner:
        return None
    if source.command is not None:
        from flowengine.models.key_command import read_key  # Few keys come from a command.

        return read_key(source.command, source.owner)
    key = environ.get(source.name)
    if key:
        return key
    # All names are asked for only here, so that a model that was opened can be taken again.
    hint = did_you_mean(source.name, [each for each in environ if each.isidentifier()])
    raise ModelConfigError(f"{source.owner} takes its key from {source.name}, which is not set{hint}")


# --- Opened models


def _own_definition(model: Model) -> ModelDefinition | None:
    own = getattr(model, "definition", None)
    return own if isinstance(own, ModelDefinition) else None


def definition_of(model: Model) -> ModelDefinition | None:
    """Returns the project's definition of a model, or of the first of several; None if it has none."""
    while True:
        own = _own_definition(model)
        if own is not None:
            return own
        inside = getattr(model, "inside", None)
        if inside is None:
            return None
        model = inside()[0]


def default_options(model: Model) -> Mapping[str, Any]:
    """Options that the calls of a model have where no others are said; they count in the key of a request."""
    definition = definition_of(model)
    return EMPTY if definition is None else definition.options


def window_of(model: Model) -> int | None:
    """The longest question of a model, in tokens, as the project or a list says; None where neither does."""
    own = definition_of(model)
    if own is not None and own.window is not None:
        return own.window
    return None if is_stand_in(model.provider) else context_window(*listed_as(own, model.provider, model.name))


def longest_answer_of(model: Model) -> int | None:
    """The longest answer of a model, in tokens; None where neither the project nor a list says it."""
    own = definition_of(model)
    return (own and own.longest_answer) or longest_answer(*listed_as(own, model.provider, model.name))


def listed_as(definition: ModelDefinition | None, provider: str, name: str) -> tuple[str, str]:
    """The vendor and the name under which a list has a model: as the project says that it is, else its own.

    >>> listed_as(ModelDefinition("ours", "azure/prod", capabilities={"same_as": "openai/gpt-5"}), "azure", "prod")
    ('openai', 'gpt-5')
    """
    same_as = definition.capabilities.get("same_as") if definition is not None else None
    vendor, _, model = same_as.partition("/") if isinstance(same_as, str) else (provider, "", name)
    return vendor, model


# --- Which of several models inside each other may answer


@runtime_checkable
class SaysItsPrice(Protocol):
    def own_price(self) -> Price: ...


@cache
def has_own_price(kind: type[Model]) -> bool:
    """Tells whether models of a class say what they cost. Looked up once a class: asking a protocol takes long."""
    return issubclass(kind, SaysItsPrice)


@runtime_checkable
class _Wrapper(Protocol):
    def inside(self) -> Sequence[Model]: ...


def innermost_models(model: Model, *, past_prices: bool = False) -> Iterator[Model]:
    """The innermost models, in the order in which they would be asked. One with a price of its own counts as such, and
    one of which a project says something, unless `past_prices`."""
    if not _is_wrapper(type(model), past_prices) or (not past_prices and _own_definition(model) is not None):
        yield model
        return
    for each in cast(_Wrapper, model).inside():
        yield from innermost_models(each, past_prices=past_prices)


@cache
def _is_wrapper(kind: type[Model], past_prices: bool) -> bool:
    """Looked up once a class: asking a protocol takes longer than all else that a reservation does."""
    return issubclass(kind, _Wrapper) and (past_prices or not has_own_price(kind))
