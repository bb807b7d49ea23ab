"""Proves who sent a webhook, by the signatures of GitHub, Stripe, Slack and Standard Webhooks, or a shared secret; and
signs call-backs as Standard Webhooks says (https://www.standardwebhooks.com).

Pure: a secret, headers, a body and the time go in. Comparisons take as long whatever differs.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from flowengine.errors import DefinitionError, FlowEngineError
from flowengine.flowfile.project import WebhookRule

_PREFIX: Final = "whsec_"
_MOST_SIGNATURES: Final = 10
"""In one header."""
_LEAST_SECRET: Final = 16
"""Characters of a secret."""


class SignatureError(FlowEngineError):
    """A webhook that does not prove where it comes from, or is too old."""


def read_secrets(text: str, *, standard: bool) -> Sequence[bytes]:
    """The secrets of a variable, with spaces between: an old and a new one while they change.

    `standard`: they are written `whsec_` and base64. The message of an error holds nothing of them.
    """
    secrets = [_decode(each) if standard else each.encode() for each in text.split()]
    if not secrets or any(len(each) < _LEAST_SECRET for each in secrets):
        raise DefinitionError(f"a secret has {_LEAST_SECRET} characters or more")
    return secrets


def _decode(secret: str) -> bytes:
    try:
        return b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise DefinitionError("a secret of Standard Webhooks is written whsec_ and then base64") from None


def sign_message(secrets: Sequence[bytes], message_id: str, at: int, body: bytes) -> str:
    """The header `webhook-signature`.

    >>> sign_message([b"0123456789abcdef"], "msg_1", 1, b"{}")
    'v1,/Pg3D0au/cuVtF2Guo3MS57J79/MvJN2q4wIhs0KTXY='
    """
    signed = f"{message_id}.{at}.".encode() + body
    return " ".join(f"v1,{b64encode(_hmac(secret, signed)).decode()}" for secret in secrets)


def verify(
    rule: WebhookRule, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float
) -> str | None:
    """Verifies the signature and returns what identifies a repeated call, None where nothing does.

    `SignatureError` where the signature is not proved. `headers` have lower-case names.
    """
    if rule.signature == "secret":
        token = headers.get(rule.header, "").removeprefix("Bearer ")
        _expect_any([token], secrets)
        return headers.get("idempotency-key") or headers.get("webhook-id")
    signed = _read_signed(rule, headers, body)
    codes = [_hmac(secret, signed.content) for secret in secrets]
    texts = [b64encode(code).decode() if rule.signature == "standard" else code.hex() for code in codes]
    _expect_any(signed.signatures[:_MOST_SIGNATURES], [f"{signed.prefix}{text}".encode() for text in texts])
    if signed.moment is not None:
        _expect_fresh(rule, signed.moment, now)
    return signed.call_id or hashlib.sha256(body).hexdigest()


class _SignedCall(NamedTuple):
    """The signature of a call, and what it covers."""

    signatures: Sequence[str]
    """The signatures, one of which has to be right."""
    content: bytes
    """The signed bytes."""
    prefix: str
    """Before the code of the content."""
    moment: str | None = None
    """Unix seconds; None: the sender signs none."""
    call_id: str = ""
    """Its id, where it is signed; else the body tells a call from another."""


def _read_signed(rule: WebhookRule, headers: Mapping[str, str], body: bytes) -> _SignedCall:
    match rule.signature:
        case "stripe":
            pairs = [each.strip().partition("=") for each in headers.get("stripe-signature", "").split(",")]
            moment = next((value for name, _, value in pairs if name == "t"), "")
            signatures = [value for name, _, value in pairs if name == "v1"]
            return _SignedCall(signatures, f"{moment}.".encode() + body, "", moment)
        case "slack":
            moment = headers.get("x-slack-request-timestamp", "")
            signatures = [headers.get("x-slack-signature", "")]
            return _SignedCall(signatures, f"v0:{moment}:".encode() + body, "v0=", moment)
        case "standard":
            call_id, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
            signatures = headers.get("webhook-signature", "").split() if call_id else []
            return _SignedCall(signatures, f"{call_id}.{moment}.".encode() + body, "v1,", moment, call_id)
        case _:  # GitHub's is of the body alone: neither a time nor the id of its delivery is signed.
            signatures = [headers.get("x-hub-signature-256", "")]
            return _SignedCall(signatures, body, "sha256=")


def _hmac(secret: bytes, signed: bytes) -> bytes:
    return hmac.new(secret, signed, hashlib.sha256).digest()


def _expect_any(candidates: Sequence[str], expected: Sequence[bytes]) -> None:
    """Raises unless one of the candidates is one of those expected."""
    texts = [each.encode("utf-8", "replace") for each in candidates]
    if not any(hmac.compare_digest(text, each) for text in texts for each in expected):
        raise SignatureError("the signature is missing or wrong")


def _expect_fresh(rule: WebhookRule, moment: str, now: float) -> None:
    if not (moment.isascii() and moment.isdecimal() and len(moment) <= 12):
        raise SignatureError("the moment of the signature is missing")
    if abs(now - int(moment)) > rule.replay_window:
        raise SignatureError(f"it was signed more than {rule.replay_window:g} s from now")
