"""Signs and reads the links by which people answer: one for each choice and each person. Pure.

A link says which question of which run it answers, how, and who answers by it; an HMAC over all of that keeps anybody
from making one, or another of one. It is good for as long as its question is open, and so for one answer. Nothing is
stored: with the secret every link that was signed with it can be read.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple, cast

from flowengine.errors import DefinitionError

SECRET_VARIABLE: Final = "FLOWENGINE_LINK_SECRET"
"""The environment variable with the secret; of several, with commas between, the first signs, and all are taken."""

_SHORTEST: Final = 32
_LONGEST: Final = 8_000
_PURPOSE: Final = b"flowengine answer link 1\0"


class AnswerLink(NamedTuple):
    """The contents of a signed link."""

    run_id: str
    question: str
    """Path of the question."""
    asked: float
    """When it was asked: a later question of the same path is another one."""
    choice: str
    by: str
    """Who answers by it: the mail address, or the channel, that it was sent to."""
    expires: float | None = None
    """Unix seconds."""


class LinkSigner:
    """Signs with the first of its secrets, and takes what any of them has signed.

    >>> signer = LinkSigner(["a secret of thirty-two characters or more"])
    >>> token = signer.sign(AnswerLink("r1", "sign_off", 1.5, "yes", "ada@example.com"))
    >>> signer.read(token).choice, signer.read(token[:-1])
    ('yes', None)
    """

    def __init__(self, secrets: list[str]) -> None:
        self._secrets = [each.encode("utf-8", "surrogateescape") for each in secrets]

    def sign(self, link: AnswerLink) -> str:
        """The link as one word, which fits into an address."""
        payload = json.dumps(link, separators=(",", ":")).encode()
        return f"{_to_word(payload)}.{_to_word(_digest(self._secrets[0], payload))}"

    def read(self, token: str) -> AnswerLink | None:
        """Verifies a link and returns its contents; None if it was not signed here."""
        if len(token) > _LONGEST:
            return None
        payload, mark = (_from_word(each) for each in token.partition(".")[::2])
        if not payload or not mark:
            return None
        matches = [hmac.compare_digest(_digest(secret, payload), mark) for secret in self._secrets]
        return _read_payload(payload) if any(matches) else None


def find_signer(environ: Mapping[str, str]) -> LinkSigner:
    """The signer of an environment's secret; `DefinitionError` where there is none that is long enough."""
    secrets = [each.strip() for each in environ.get(SECRET_VARIABLE, "").split(",") if each.strip()]
    if not secrets:
        raise DefinitionError(
            f"links for answers cannot be signed: the environment variable {SECRET_VARIABLE} is not set "
            '(python -c "import secrets; print(secrets.token_hex(32))" makes a value)'
        )
    if any(len(each) < _SHORTEST for each in secrets):
        raise DefinitionError(f"the secret in {SECRET_VARIABLE} has less than {_SHORTEST} characters")
    return LinkSigner(secrets)


def _digest(secret: bytes, payload: bytes) -> bytes:
    return hmac.new(secret, _PURPOSE + payload, hashlib.sha256).digest()


def _to_word(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _from_word(word: str) -> bytes:
    """The bytes of a word as we write it, and of no other spelling of it; empty where it is none."""
    try:
        data = urlsafe_b64decode(f"{word}{'=' * (-len(word) % 4)}".encode("ascii"))
    except (binascii.Error, ValueError):
        return b""
    return data if _to_word(data) == word else b""


def _read_payload(payload: bytes) -> AnswerLink | None:
    """Signed by us, so only another version may have it otherwise."""
    try:
        fields: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    values = cast("list[Any]", fields) if isinstance(fields, list) else []
    if len(values) != len(AnswerLink._fields):
        return None
    texts = (*values[:2], *values[3:5])
    times = [values[2], *([] if values[5] is None else [values[5]])]
    fits = all(isinstance(each, str) for each in texts) and all(type(each) in (int, float) for each in times)
    return AnswerLink(*values) if fits and all(isfinite(each) for each in times) else None
