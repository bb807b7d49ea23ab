"""Terms as SQLite's FTS5 takes them: what is indexed, and what is asked for. No user's text is ever an operator.

FTS5's own tokenizers find no word of a script without spaces, so it is handed terms with spaces between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowengine.retrieval.terms import asked_terms, is_one_spaceless, stems, trailing

__all__ = ["TOKENIZER", "indexed", "match_any"]

TOKENIZER: Final = "unicode61 remove_diacritics 0 categories 'L* N* M* Co'"
"""Leaves our terms whole."""

_MOST: Final = 64
"""Terms that are asked for of either end of a query: a long prompt says what it wants at its beginning or its end."""


def indexed(text: str) -> str:
    """A text as it goes into the index.

    >>> indexed("Cached orders: 緑茶を")
    'cach order 緑茶 茶を を'
    """
    return " ".join([*stems(text), *trailing(text)])


def match_any(query: str, columns: Sequence[str] = ()) -> str:
    """The MATCH expression for all documents that hold any term of a query; empty where it has none.

    >>> match_any('Orders AND "茶"', ["name"])
    '{name}: ("order" OR "茶"*)'
    """
    asked = asked_terms(query)
    chosen = dict.fromkeys((*asked[:_MOST], *asked[-_MOST:]))
    quoted = " OR ".join(f'"{term}"*' if is_one_spaceless(term) else f'"{term}"' for term in chosen)
    return f"{{{' '.join(columns)}}}: ({quoted})" if quoted and columns else quoted
