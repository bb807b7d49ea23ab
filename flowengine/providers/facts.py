"""What must survive when a text is shortened: paths of files, errors and identifiers, word for word.

It knows how such things look. No model decides here and nothing is rephrased; what is left out of a text, and why,
is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from flowengine.catalogue import Catalogue

__all__ = ["NO_FACTS", "Facts", "facts_of", "facts_text", "merged", "unseen"]

_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`)\]}、。」』）]+")
_ENDINGS: Final = (
    "bash|c|cc|cfg|cjs|conf|cpp|cs|css|csv|docx?|go|gradle|h|hpp|html|ini|ipynb|java|jpe?g|jsonl?|jsx?|kts?|lock|log|"
    "md|mjs|pdf|php|png|proto|ps1|pyi?|rb|rs|rst|scala|scss|sh|sql|sqlite|svelte|svg|swift|tf|toml|tsv|tsx?|txt|vue|"
    "xlsx?|xml|ya?ml"
)
_PART: Final = r"[A-Za-z0-9_.@+\-\[\]]+"
_PATH: Final = re.compile(
    r"(?<![A-Za-z0-9_/\\.:@-])(?:"
    rf"(?:~|\.{{1,2}}|[A-Za-z]:)?[/\\](?:{_PART}[/\\])*{_PART}"  # from a root
    rf"|(?:{_PART}[/\\])+{_PART}\.[A-Za-z0-9]{{1,8}}"  # through folders to what has an ending
    rf"|(?:{_PART}/){{2,}}{_PART}"  # three deep
    rf"|[A-Za-z0-9_][A-Za-z0-9_.\-]*\.(?:{_ENDINGS})"  # alone, with an ending that files have
    r")(?![A-Za-z0-9_/\\-])"
)
_QUOTED_PATH: Final = re.compile(
    rf"[\"'`「『]([^\s\"'`「」『』<>|*?/]+(?:/[^\s\"'`「」『』<>|*?/]+)*\.(?:{_ENDINGS}))[\"'`」』]"
)
"""In any script, where quotes say how far it goes."""
_ID: Final = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,64}\b"
    r"|\b[A-Z][A-Z0-9]{1,9}-\d+\b"
    r"|(?<![\w&])#\d{2,}\b"
    r"|\b[a-z]{2,12}[_-](?=[A-Za-z]*\d)[A-Za-z0-9]{5,40}\b"
    r"|\b\d{6,20}\b"
)
_ERROR: Final = re.compile(
    r"\b[A-Za-z_.]*(?:Error|Exception)\b\s*[:(]"
    r"|(?i:\b(?:error|fatal|panic|failed|failure|traceback|denied|not found)\b|\bexit (?:code|status) [1-9])"
    r"|エラー|失敗|例外|错误|失败|异常|오류|실패"
)
_WIDEST: Final = 200
"""Characters that are kept of a line that tells of an error."""
_LOOKED_AT: Final = 2000
"""Characters of a line in which an error is looked for."""


class Facts(NamedTuple):
    """What a text holds, each once and in its order."""

    paths: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Whole lines."""
    ids: tuple[str, ...] = ()
    """Addresses of the web among them."""


NO_FACTS: Final = Facts()


def facts_of(text: str) -> Facts:
    """The facts of a text.

    >>> facts_of("I read src/app.py for ABC-123.\\nValueError: no such key")
    Facts(paths=('src/app.py',), errors=('ValueError: no such key',), ids=('ABC-123',))
    """
    plain = _URL.sub(" ", text)
    paths = (*(each.rstrip(".,") for each in _PATH.findall(plain)), *_QUOTED_PATH.findall(plain))
    errors = (line.strip()[:_WIDEST] for line in text.splitlines() if _ERROR.search(line, 0, _LOOKED_AT))
    ids = (*(each.rstrip(".,;:!?") for each in _URL.findall(text)), *_ID.findall(plain))
    return Facts(_once(each for each in paths if len(each) > 1), _once(errors), _once(ids))


def merged(facts: Iterable[Facts]) -> Facts:
    """The facts of several texts as those of one."""
    return Facts(*(_once(each for kind in kinds for each in kind) for kinds in zip(NO_FACTS, *facts, strict=True)))


def unseen(facts: Facts, seen: Facts) -> Facts:
    """Those of the facts that are not among others."""
    known = map(frozenset[str], seen)
    return Facts(
        *(tuple(each for each in kind if each not in others) for kind, others in zip(facts, known, strict=True))
    )


def facts_text(words: Catalogue, facts: Facts, room: int, count: Callable[[str], int]) -> str:
    """The facts as a text of so many tokens at most: paths before errors before ids, and the newest of each."""
    if facts == NO_FACTS:
        return ""
    left = room - count(words("compression.facts"))
    kept: list[list[str]] = []
    for kind in facts:
        newest: list[str] = []
        for each in reversed(kind):
            cost = count(each) + 2
            if cost > left:
                break
            left -= cost
            newest.insert(0, each)
        kept.append(newest)
    paths, errors, ids = kept
    lines = [
        words("compression.paths", list=", ".join(paths)) if paths else "",
        *([words("compression.errors"), *(f"- {each}" for each in errors)] if errors else []),
        words("compression.ids", list=", ".join(ids)) if ids else "",
    ]
    return "\n".join([words("compression.facts"), *(line for line in lines if line)]) if any(kept) else ""


def _once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
