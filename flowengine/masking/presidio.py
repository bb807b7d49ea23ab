"""Microsoft Presidio as a recognizer: names, places and what else its language models find.

It knows how Presidio is asked. Presidio is not installed with FlowEngine (`pip install presidio-analyzer`, and a spaCy
model), and is imported when it is first asked for something.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from flowengine.errors import DefinitionError
from flowengine.masking.recognizer import Span

__all__ = ["PresidioRecognizer"]


class PresidioRecognizer:
    """What a Presidio analyzer finds in texts of one language, from a score on."""

    def __init__(
        self,
        language: str = "en",
        entities: Sequence[str] | None = None,
        threshold: float = 0.5,
        analyzer: Any = None,
    ) -> None:
        """`entities`: Presidio's names, None for all. `analyzer`: an `AnalyzerEngine` that is set up already."""
        if not 0.0 <= threshold <= 1.0:
            raise DefinitionError(f"threshold must be between 0.0 and 1.0, not {threshold!r}")
        self._language = language
        self._entities = None if entities is None else list(entities)
        self._threshold = threshold
        self._analyzer = analyzer
        self._lock = threading.Lock()

    def find(self, text: str) -> Iterator[Span]:
        with self._lock:
            if self._analyzer is None:
                self._analyzer = _engine()
        found = self._analyzer.analyze(
            text=text, language=self._language, entities=self._entities, score_threshold=self._threshold
        )
        for each in found:
            yield Span(each.start, each.end, re.sub("[^A-Z0-9_]", "_", str(each.entity_type).upper()))


def _engine() -> Any:
    try:
        return import_module("presidio_analyzer").AnalyzerEngine()
    except ImportError as error:
        raise DefinitionError(
            "masking with 'presidio' needs the package presidio-analyzer and a spaCy model: "
            "pip install presidio-analyzer && python -m spacy download en_core_web_lg"
        ) from error
