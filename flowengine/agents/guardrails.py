"""Asks the guardrails of an agent about what it was given and about what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, cast

from flowengine.agents.settings import Guardrail
from flowengine.core import describe_error
from flowengine.errors import GuardrailError


async def check_guardrails(guardrails: Sequence[Guardrail], kind: str, value: Any) -> None:
    """Ask the guardrails in order; the first refusal is a `GuardrailError` that names it.

    `kind` is `input` or `output`.
    """
    for guardrail in guardrails:
        verdict = await _ask_guardrail(guardrail, kind, value)
        if verdict is None:
            raise GuardrailError(
                f"{kind} guardrail '{guardrail_name(guardrail)}' returned None; it must return True or False"
            )
        if not verdict:
            raise GuardrailError(f"{kind} guardrail '{guardrail_name(guardrail)}' refused the value")


def guardrail_name(guardrail: Guardrail) -> str:
    """A function's name, or the class of a callable object."""
    return cast(str, getattr(guardrail, "__name__", type(guardrail).__name__))


async def _ask_guardrail(guardrail: Guardrail, kind: str, value: Any) -> bool | None:
    try:
        verdict = guardrail(value)
        return await verdict if isawaitable(verdict) else verdict
    except Exception as error:
        raise GuardrailError(
            f"{kind} guardrail '{guardrail_name(guardrail)}' failed: {describe_error(error)}"
        ) from error
