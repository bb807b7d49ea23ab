"""How many tokens a text has, counted on this machine.

tiktoken fetches its vocabularies from the network unless it finds them in a folder. litellm ships
them, so its folder is looked up (without importing litellm, which takes seconds) and each file is
checked before tiktoken may touch it: there is never a request. Where a vocabulary is missing, an
estimate is given. Word counts would be 60-100 % wrong on Japanese and Chinese.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

__all__ = ["count_tokens", "estimate_tokens"]

_VOCABULARIES: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""Encoding → SHA-256 of its file; a file that differs would make tiktoken fetch another one."""

_NEWEST: Final = "o200k_base"
"""Also the nearest guess for the models of other vendors, whose vocabularies are not public."""

_PART: Final = 10_000
"""Characters of a part of a text that cannot be counted as a whole."""


def count_tokens(text: str, model: str | None = None) -> int:
    """Tokens of a text as OpenAI's models count them; control words in it are plain text.

    >>> count_tokens("Hello, world!")
    4
    """
    if not text:
        return 0
    encoding = _encoding(_encoding_name(model))
    if encoding is None:
        return estimate_tokens(text)
    try:
        return len(encoding.encode(text, disallowed_special=()))
    except ValueError:
        # Hundreds of thousands of blanks in a row are more than its pattern can go back over.
        parts = (text[start : start + _PART] for start in range(0, len(text), _PART))
        return sum(len(encoding.encode(part, disallowed_special=())) for part in parts)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has: at once, with nothing to load.

    A token is about four characters of a Latin script and a bit more than one of most others.

    >>> estimate_tokens("Hello, world!"), estimate_tokens("今日は世界。")
    (4, 5)
    """
    if not text:
        return 0
    latin = len(text) if text.isascii() else sum(character < "\u0250" for character in text)
    return max(1, -(-latin // 4) + round((len(text) - latin) * 0.8))


@cache
def _encoding_name(model: str | None) -> str:
    if model is None:
        return _NEWEST
    try:
        name = import_module("tiktoken").encoding_name_for_model(model.rpartition("/")[2])
    except (ImportError, KeyError):
        return _NEWEST
    return name if name in _VOCABULARIES else _NEWEST


@cache
def _encoding(name: str) -> Any:
    """tiktoken's encoding, or None where its file is not on this machine."""
    folder = _folder()
    if folder is None or not _is_whole(folder, name):
        return None
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder))  # tiktoken takes it from nowhere else
    if os.environ["TIKTOKEN_CACHE_DIR"] != str(folder) and not _is_whole(Path(os.environ["TIKTOKEN_CACHE_DIR"]), name):
        return None
    return import_module("tiktoken").get_encoding(name)


def _folder() -> Path | None:
    spec = find_spec("litellm")
    if spec is None or spec.origin is None or find_spec("tiktoken") is None:
        return None
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


def _is_whole(folder: Path, name: str) -> bool:
    """Whether the folder has this vocabulary under the name that tiktoken looks for, undamaged."""
    address = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    file = folder / hashlib.sha1(address.encode()).hexdigest()
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == _VOCABULARIES[name]
