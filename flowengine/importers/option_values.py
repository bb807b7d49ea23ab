"""Tells which values of a source can be options here, and which are keys that stand in no file."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from flowengine.errors import ModelConfigError
from flowengine.models import VendorQuestion, choose, find_refusals

SECRET_HEADER: Final = re.compile(r"authori[sz]ation|cookie|token|secret|password|api-?key|^x-.*-?key$", re.IGNORECASE)
"""Headers of requests whose values are keys: they come from the environment and stand in no flow file."""
KEYS_OUTSIDE: Final = "keys come from the environment"
_SECRET: Final = re.compile(
    r"(?:.*[_.-])?(?:api|app|access|auth|client)?[_.-]?(?:key|token|secret|password|passwd|pwd)", re.I
)
RANGES: Final = {
    **{"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)},
    **{"max_tokens": (1, 10**9), "seed": (-(10**12), 10**12)},
}
"""Option of a model that is a number → from where to where."""
WHOLE: Final = frozenset({"max_tokens", "seed"})


def fits_option(key: str, value: Any) -> bool:
    """Tells whether a value can be that option of a model in the flow format.

    >>> fits_option("temperature", 0.5), fits_option("max_tokens", True), fits_option("logprobs", 1)
    (True, False, False)
    """
    if key in RANGES:
        low, high = RANGES[key]
        return type(value) in ({int} if key in WHOLE else {int, float}) and low <= value <= high
    return isinstance(value, list) and bool(cast("list[Any]", value)) if key == "stop" else False


def drop_refused(model: str | None, keys: dict[str, Any]) -> list[str]:
    """Leave out the options that a model is known to refuse, and say why: other products do not send them either.

    >>> keys = {"temperature": 0.3, "max_tokens": 9}
    >>> drop_refused("o3-mini", keys)[0][:25], keys
    ('`temperature` is left out', {'max_tokens': 9})
    """
    try:
        vendor = choose(VendorQuestion(model or "", None, {}))
    except ModelConfigError:
        return []
    options = {key: keys[key] for key in (*RANGES, "stop") if key in keys}
    refusals = list(find_refusals(vendor.provider, vendor.name, options))
    return [
        f"`{each.option}` is left out, since {each.reason}"
        for each in refusals
        if keys.pop(each.option, None) is not None
    ]


def is_secret(name: object, value: object) -> bool:
    """Tells whether a value that stands in the source is a key, by its name and what it looks like.

    >>> is_secret("api_key", "sk-0123456789ab"), is_secret("max_tokens", "100"), is_secret("key", "name")
    (True, False, False)
    """
    looks_so = isinstance(value, str) and re.fullmatch(r"(?:Bearer )?[\w.+/=~-]{12,500}", value, re.ASCII)
    return bool(looks_so and len(str(name)) < 100 and _SECRET.fullmatch(str(name)))


def whole_number(value: object, low: int, high: int = 1_000_000_000) -> int | None:
    """The value where it is a whole number of a range; None for all else.

    >>> whole_number(3, 1, 9), whole_number(0, 1, 9), whole_number(True, 1, 9), whole_number("3", 1, 9)
    (3, None, None, None)
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high else None
