"""From an agent's settings to the model that answers: by name or as given, with retries and fallbacks.

It knows which wrappers an agent's settings ask for, and in which order. Vendors, keys and waiting
are the model column's matter.
"""

from __future__ import annotations

from flowengine.agents.settings import CallSettings
from flowengine.llm.detect import default_model, get_llm
from flowengine.llm.fallback import FallbackModel
from flowengine.llm.litellm_model import LiteLLMModel
from flowengine.llm.model import Model
from flowengine.llm.retrying import RetryingModel

__all__ = ["open_model", "prepare_model"]


def open_model(settings: CallSettings) -> tuple[Model, str | None]:
    """The model, and a notice where none was chosen and a stand-in answers.

    >>> open_model(CallSettings("offline"))[0].name
    'offline'
    """
    first, notice = (settings.model, None) if settings.model is not None else default_model()
    models = [_opened(each, settings.max_retries) for each in (first, *settings.fallbacks)]
    return (models[0] if len(models) == 1 else FallbackModel(models)), notice


def prepare_model(settings: CallSettings) -> None:
    """Raise now what opening the model would raise later (a missing key), and start the slow import of its library."""
    model, _ = open_model(settings)
    is_named = settings.model is None or isinstance(settings.model, str)
    if is_named and model.provider != "offline":
        LiteLLMModel.preload()


def _opened(model: str | Model, max_retries: int) -> Model:
    if isinstance(model, str):
        return get_llm(model, max_retries=max_retries)
    # A model that comes with a policy of its own keeps it: retries of retries would multiply.
    has_policy = isinstance(model, RetryingModel | FallbackModel)
    return model if has_policy or not max_retries else RetryingModel(model, max_retries)
