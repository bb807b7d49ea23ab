"""What the retrieval tests share: an embedder that counts what it is asked for, and the data sets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from flowengine.errors import TransientModelError

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))


class Colours:
    """Vectors of three numbers: how red, green and blue a text is, whatever language it says so in."""

    name = "colours"
    WORDS = (("red", "crimson", "赤"), ("green", "lime", "緑"), ("blue", "navy", "青"))

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_down = False

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self.is_down:
            raise TransientModelError("the embedder is down")
        self.asked += texts
        return [[float(sum(text.count(word) for word in words)) for words in self.WORDS] for text in texts]


@pytest.fixture
def colours() -> Colours:
    return Colours()
