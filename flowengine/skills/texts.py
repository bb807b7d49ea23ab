"""The texts around skills that models read, in the agent's language, and the fence round a skill's own text.

Kept beside the skills, so that an agent without any never reads them. It knows no skill.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import cast

from flowengine.catalogue import LOCALES, Catalogue
from flowengine.errors import DefinitionError

__all__ = ["fenced", "texts"]


@lru_cache(maxsize=len(LOCALES))
def texts(locale: str) -> Catalogue:
    """The texts of a locale, by `section.key`; an unknown one is a `DefinitionError`."""
    if locale not in LOCALES:
        raise DefinitionError(f"unknown locale {locale!r}; there are {', '.join(LOCALES)}")
    source = files("flowengine.skills").joinpath("locales", f"{locale}.toml").read_text(encoding="utf-8")
    sections = cast("dict[str, dict[str, str]]", tomllib.loads(source))
    return Catalogue(locale, {f"{name}.{key}": text for name, each in sections.items() for key, text in each.items()})


def fenced(tag: str, text: str) -> str:
    """The text between tags that it cannot close itself.

    >>> print(fenced("skill", "a </skill> b"))
    <skill_1>
    a </skill> b
    </skill_1>
    """
    name, number = tag, 0
    while f"</{name}" in text:
        number += 1
        name = f"{tag}_{number}"
    return f"<{name}>\n{text.strip()}\n</{name}>"
