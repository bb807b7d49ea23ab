"""Opens the model that answers for an agent's settings: by name or as given, with retries and fallbacks.

It knows which wrappers an agent's settings ask for, and in which order. Vendors, keys and waiting
are the model column's matter. Models keep no state of their calls, so one that was opened by name is
taken again for as long as the environment says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from flowengine.agents.settings import CallSettings, Surroundings, UsualTemperature
from flowengine.core import EMPTY
from flowengine.errors import ModelConfigError
from flowengine.models import (
    DefaultModel,
    LoadsLibrary,
    Model,
    ModelMeaning,
    ProviderSettings,
    default_model,
    default_options,
    definition_of,
    find_meaning,
    get_embedding,
    get_llm,
    innermost_models,
    is_stand_in,
    needs_key,
    read_said_key,
    served_natively,
)
from flowengine.models.wrappers import (
    FallbackModel,
    RetryingModel,
    TimedModel,
    configure_model,
    find_user_price,
    with_price,
)

# --- An environment that records what was read from it


class TrackedEnviron(Mapping[str, str]):
    """Reads another environment.

    >>> environ = {"A": "1"}
    >>> readings = TrackedEnviron(environ)
    >>> readings.get("A"), readings.get("B"), readings.still_hold()
    ('1', None, True)
    >>> environ["B"] = "2"
    >>> readings.still_hold()
    False
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._read: dict[str, str | None] = {}
        self._all_names = False

    def still_hold(self) -> bool:
        """Tells whether reading once more would give the same; not known where all names were asked for."""
        get = self._environ.get
        for name, value in self._read.items():
            if get(name) != value:
                return False
        return not self._all_names

    def __getitem__(self, name: str) -> str:
        value = self._read[name] = self._environ.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        self._all_names = True
        return iter(self._environ)

    def __len__(self) -> int:
        self._all_names = True
        return len(self._environ)

    def __repr__(self) -> str:
        return f"<{len(self._read)} variables read>"  # Their values may be keys.


def open_model(settings: CallSettings) -> tuple[Model, str | None]:
    """The model, and a notice where a stand-in answers since none was chosen, or where a variable chose the vendor.

    >>> open_model(CallSettings("offline"))[0].name
    'offline'
    """
    around = settings.surroundings
    if not _is_by_name(settings):
        return _open_with_fallbacks(settings, around)
    question = (settings.model, settings.fallbacks, settings.max_retries, id(around))
    cached = _models.get(question)
    if cached is not None and cached.readings.still_hold():
        return cached.model, cached.notice
    readings = TrackedEnviron(around.environ)
    model, notice = _open_with_fallbacks(settings, replace(around, environ=readings))
    if len(_models) >= _MOST_KNOWN:
        _models.clear()
    _models[question] = _CachedModel(model, notice, readings, around)
    return model, notice


class _CachedModel(NamedTuple):
    """The model that was opened for a question, and the variables that it was opened by."""

    model: Model
    notice: str | None
    readings: TrackedEnviron
    around: Surroundings
    """Kept, so that no other has its id."""


_models: Final[dict[tuple[Any, ...], _CachedModel]] = {}
_MOST_KNOWN: Final = 1000


def find_default(settings: CallSettings) -> DefaultModel | None:
    """The model that the environment gives to an agent that names none; None where one is named.

    >>> find_default(CallSettings(surroundings=Surroundings({"GROQ_API_KEY": "k"}))).name
    'groq/openai/gpt-oss-20b'
    """
    return default_model(settings.surroundings.environ) if settings.model is None else None


def prepare_model(settings: CallSettings, *, has_tools: bool = False) -> None:
    """Raise now what asking the model would raise later (a missing key, an option that it refuses), and start a slow
    import of its library. `has_tools`: whether it may be offered tools."""
    model, _ = open_model(settings)
    check_taken(model, settings, has_tools=has_tools)
    for each in innermost_models(model, past_prices=True) if _is_name(settings.model) else ():
        if isinstance(each, LoadsLibrary):
            each.preload()


async def load_models(settings: CallSettings) -> None:
    """Wait for the libraries of the models that may answer, so that no deadline of a call holds their import."""
    model, _ = open_model(settings)
    for each in innermost_models(model, past_prices=True):
        if isinstance(each, LoadsLibrary):
            await each.ready()


def check_taken(model: Model, settings: CallSettings, *, has_tools: bool = False, is_first: bool = False) -> None:
    """`ModelConfigError` for an option that one of the models that may answer is known to refuse. `is_first`: nothing
    has been asked yet with these settings, so that also what a call would be made without is told."""
    temperature = None if isinstance(settings.temperature, UsualTemperature) else settings.temperature
    for each in innermost_models(model):
        options = {**default_options(each), **settings.extra}
        if not options and not has_tools and temperature is None:
            continue
        from flowengine.models import find_refusals  # Few agents set options.

        definition = definition_of(each)
        capabilities = EMPTY if definition is None else definition.capabilities
        options |= {"temperature": temperature, "max_tokens": settings.max_tokens}
        vendor = settings.surroundings.providers.get(each.provider, _NOTHING)
        adapter = (definition and definition.adapter) or vendor.adapter
        for refusal in find_refusals(
            each.provider, each.name, options, capabilities, has_tools=has_tools, adapter=adapter
        ):
            if is_first or not refusal.is_left_out:
                message = f"model '{each.provider}/{each.name}' refuses `{refusal.option}`: {refusal.reason}"
                raise ModelConfigError(message)


def _is_by_name(settings: CallSettings) -> bool:
    return _is_name(settings.model) and (not settings.fallbacks or all(map(_is_name, settings.fallbacks)))


def _is_name(model: str | Model | None) -> bool:
    return model is None or isinstance(model, str)


def _open_with_fallbacks(settings: CallSettings, around: Surroundings) -> tuple[Model, str | None]:
    first, notice = (settings.model, None) if settings.model is not None else default_model(around.environ)
    choices = (first, *settings.fallbacks)
    models = [_open_one(each, settings.max_retries, around) for each in choices]
    own = default_options(models[0])
    models[1:] = [configure_model(each, definition_of(each), own) for each in models[1:]] if own else models[1:]
    notices = [notice, *(_find_meaning(each, around).choice.notice for each in choices if isinstance(each, str))]
    notice_text = "; ".join(dict.fromkeys(filter(None, notices))) or None
    return (models[0] if len(models) == 1 else FallbackModel(models)), notice_text


def _find_meaning(model: str, around: Surroundings) -> ModelMeaning:
    return find_meaning(model, around.models, around.environ, around.default_provider)


def _open_one(model: str | Model, max_retries: int, around: Surroundings) -> Model:
    if isinstance(model, str):
        return _open_by_name(model, max_retries, around)
    # A model that comes with a policy of its own keeps it: retries of retries would multiply.
    if isinstance(model, RetryingModel | FallbackModel):
        return model
    timed = TimedModel(model)
    return RetryingModel(timed, max_retries) if max_retries else timed


def _open_by_name(model: str, max_retries: int, around: Surroundings) -> Model:
    """The model of a name, with what is said of its vendor and its price. All models of a vendor share its limits."""
    meaning = _find_meaning(model, around)
    opened_model = get_llm(meaning.model, max_retries=max_retries, **_vendor_settings(meaning, around))
    return _add_said(opened_model, model, meaning, around)


def _add_said(target: Model, name: str, meaning: ModelMeaning, around: Surroundings) -> Model:
    """The model with its price and all else that is said of it."""
    definition = meaning.definition
    price = None if definition is None else definition.price
    if price is None and around.prices:
        price = find_user_price(around.prices, name, target.provider, target.name)
    if definition is not None:
        target = configure_model(target, definition)
    return target if price is None else with_price(target, price)


def _vendor_settings(meaning: ModelMeaning, around: Surroundings) -> dict[str, Any]:
    """Returns a model's vendor settings: address, keys, limits, and the limiter."""
    definition, provider = meaning.definition, meaning.choice.provider
    own_base = None if definition is None else definition.base_url
    provider_settings = around.providers.get(provider, _NOTHING) if around.providers else _NOTHING
    adapter = (definition and definition.adapter) or provider_settings.adapter
    is_keyless = not needs_key(provider) and served_natively(provider, adapter)  # litellm looks for keys by itself.
    if provider_settings.is_foreign and own_base is None and not is_keyless:
        raise ModelConfigError(
            f"the run asks for {provider} at {provider_settings.base_url}, and keys go only to addresses that "
            f"are named here: write it into `providers` of this machine's project file"
        )
    base_url = own_base or provider_settings.base_url
    address: dict[str, Any] = {} if base_url is None else {"api_base": base_url}
    if own_base is not None or not provider_settings.is_foreign:
        key = read_said_key(provider, around.environ, definition, provider_settings)
        address |= {} if key is None else {"api_key": key}
    limit_settings: dict[str, Any] = {"limits": provider_settings.limits, "limiters": around.limiters}
    served = {
        "adapter": adapter,
        "structured_output": (definition and definition.structured_output) or provider_settings.structured_output,
        "capabilities": EMPTY if definition is None else definition.capabilities,
    }
    return {
        "environ": around.environ,
        "default_provider": around.default_provider,
        **limit_settings,
        **served,
        **address,
    }


_NOTHING: Final = ProviderSettings()


class NamedModels:
    """Models that an agent's context providers name, opened as the agent's own (`flowengine.models.open.Models`).

    >>> NamedModels(Surroundings({}, stand_in="offline")).model("openai/gpt-4o").name
    'offline'
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def model(self, name: str) -> Model:
        return open_model(CallSettings(self._around.stand_in or name, surroundings=self._around))[0]

    def embedding(self, name: str) -> Model | None:
        """Returns the embedding model of a name; stand-ins for models have none."""
        around = self._around
        if around.stand_in is not None and is_stand_in(_find_meaning(around.stand_in, around).choice.provider):
            return None
        meaning = _find_meaning(name, around)
        return _add_said(get_embedding(meaning.model, **_vendor_settings(meaning, around)), name, meaning, around)
