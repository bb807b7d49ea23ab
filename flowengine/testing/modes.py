"""Chooses whether cassettes play or record: the modes and where they come from. No model, no file."""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias, get_args

from flowengine.errors import DefinitionError, did_you_mean

Mode: TypeAlias = Literal["none", "once", "new", "all"]
"""`none` plays only; `once` records where there is no file; `new` records what the file lacks; `all` records anew."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
VARIABLE: Final = "FLOWENGINE_CASSETTES"


def choose_mode(mode: str | None = None) -> Mode:
    """The mode given, else that of `FLOWENGINE_CASSETTES`, else `none` where `CI` is set, else `once`."""
    text = mode or os.environ.get(VARIABLE, "")
    if not text:
        return "none" if os.environ.get("CI", "").lower() not in ("", "0", "false") else "once"
    for each in MODES:
        if text == each:
            return each
    raise DefinitionError(f"a cassette's mode is one of {', '.join(MODES)}, not '{text}'{did_you_mean(text, MODES)}")
