"""From a model's name to a model. It knows where names are looked up, and no vendor."""

from __future__ import annotations

from flowengine.agents.settings import CallSettings
from flowengine.errors import ModelConfigError
from flowengine.llm.model import Model

__all__ = ["open_model"]


def open_model(settings: CallSettings) -> tuple[Model, str]:
    """The model of the settings, and a notice where a stand-in answers because none was chosen."""
    if settings.model is None or isinstance(settings.model, str):
        raise ModelConfigError("give a model object")
    return settings.model, ""
