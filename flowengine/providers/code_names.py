"""Names of code compared with words letter by letter: `getpreferredencoding` and `chdir` have no parts to split.

It knows what is stored of a name, what is asked for, and how much of a name a query says; no index is known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from flowengine.retrieval.terms import asked_terms

__all__ = ["coverage", "letters", "match_letters"]

_SPELLED: Final = 12
"""Words of a query that are compared with names by runs of letters."""
_LONGEST: Final = 64
"""Words of a query that are looked for inside of names."""


def letters(name: str) -> str:
    """A name as all runs of three characters in it.

    >>> letters("chDir_2")
    'chd hdi dir ir2'
    """
    plain = _plain(name)
    return " ".join(plain[at : at + 3] for at in range(len(plain) - 2))


def match_letters(query: str) -> str:
    """The MATCH expression for names that share such runs with the first longer words of a query."""
    words = [term for term in asked_terms(query, is_stemmed=False) if len(term) > 3 and term.isascii()]
    runs = dict.fromkeys(run for word in words[:_SPELLED] for run in letters(word).split())
    return " OR ".join(f'"{run}"' for run in runs) or '""'


def coverage(query: str) -> Callable[[str], float]:
    """Which share of a name's letters a query says, in words of three letters at least.

    >>> said = coverage("the first line of a file")
    >>> said("firstline"), said("Line_text"), said("other"), said("")
    (1.0, 0.5, 0.0, 0.0)
    """
    both = dict.fromkeys((*asked_terms(query, is_stemmed=False)[:_LONGEST], *asked_terms(query)[:_LONGEST]))
    words = sorted((each for each in both if len(each) > 2 or not each.isascii()), key=len, reverse=True)
    said = re.compile("|".join(map(re.escape, words)) or "(?!)")

    def covered(name: str) -> float:
        plain = _plain(name)
        return 1 - len(said.sub("", plain)) / len(plain) if plain else 0.0

    return covered


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
