"""From an agent's settings to the model that answers: by name or as given, with retries and fallbacks.

It knows which wrappers an agent's settings ask for, and in which order. Vendors, keys and waiting
are the model column's matter.
"""

from __future__ import annotations

from typing import Any, Final

from flowengine.agents.settings import CallSettings
from flowengine.agents.surroundings import Surroundings
from flowengine.llm.detect import default_model, detect, get_llm
from flowengine.llm.fallback import FallbackModel
from flowengine.llm.litellm_model import LiteLLMModel
from flowengine.llm.model import Model
from flowengine.llm.provider import ProviderSettings
from flowengine.llm.retrying import RetryingModel

__all__ = ["open_model", "prepare_model"]


def open_model(settings: CallSettings) -> tuple[Model, str | None]:
    """The model, and a notice where none was chosen and a stand-in answers.

    >>> open_model(CallSettings("offline"))[0].name
    'offline'
    """
    around = settings.surroundings
    first, notice = (settings.model, None) if settings.model is not None else default_model(around.environ)
    models = [_opened(each, settings.max_retries, around) for each in (first, *settings.fallbacks)]
    return (models[0] if len(models) == 1 else FallbackModel(models)), notice


def prepare_model(settings: CallSettings) -> None:
    """Raise now what opening the model would raise later (a missing key), and start the slow import of its library."""
    model, _ = open_model(settings)
    is_named = settings.model is None or isinstance(settings.model, str)
    if is_named and model.provider != "offline":
        LiteLLMModel.preload()


def _opened(model: str | Model, max_retries: int, around: Surroundings) -> Model:
    if isinstance(model, str):
        return _named(model, max_retries, around)
    # A model that comes with a policy of its own keeps it: retries of retries would multiply.
    has_policy = isinstance(model, RetryingModel | FallbackModel)
    return model if has_policy or not max_retries else RetryingModel(model, max_retries)


def _named(model: str, max_retries: int, around: Surroundings) -> Model:
    """The model of a name, with what is said of its vendor here. All models of a vendor share its limits."""
    said = _NOTHING
    if around.providers:
        provider, _ = detect(model, environ=around.environ)
        said = around.providers.get(provider, said)
    address: dict[str, Any] = {} if said.base_url is None else {"api_base": said.base_url}
    return get_llm(model, environ=around.environ, max_retries=max_retries, limits=said.limits, **address)


_NOTHING: Final = ProviderSettings()
