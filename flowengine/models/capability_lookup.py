"""Looks up what a model can do, as far as that is known before it is asked.

A project's word goes first. What litellm's table says of a model is read from it; the few things that it does not say
stand in `capability_rules`, each with its source. A model that is newer than the table has what the newest of its
family has. Nothing is refused for what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from flowengine.core import EMPTY
from flowengine.models.capabilities import Capabilities, Kind, kind_of
from flowengine.models.capability_rules import RULES
from flowengine.models.pricing import listed_entry, whole_table
from flowengine.models.vendors import vendor_named


def capabilities_of(provider: str, name: str, overrides: Mapping[str, Any] = EMPTY) -> Capabilities:
    """Returns the capabilities of a vendor's model. `overrides`: a project's own statements, by field;
    its `same_as` names the vendor's model behind a name that does not tell it.

    >>> capabilities_of("openai", "gpt-5").efforts, capabilities_of("openai", "gpt-5-pro").api
    (('minimal', 'low', 'medium', 'high'), 'responses')
    >>> capabilities_of("azure", "prod", {"same_as": "openai/gpt-5"}).sampling
    'never'
    """
    if not overrides:
        return _look_up(provider, name)
    capabilities = _look_up(*overrides["same_as"].split("/", 1)) if "same_as" in overrides else _look_up(provider, name)
    fields = {key: value for key, value in overrides.items() if key != "same_as"}
    if fields.get("thinks") is True and not capabilities.thinks and "sampling" not in fields:
        fields["sampling"] = "never"
    if fields.get("thinks") is False:
        fields = {"efforts": (), "sampling": "always", **fields}
    return replace(capabilities, is_known=True, **fields)


@cache
def _look_up(provider: str, name: str) -> Capabilities:
    entry = listed_entry(provider, name)
    if entry is None:
        entry = find_kin(provider, name)
    rule = RULES.get(provider)
    facts: Mapping[str, Any] = {} if entry is None else entry
    if rule is None:
        return Capabilities(entry is not None, tools=_flag(facts, "supports_function_calling"))
    return replace(rule(name, facts), is_known=entry is not None)


def _flag(facts: Mapping[str, Any], key: str) -> bool | None:
    value = facts.get(key)
    return value if isinstance(value, bool) else None


# --- Families: models that are newer than the table


def find_kin(provider: str, name: str) -> Mapping[str, Any] | None:
    """The table's entry of the newest model of a family, where a name is that of a newer one; None elsewhere.

    >>> find_kin("openai", "gpt-4o-mine"), find_kin("anthropic", "claude-opus-97")["supports_adaptive_thinking"]
    (None, True)
    """
    kind = kind_of(name)
    if kind is None or provider not in _WITH_FAMILIES:
        return None
    of_family = [each for each in _kinds(provider) if each[0].family == kind.family]
    alike = [each for each in of_family if each[0].variant == kind.variant] or of_family
    newest = max(alike, key=lambda each: each[0].version, default=None)
    if newest is None or newest[0].version > kind.version:
        return None
    return None if newest[0][1:] == kind[1:] else newest[1]


_WITH_FAMILIES: Final = frozenset({"openai", "anthropic", "google", "xai", "deepseek"})


@cache
def _kinds(provider: str) -> list[tuple[Kind, Mapping[str, Any]]]:
    """The vendor's own models that answer."""
    prefix = vendor_named(provider).prefix
    kinds: list[tuple[Kind, Mapping[str, Any]]] = []
    for name, entry in whole_table().items():
        if entry.get("litellm_provider") == prefix and entry.get("mode") in ("chat", "responses"):
            kind = kind_of(name.removeprefix(f"{prefix}/"))
            if kind is not None:
                kinds.append((kind, entry))
    return kinds
