"""Proves who sent a webhook, by the signatures of GitHub, Stripe, Slack and Standard Webhooks, or a shared secret; and
signs call-backs as Standard Webhooks says (https://www.standardwebhooks.com).

Pure: a secret, headers, a body and the time go in. Comparisons take as long whatever differs.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from flowengine.errors import DefinitionError, FlowEngineError
from flowengine.flowfile.project.webhook_tables import WebhookRule

__all__ = ["SignatureError", "read_secrets", "sign_message", "verify"]

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
    found = [_decode(each) if standard else each.encode() for each in text.split()]
    if not found or any(len(each) < _LEAST_SECRET for each in found):
        raise DefinitionError(f"a secret has {_LEAST_SECRET} characters or more")
    return found


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
    match rule.signature:
        case "github":
            return _verify_github(secrets, headers, body)
        case "stripe":
            return _verify_stripe(rule, secrets, headers, body, now)
        case "slack":
            return _verify_slack(rule, secrets, headers, body, now)
        case "standard":
            return _verify_standard(rule, secrets, headers, body, now)
        case "secret":
            given = headers.get(rule.header, "").removeprefix("Bearer ").encode("utf-8", "replace")
            _expect(any(hmac.compare_digest(given, each) for each in secrets))
            return headers.get("idempotency-key") or headers.get("webhook-id")


def _verify_github(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> str:
    """The signature is of the body alone, so the body tells a call from another: its delivery's id is not signed."""
    given = headers.get("x-hub-signature-256", "")
    _expect(_is_any(given, (f"sha256={_hmac(secret, body).hex()}" for secret in secrets)))
    return hashlib.sha256(body).hexdigest()


def _verify_stripe(
    rule: WebhookRule, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float
) -> str:
    pairs = [each.strip().partition("=") for each in headers.get("stripe-signature", "").split(",")]
    moment = next((value for name, _, value in pairs if name == "t"), "")
    given = [value for name, _, value in pairs if name == "v1"][:_MOST_SIGNATURES]
    signed = moment.encode() + b"." + body
    wanted = [_hmac(secret, signed).hex() for secret in secrets]
    _expect(any(_is_any(each, wanted) for each in given))
    _expect_fresh(rule, moment, now)
    return hashlib.sha256(body).hexdigest()


def _verify_slack(
    rule: WebhookRule, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float
) -> str:
    moment = headers.get("x-slack-request-timestamp", "")
    signed = f"v0:{moment}:".encode() + body
    given = headers.get("x-slack-signature", "")
    _expect(_is_any(given, (f"v0={_hmac(secret, signed).hex()}" for secret in secrets)))
    _expect_fresh(rule, moment, now)
    return hashlib.sha256(body).hexdigest()


def _verify_standard(
    rule: WebhookRule, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float
) -> str:
    message_id, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signed = f"{message_id}.{moment}.".encode() + body
    wanted = [f"v1,{b64encode(_hmac(secret, signed)).decode()}" for secret in secrets]
    given = headers.get("webhook-signature", "").split()[:_MOST_SIGNATURES]
    _expect(bool(message_id) and any(_is_any(each, wanted) for each in given))
    _expect_fresh(rule, moment, now)
    return message_id


def _hmac(secret: bytes, signed: bytes) -> bytes:
    return hmac.new(secret, signed, hashlib.sha256).digest()


def _is_any(given: str, wanted: Sequence[str] | Iterator[str]) -> bool:
    """Tells whether it is one of them; all are compared."""
    return any(hmac.compare_digest(given.encode("utf-8", "replace"), each.encode()) for each in wanted)


def _expect(is_right: bool) -> None:
    if not is_right:
        raise SignatureError("the signature is missing or wrong")


def _expect_fresh(rule: WebhookRule, moment: str, now: float) -> None:
    if not (moment.isascii() and moment.isdecimal() and len(moment) <= 12):
        raise SignatureError("the moment of the signature is missing")
    if abs(now - int(moment)) > rule.replay_window:
        raise SignatureError(f"it was signed more than {rule.replay_window:g} s from now")
