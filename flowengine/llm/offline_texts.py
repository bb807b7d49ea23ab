"""The offline stand-in's own sentences, by language. They are read once, when first asked for."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import cast

from flowengine.llm.terms import Language

__all__ = ["notices", "offline_texts"]


@cache
def _all() -> dict[str, dict[str, str]]:
    source = files("flowengine.llm").joinpath("offline_texts.toml").read_text("utf-8")
    return cast("dict[str, dict[str, str]]", tomllib.loads(source))


def offline_texts(language: Language) -> dict[str, str]:
    """Key → text with its placeholders."""
    return _all()[language]


@cache
def notices() -> frozenset[str]:
    """The lines by which an answer says where it comes from, in all languages."""
    return frozenset(texts["notice"] for texts in _all().values())
