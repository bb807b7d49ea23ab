"""Reads the texts that models are sent, in the agent's language: one TOML file a locale, read at its first use.

It knows keys and placeholders. It knows no agent and no message, and it translates nothing that a
user wrote.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, cast

from flowengine.errors import DefinitionError

LOCALES: Final = ("en", "ja", "zh")


class Messages:
    """The texts of one locale, by `section.key`.

    >>> load_messages("en")("generation.input", text="Why?")
    'User input: Why?'
    """

    def __init__(self, locale: str, texts: Mapping[str, str]) -> None:
        self.locale = locale
        self.texts = texts

    def __call__(self, key: str, **values: object) -> str:
        """The text with its placeholders filled in; a value's own braces stay as they are."""
        return self.texts[key].format(**values) if values else self.texts[key]

    def section(self, name: str) -> dict[str, str]:
        """The texts of one section, by key, in the file's order."""
        prefix = name + "."
        return {key.removeprefix(prefix): text for key, text in self.texts.items() if key.startswith(prefix)}


@cache
def load_messages(locale: str, room: str = "flowengine.core") -> Messages:
    """The catalogue of a locale, among those of a room; an unknown one is a `DefinitionError`."""
    if locale not in LOCALES:
        raise DefinitionError(f"unknown locale {locale!r}; there are {', '.join(LOCALES)}")
    source = files(room).joinpath("locales", f"{locale}.toml").read_text(encoding="utf-8")
    sections = cast("dict[str, dict[str, str]]", tomllib.loads(source))
    return Messages(
        locale, {f"{section}.{key}": text for section, texts in sections.items() for key, text in texts.items()}
    )
