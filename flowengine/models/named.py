"""Gives out models by name. How they are opened is the matter of the `Models` handed out."""

from __future__ import annotations

from typing import Final, Protocol

from flowengine.models.model import Model
from flowengine.models.open import get_llm

__all__ = ["PROCESS_MODELS", "Models"]


class Models(Protocol):
    """Opens models by name. What is wrong with a name, or a key that is missing, is a `ModelConfigError`."""

    def model(self, name: str) -> Model:
        """One that answers."""
        ...

    def embedding(self, name: str) -> Model | None:
        """One that makes vectors (`flowengine.models.embedding`); None where none is to be asked."""
        ...


class _ProcessModels:
    def model(self, name: str) -> Model:
        return get_llm(name)

    def embedding(self, name: str) -> Model | None:
        from flowengine.models.embedding import get_embedding  # Few flows compare by meaning.

        return get_embedding(name)


PROCESS_MODELS: Final[Models] = _ProcessModels()
"""From the process's own environment."""
