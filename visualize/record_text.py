"""Describes a record of a node in words: a title, facts and bodies, for the terminal and for pages alike.

What fills a node's panel or prompt (model calls, receipts, rounds, decisions) has forms of its own there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from flowengine.core import (
    Answered,
    ApprovalRequested,
    EffectDecided,
    MapStopped,
    ModelCall,
    Notified,
    ProviderFailed,
    Retry,
    RoundEnded,
    SkillLoad,
    ToolCall,
    seconds_text,
)
from visualize.plain import format_value


class RecordText(NamedTuple):
    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Names and texts; an empty text says nothing."""
    bodies: Sequence[tuple[str, Any]] = ()
    """Titles, which may be empty, and values."""
    is_bad: bool = False


def describe(record: Any) -> RecordText:
    """The words of one record; of a kind that is not known here, its values.

    >>> describe(Retry(1, "no route to host", 0.2))[:3]
    ('Attempt 1 failed, the next one after 200 ms', (), [('', 'no route to host')])
    """
    make = _DESCRIPTIONS.get(type(record).__name__)
    return RecordText(type(record).__name__, bodies=[("", record)]) if make is None else make(record)


def explain_waits(call: ModelCall) -> list[str]:
    """Describes the waiting times of a call, one line per step; empty if it was answered at once.

    >>> step = {"what": "rate_limit", "ago": 3.0, "seconds": 2.0, "error": "429"}
    >>> explain_waits(ModelCall("m", "p", "x", (), "", timeline=[step]))
    ['waited 2.0 s after too many requests: 429']
    """
    return [
        f"{_STEPS[each.what].format(seconds_text(each.seconds))}{f': {each.error}' if each.error else ''}"
        for each in steps_of(call)
        if each.what in _STEPS
    ]


class CallStep(NamedTuple):
    """A step of `ModelCall.timeline`."""

    what: str
    ago: float
    seconds: float
    error: str


def steps_of(call: ModelCall) -> list[CallStep]:
    """Returns the steps before the answer; invalid ones are skipped, because records may be imported."""
    steps: list[CallStep] = []
    for each in cast("Sequence[Any]", call.timeline):
        step: Mapping[str, Any] = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else {}
        numbers = [step.get(name) for name in ("ago", "seconds")]
        if all(isinstance(number, (int, float)) and 0 <= number <= _LONGEST for number in numbers):
            ago, seconds = cast("list[float]", numbers)
            steps.append(CallStep(str(step.get("what")), ago, seconds, str(step.get("error") or "")))
    return steps


_LONGEST: Final = 1e9
"""Seconds."""
_STEPS: Final[dict[str, str]] = {
    "loading": "loaded for {}",
    "queued": "waited {} for its turn among the vendor's limits",
    "attempt": "an attempt failed after {}",
    "backoff": "waited {} to try again",
    "rate_limit": "waited {} after too many requests",
}


def _describe_tool_call(call: ToolCall) -> RecordText:
    verb = "begins" if call.started else "failed" if call.is_error else "answered"
    took = "" if call.started else seconds_text(call.seconds)
    facts = [("Took", took), ("Effect", "" if call.effect == "none" else call.effect)]
    bodies = [("Arguments", call.arguments), *([] if call.started else [("Result", call.result)])]
    return RecordText(f"Tool {call.name} {verb}", facts, bodies, call.is_error)


def _describe_effect(decided: EffectDecided) -> RecordText:
    verb = "is run again" if decided.decision == "retry" else "is taken as done"
    title = f"A person decided: the interrupted call of tool {decided.name} {verb}"
    return RecordText(title, bodies=[("Arguments", decided.arguments)])


def _describe_retry(retry: Retry) -> RecordText:
    title = f"Attempt {retry.attempt} failed, the next one after {seconds_text(retry.delay)}"
    return RecordText(title, bodies=[("", retry.error)], is_bad=True)


def _describe_skill(load: SkillLoad) -> RecordText:
    return RecordText(f"Skill {load.skill}: level {load.level}, {load.tokens:,} tokens, {seconds_text(load.seconds)}")


def _describe_provider_failure(failed: ProviderFailed) -> RecordText:
    return RecordText(f"Context provider {failed.provider} failed", bodies=[("", failed.error)], is_bad=True)


def _describe_map_stop(stopped: MapStopped) -> RecordText:
    done, cancelled, rest = len(stopped.done), len(stopped.cancelled), stopped.left
    return RecordText(f"Enough with {done} items: {cancelled} cancelled, {rest} not begun")


def _describe_round(ended: RoundEnded) -> RecordText:
    best = "" if ended.best is None else f", best_by {format_value(ended.best)}"
    verdict = "stopped here" if ended.stopped else "went on"
    return RecordText(f"Round {ended.number}: {verdict}{best}", bodies=[("", ended.variables)])


def _describe_question(question: ApprovalRequested) -> RecordText:
    facts = [
        ("Choices", ", ".join(question.choices)),
        ("Expires", _format_moment(question.expires)),
        ("Then counts", question.on_expire or ""),
        ("To be answered by", ", ".join(question.approvers)),
    ]
    arguments = [("Arguments", question.arguments)] if question.tool else []
    return RecordText("Asked", facts, [("", question.message), *arguments])


def _describe_answer(answer: Answered) -> RecordText:
    facts = [("Choice", answer.choice), ("By", answer.by), ("Comment", answer.comment)]
    return RecordText("Answered", facts, [] if answer.form is None else [("", answer.form)])


def _describe_notification(notification: Notified) -> RecordText:
    what = (
        f"{notification.to} was told"
        if notification.error is None
        else f"{notification.to} could not be told: {notification.error}"
    )
    return RecordText(f"Notification: {what} (channel {notification.channel})")


def _format_moment(at: float | None) -> str:
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # A clock that was never right.
        return f"{at:g}"


_DESCRIPTIONS: Final[dict[str, Callable[[Any], RecordText]]] = {
    "ToolCall": _describe_tool_call,
    "EffectDecided": _describe_effect,
    "Retry": _describe_retry,
    "Waited": lambda waited: RecordText(f"Waited {seconds_text(waited.seconds)} for a thread"),
    "Notice": lambda notice: RecordText(f"Notice: {notice.text}"),
    "SkillLoad": _describe_skill,
    "ProviderFailed": _describe_provider_failure,
    "MapBegan": lambda began: RecordText(f"{began.total:,} items"),
    "MapStopped": _describe_map_stop,
    "RoundEnded": _describe_round,
    "ApprovalRequested": _describe_question,
    "Answered": _describe_answer,
    "Notified": _describe_notification,
    "Received": lambda record: RecordText("Handed to it", list(record.values.items())),
    "Reused": lambda reused: RecordText(f"Not run: the result is that of run {reused.run_id}"),
}
