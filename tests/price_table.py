"""`python -m tests.price_table`: reads litellm's table as the product does, and names what it cannot read.

The table is that of the litellm which Python finds first: `PYTHONPATH=FOLDER` with another version in it reads that
one. A name that is new there is told and is no failure; an entry that raises, or that is charged above its plan, is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import product
from typing import Any, NamedTuple

from flowengine.models import pricing
from flowengine.models.model import TokenUsage
from flowengine.models.table_rates import read_rates
from flowengine.models.vendors import OTHERS, VENDORS
from flowengine.models.wrappers.priced import cost_of

__all__ = ["Problem", "find_problems"]

USAGES = [
    TokenUsage(prompt, 700, cached, written, thought)
    for prompt, (cached, written, thought) in product((90, 150_000, 300_000), ((0, 0, 0), (50, 20, 400)))
]
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"service_tier": "priority"},
    {"service_tier": "flex"},
    {"prompt_cache_retention": "24h"},
)
_TOKEN_RATE = re.compile(r"^(?!.*(audio|image|video|batches|1k_tokens|dbu)).*(cost_per_token|token_cost)")
_OTHERWISE = {"input_cost_per_token_cache_hit", "explicit_cache_read_input_token_cost", "citation_cost_per_token"}
"""Said a second time under another name, or of what is not used here."""
_ANSWERING = ("chat", "responses", "completion")


class Problem(NamedTuple):
    """What is wrong with one entry."""

    kind: str
    """`raises`, `above its plan`, `unread`, or `no price`."""
    entry: str
    told: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether the product, and no new word of the table, is the reason."""
        return self.kind in ("raises", "above its plan")


def find_problems() -> Iterator[Problem]:
    """Reads price, window, mode and capabilities of each entry."""
    vendors = {word: each for each in (*OTHERS.values(), *VENDORS.values()) for word in (each.prefix, each.name)}
    for name, entry in pricing.whole_table().items():
        if name == "sample_spec":
            continue
        if pricing.find_entry(name) != entry:
            yield Problem("raises", name, "it is not found under its name")
        vendor = vendors.get(str(entry.get("litellm_provider")))
        try:
            yield from _find_unread(name, entry)
            if vendor is not None:
                yield from _find_wrong(vendor.name, name.removeprefix(f"{vendor.prefix}/"), entry)
        except Exception as error:  # Whatever it is, it is what is looked for.
            yield Problem("raises", name, repr(error))


def _find_unread(name: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    known = read_rates(entry)
    for key, value in entry.items():
        if _TOKEN_RATE.match(key) and key not in _OTHERWISE and not read_rates({key: value}):
            yield Problem("unread", name, key)
        if key.startswith("supports_") and not isinstance(value, bool):
            yield Problem("unread", name, f"{key}: {value!r:.40}")
    if not isinstance(entry.get("mode", ""), str):
        yield Problem("unread", name, "mode")
    if entry.get("mode") in _ANSWERING and not known and "alias_of" not in entry:
        yield Problem("no price", name)


def _find_wrong(vendor: str, name: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    pricing.context_window(vendor, name)
    pricing.longest_answer(vendor, name, prompt_tokens=1000)
    pricing.listed_vision(vendor, name)
    pricing.listed_schema_support(vendor, name)
    pricing.listed_cache_price(vendor, name)
    for usage, extra in product(USAGES, OPTIONS):
        prompt, answer = usage.prompt_tokens or 0, usage.completion_tokens or 0
        cost = cost_of(vendor, name, usage, extra)
        price = pricing.listed_price(vendor, name, prompt_tokens=prompt, extra=extra)
        if cost is not None and (price is None or cost > price.of(prompt, answer) * (1 + 1e-9)):
            yield Problem("above its plan", f"{vendor}/{name}", f"{extra} {usage}: {cost}, {price}")
            return


_SHOWN = 20


def main() -> int:
    problems = list(find_problems())
    for kind in dict.fromkeys(each.kind for each in problems):
        found = [each for each in problems if each.kind == kind]
        print(f"{kind}: {len(found)}")
        told = sorted({f"{each.told or each.entry:.200}" for each in found})
        print("\n".join(f"  {each}" for each in told[:_SHOWN]))
        print(f"  … {len(told) - _SHOWN} more" if len(told) > _SHOWN else "", end="\n")
    print(f"litellm {version('litellm')}: {len(pricing.whole_table())} entries read")
    return int(any(each.is_ours for each in problems))


if __name__ == "__main__":
    sys.exit(main())
