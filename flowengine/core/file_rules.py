"""Holds what a project allows of files: where they may come from, their sizes and media types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["FileRules", "RefusedFileError", "allowed_url"]


class RefusedFileError(ValueError):
    """A file that is not taken; the message says why. Whoever asked for it says where."""


@dataclass(frozen=True)
class FileRules:
    """The table `[files]` of a project file."""

    root: Path | None = None
    """The folder below which the paths lie that texts name; None: the working folder."""
    max_file: int = 20 * 2**20
    """Bytes of one file."""
    max_run: int = 200 * 2**20
    """Bytes of all files of a run, equal ones counted once."""
    media_types: tuple[str, ...] = ("*/*",)
    """What files may be, by their contents."""
    allow_urls: tuple[str, ...] = ()
    """Beginnings of the addresses that files may be fetched from."""


def allowed_url(url: str, allowed: tuple[str, ...]) -> str | None:
    """The beginning that allows an address; None where none does.

    Scheme, host and port are the same, and the path lies at or below that of the beginning.

    >>> rules = ("https://files.example.com/invoices/",)
    >>> allowed_url("https://files.example.com/invoices/1.pdf", rules)
    'https://files.example.com/invoices/'
    >>> [allowed_url(each, rules) for each in (
    ...     "http://files.example.com/invoices/1.pdf", "https://files.example.com.evil.org/invoices/1.pdf",
    ...     "https://files.example.com/invoices/../x", "https://files.example.com/invoices/%2e%2e/x",
    ...     "https://me@files.example.com/invoices/1", "https://files.example.com/other")]
    [None, None, None, None, None, None]
    """
    wanted = _parts(url)
    if wanted is None or ".." in unquote(unquote(wanted[1])) or "\\" in url:
        return None
    for each in allowed:
        known = _parts(each)
        if known is not None and known[0] == wanted[0]:
            folder = known[1].rstrip("/")
            if wanted[1] == known[1] or wanted[1].startswith(f"{folder}/"):
                return each
    return None


def _parts(url: str) -> tuple[tuple[str, str, int], str] | None:
    """Scheme, host and port, and the path; None for what is no address of the web."""
    try:
        split = urlsplit(url)
        port = split.port or {"https": 443, "http": 80}[split.scheme]
    except (ValueError, KeyError):
        return None
    if split.username is not None or split.password is not None or not split.hostname:
        return None
    if any(ord(each) <= 0x20 or ord(each) > 0x7E for each in url):
        return None
    return (split.scheme, split.hostname, port), split.path or "/"
