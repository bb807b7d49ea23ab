"""Reads rows of data from recorded runs: what people really asked, for evals and for the question what would have been.

Runs are chosen by a line such as `flow=triage status=succeeded since=30d label.team=billing limit=200`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from time import time
from typing import Any, Final, NamedTuple

from flowengine.core import EMPTY
from flowengine.engine import JournalStore, RunFinished, RunInfo, RunStarted
from flowengine.errors import InputError, did_you_mean
from flowengine.journal import STATUS_WORDS, RunQuery, check_labels, only_looking
from flowengine.nodes import CompiledFlow
from flowengine.runtime.local import DataRow

_KEYS: Final = ("flow", "status", "since", "before", "limit", "run", "label.NAME")
_EXPERIMENTS: Final = frozenset({"eval", "whatif", "playground"})
"""Labels of runs that experiments made."""
_SPANS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class RunChoice(NamedTuple):
    """The runs that a text selects."""

    query: RunQuery
    limit: int | None = None
    run: str = ""
    """One run, however it ended and wherever it was made."""
    text: str = ""
    """The text that selected the runs."""

    def select(self, store: JournalStore) -> list[RunInfo]:
        """The runs, the newest first, those that experiments made only where a label asks for them.

        `InputError` where there are none.
        """
        if self.run:
            run_id = store.find(self.run)
            return [each for each in store.list() if each.run_id == run_id]
        asks = not _EXPERIMENTS.isdisjoint(self.query.labels) or "set" in self.query.labels
        matching = self.query.select(store.list())
        infos = [each for each in matching if asks or _EXPERIMENTS.isdisjoint(each.labels)]
        if not infos:
            raise InputError(f"there are no runs '{self.text}'{_hint_at_left_out(matching)}")
        return infos[: self.limit]


def parse_runs(text: str, *, now: float | None = None) -> RunChoice:
    """Read a choice of runs; `InputError` names the nearest known key.

    >>> parse_runs("flow=triage label.team=billing limit=5").limit
    5
    >>> parse_runs("flo=triage")
    Traceback (most recent call last):
    flowengine.errors.InputError: runs 'flo=triage': there is no key 'flo'; did you mean 'flow'? (flow, status, ...)
    """
    filters: dict[str, Any] = {"status": "succeeded"}
    labels: dict[str, str] = {}
    limit: int | None = None
    run = ""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"runs {text!r:.80}: {str(error).lower()}") from None
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise InputError(f"runs {word!r:.80}: write it as KEY=VALUE")
        if key.startswith("label."):
            labels[key.removeprefix("label.")] = value
        elif key == "limit":
            if not value.isdecimal() or len(value) > 9 or not int(value):
                raise InputError(f"runs {word!r:.80}: expected a whole number")
            limit = int(value)
        elif key in ("since", "before"):
            filters["started_from" if key == "since" else "started_before"] = _moment(word, value, now or time())
        elif key == "status":
            if value not in (*STATUS_WORDS, "any"):
                raise InputError(f"runs {word!r:.80}: no such status{did_you_mean(value, STATUS_WORDS)}")
            filters["status"] = "" if value == "any" else value
        elif key == "run":
            run = value
        elif key == "flow":
            filters["flow"] = value
        else:
            raise InputError(
                f"runs {word!r:.80}: there is no key '{key}'{did_you_mean(key, _KEYS)} ({', '.join(_KEYS)})"
            )
    return RunChoice(RunQuery(labels=check_labels(labels), **filters), limit, run, text)


def _hint_at_left_out(runs: Sequence[RunInfo]) -> str:
    """How runs of experiments are asked for, where there are no others."""
    label = next((label for label in sorted(_EXPERIMENTS) for run in runs if label in run.labels), None)
    if label is None:
        return ""
    name = next(run.labels[label] for run in runs if label in run.labels)
    return f" but {len(runs):,} of experiments, which are left out: label.{label}={shlex.quote(name)} asks for them"


def _moment(word: str, value: str, now: float) -> float:
    match = re.fullmatch(r"(\d{1,6})([smhdw])", value)
    if match is None:
        raise InputError(f"runs {word!r:.80}: expected a time such as 12h, 30d or 4w")
    return now - int(match[1]) * _SPANS[match[2]]


def recorded_rows(
    store: JournalStore,
    text: str,
    plan: CompiledFlow,
    mapping: Mapping[str, str] = EMPTY,
    always: Mapping[str, Any] = EMPTY,
) -> Iterator[DataRow]:
    """The rows of recorded runs, the oldest first: their inputs, and as data beside these `outputs` and `run`.

    Inputs that the flow does not have any more are left out. `InputError` where no run is found.
    """
    infos = parse_runs(text).select(store)
    for number, info in enumerate(reversed(infos), 1):
        with only_looking():
            events = store.events(info.run_id)
        started, ended = events[0], events[-1]
        if not isinstance(started, RunStarted):
            continue
        outputs = (ended.outputs or EMPTY) if isinstance(ended, RunFinished) else EMPTY
        arguments = {mapping.get(name, name): value for name, value in started.inputs.items()}
        inputs = {name: value for name, value in arguments.items() if plan.inputs is None or name in plan.inputs}
        data: dict[str, Any] = {**started.inputs, "outputs": outputs, "run": info.run_id}
        yield DataRow(number, {**inputs, **always}, data=data)
