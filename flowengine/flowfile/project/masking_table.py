"""Reads the table `masking` of a project file: what else is masked in what leaves, beside what is built in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from flowengine.core import is_map
from flowengine.core.masking import Pattern, Recognizer, recognizers
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.flowfile.project.toml_positions import TellProblem

_KEYS: Final = ("recognizers", "patterns")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_LONGEST: Final = 1_000


@dataclass(frozen=True)
class MaskingRules:
    """Rules for masking beside mail addresses, phone and card numbers, IP addresses and keys."""

    recognizers: Sequence[str] = ()
    """Names of recognizers: `presidio`, and those of entry points of `flowengine.masking`."""
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name → regular expression (Python's); what it matches becomes `<NAME:…>`. A group `value` is masked alone."""

    def make_recognizers(self) -> Sequence[Recognizer]:
        own = (Pattern(name.upper(), re.compile(text)) for name, text in self.patterns.items())
        return [*recognizers(self.recognizers), *own]


def read_masking(table: Mapping[str, Any], tell: TellProblem) -> MaskingRules:
    """The rules of the table, as far as they are sound."""
    for key in table:
        if key not in _KEYS:
            tell(f"unknown key '{key}' of `masking`", did_you_mean(key, _KEYS), ("masking", key))
    return MaskingRules(
        _read_names(table.get("recognizers", []), tell), _read_patterns(table.get("patterns", {}), tell)
    )


def _read_names(names: Any, tell: TellProblem) -> Sequence[str]:
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):  # pyright: ignore[reportUnknownVariableType] - of a TOML file
        tell("'recognizers' of `masking` is a list of names", "", ("masking", "recognizers"))
        return []
    try:
        recognizers(names)  # pyright: ignore[reportUnknownArgumentType] - checked above
    except DefinitionError as error:
        tell(str(error), "", ("masking", "recognizers"))
        return []
    return cast("list[str]", names)


def _read_patterns(patterns: Any, tell: TellProblem) -> Mapping[str, str]:
    if not is_map(patterns):
        tell("'patterns' of `masking` is a table: a name and a regular expression", "", ("masking", "patterns"))
        return {}
    sound: dict[str, str] = {}
    for name, text in patterns.items():
        place = ("masking", "patterns", name)
        if not _NAME.fullmatch(name):
            tell(f"'{name:.80}' is no name of a pattern: letters, digits and _", "", place)
        elif not isinstance(text, str) or not text or len(text) > _LONGEST:
            tell(f"the pattern '{name}' is a regular expression of 1 to {_LONGEST:,} characters", "", place)
        else:
            try:
                compiled = re.compile(text)
            except re.error as error:
                tell(f"the pattern '{name}' is no regular expression: {error}", "", place)
                continue
            if compiled.match(""):
                tell(f"the pattern '{name}' matches the empty text", "; it would mask nothing", place)
            else:
                sound[name] = text
    return sound
