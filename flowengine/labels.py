"""Labels of routes and choices, and which of them an answer names."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

__all__ = ["find_label", "label_key"]


def label_key(label: str, *, in_any_case: bool = False) -> str:
    """What two labels have in common that are the same: no space around it, letters composed (NFC)."""
    text = unicodedata.normalize("NFC", label.strip())
    return unicodedata.normalize("NFC", text.casefold()) if in_any_case else text


def find_label(answer: str, labels: Iterable[str], *, in_any_case: bool = False) -> str | None:
    """The label that an answer names, written as it was declared; None where it names none.

    >>> find_label("Cafe\u0301", ["tea", "Caf\u00e9"])
    'Café'
    """
    known = list(labels)
    if answer in known:
        return answer
    keys = {label_key(each, in_any_case=in_any_case): each for each in known}
    return keys.get(label_key(answer, in_any_case=in_any_case))
