"""OpenAI's vocabularies as tiktoken's encodings, from the files that litellm ships: there is never a request.

tiktoken itself fetches them from the network unless a folder has them, and reads them line by line. Here the folder of
litellm is looked up without importing litellm, which takes seconds, and a file is read at once. What is counted with
them, and for which models, is known in `tokens`.
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

__all__ = ["NEWEST", "VOCABULARIES", "Vocabulary", "encoding"]

_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


class Vocabulary(NamedTuple):
    """What makes an encoding what it is, beside its special tokens, which no text is ever read as here."""

    sha256: str
    """Of its file, whose lines are tokens in base64, in the order of their ranks."""
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
"""By the names of their encodings."""

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
    made = import_module("tiktoken.core").Encoding(
        name, pat_str=VOCABULARIES[name].pattern, mergeable_ranks=ranks, special_tokens={}
    )
    _keep(made)
    return made


def _keep(made: object) -> None:
    """Let an object outlive the interpreter: to free its 600,000 pieces of memory one by one, right before all memory
    is given back, takes a quarter of the time of a process that counts."""
    ctypes = import_module("ctypes")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))


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
