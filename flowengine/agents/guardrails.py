"""Guardrails: functions of a value that let it pass or refuse it.

A guardrail is foreign code. What it raises, and an answer that is no answer, refuse the value just
as False does: nothing gets past a guardrail that did not say yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, cast

from flowengine.agents.settings import Guardrail
from flowengine.errors import GuardrailError
from flowengine.foreign import describe_error

__all__ = ["check_guardrails", "guardrail_name"]


async def check_guardrails(guardrails: Sequence[Guardrail], kind: str, value: Any) -> None:
    """Ask the guardrails in order; the first refusal is a `GuardrailError` that names it.

    `kind` is `input` or `output`.
    """
    for guardrail in guardrails:
        verdict = await _verdict(guardrail, kind, value)
        if verdict is None:
            raise GuardrailError(
                f"{kind} guardrail '{guardrail_name(guardrail)}' returned None; it must return True or False"
            )
        if not verdict:
            raise GuardrailError(f"{kind} guardrail '{guardrail_name(guardrail)}' refused the value")


def guardrail_name(guardrail: Guardrail) -> str:
    """A function's name, or the class of a callable object."""
    return cast(str, getattr(guardrail, "__name__", type(guardrail).__name__))


async def _verdict(guardrail: Guardrail, kind: str, value: Any) -> bool | None:
    try:
        verdict = guardrail(value)
        return await verdict if isawaitable(verdict) else verdict
    except Exception as error:
        raise GuardrailError(
            f"{kind} guardrail '{guardrail_name(guardrail)}' failed: {describe_error(error)}"
        ) from error
