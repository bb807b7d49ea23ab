"""Counts the tokens of a text, on this machine.

The vocabularies are read from litellm's folder. Where one is missing, an estimate is given.
Word counts would be 60-100 % wrong on Japanese and Chinese.
"""

from __future__ import annotations

import hashlib
from binascii import a2b_base64
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from flowengine.models.model import estimate_tokens

# --- Vocabularies as tiktoken's encodings

_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


class Vocabulary(NamedTuple):
    """The parts of an encoding, except special tokens, which are never read from text."""

    sha256: str
    """The digest of its file, whose lines are tokens in base64, in the order of their ranks."""
    pattern: str
    """Which pieces of a text are made into tokens one by one."""


NEWEST: Final = "o200k_base"

VOCABULARIES: Final = {
    NEWEST: Vocabulary(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "cl100k_base": Vocabulary(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
        r"\s+(?!\S)|\s",
    ),
}
"""The vocabularies by the names of their encodings."""

_loading: Final = Lock()


def encoding(name: str) -> Any:
    """tiktoken's encoding, made once; None where its file is not on this machine as it was published."""
    with _loading:
        return _encoding(name)


@cache
def _encoding(name: str) -> Any:
    content = _content(name)
    if content is None or find_spec("tiktoken") is None:
        return None
    ranks = {a2b_base64(token): rank for rank, token in enumerate(content.split()[::2])}
    encoder = import_module("tiktoken.core").Encoding(
        name, pat_str=VOCABULARIES[name].pattern, mergeable_ranks=ranks, special_tokens={}
    )
    _keep_alive(encoder)
    return encoder


def _keep_alive(encoder: object) -> None:
    """Let an object outlive the interpreter: to free its 600,000 pieces of memory one by one, right before all memory
    is given back, takes a quarter of the time of a process that counts."""
    ctypes = import_module("ctypes")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(encoder))


def _content(name: str) -> bytes | None:
    folder = _folder()
    if folder is None:
        return None
    address = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    file = folder / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    content = file.read_bytes() if file.is_file() else b""
    return content if hashlib.sha256(content).hexdigest() == VOCABULARIES[name].sha256 else None


def _folder() -> Path | None:
    spec = find_spec("litellm")
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers" if spec and spec.origin else None


_PART: Final = 10_000
"""Characters of a part of a text that cannot be counted as a whole."""


def count_tokens(text: str, model: str | None = None) -> int:
    """Tokens of a text as OpenAI's models count them; control words in it are plain text.

    >>> count_tokens("Hello, world!")
    4
    """
    if not text:
        return 0
    encoder = encoding(_encoding_name(model))
    if encoder is None:
        return estimate_tokens(text)
    try:
        return len(encoder.encode(text, disallowed_special=()))
    except ValueError:
        # Hundreds of thousands of blanks in a row are more than its pattern can go back over.
        parts = (text[start : start + _PART] for start in range(0, len(text), _PART))
        return sum(len(encoder.encode(part, disallowed_special=())) for part in parts)


@cache
def _encoding_name(model: str | None) -> str:
    """The encoding of a model; the newest is the nearest guess for other vendors' too, which publish none."""
    if model is None:
        return NEWEST
    try:
        name = import_module("tiktoken").encoding_name_for_model(model.rpartition("/")[2])
    except (ImportError, KeyError):
        return NEWEST
    return name if name in VOCABULARIES else NEWEST
