"""Tells how a response stands that was stored, from the record of its run. Pure.

A response is its run's: one that follows a question has the id of the response that asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from flowengine.core import EMPTY, is_map
from flowengine.runs import RunRecord
from flowengine.web.openai.openai_bodies import ChatAnswer, ChatCall, OpenAiError, ResponseSettings, response_object
from flowengine.web.service import (
    PartReader,
    RunEnded,
    RunOutcome,
    TextOutput,
    TokenCounts,
    format_questions,
    start_of,
    to_text,
)

_RESPONSE: Final = "response"
"""The setting of a run whose answer is a stored response."""
_STATUSES: Final[Mapping[str, str]] = {
    "succeeded": "completed",
    "partial": "completed",
    "waiting": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""Status of a run → the response's; else it goes on."""


def keep_settings(call: ChatCall) -> Mapping[str, Any]:
    """Returns the settings to keep with the run, so that the response can be found again."""
    return {_RESPONSE: {**ResponseSettings.of(call)._asdict()}} if call.store else EMPTY


def read_settings(record: RunRecord) -> ResponseSettings:
    """`OpenAiError` for a run that is no stored response."""
    settings: Any = start_of(record.events).settings.get(_RESPONSE)
    if not is_map(settings):
        raise OpenAiError("there is no such stored response of yours", 404, param="response_id")
    return ResponseSettings(**cast("Mapping[str, Any]", {name: settings[name] for name in ResponseSettings._fields}))


def stored_response(record: RunRecord, text: TextOutput) -> Mapping[str, Any]:
    """The response as its run stands now."""
    outcome, settings = RunOutcome.of(record.events), read_settings(record)
    status = _STATUSES.get(outcome.status, "in_progress")
    answer = ChatAnswer(
        outcome.run_id, outcome.flow, int(outcome.started), outcome.status, _text_of(outcome, text), "", _tokens(record)
    )
    error = None
    if status == "failed":
        message = "it failed" if outcome.error is None else outcome.error.message
        error = {"code": "server_error", "message": f"run {outcome.run_id} failed: {message}"}
    return response_object(answer, settings, status=status, error=error)


def _text_of(outcome: RunOutcome, text: TextOutput) -> str:
    if outcome.status == "waiting":
        return format_questions(outcome.run_id, outcome.questions)
    return to_text(outcome.outputs.get(text.name))


def _tokens(record: RunRecord) -> TokenCounts:
    reader = PartReader(None)
    parts = [part for event in record.events for part in reader.read(event)]
    return next((part.tokens for part in reversed(parts) if isinstance(part, RunEnded)), TokenCounts())
