"""Finds the runs of a store that are asked for: by flow, status, labels and start.

One rule for Python, commands and pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast, get_args

from flowengine.core import EMPTY, RunStatus
from flowengine.engine import RunInfo, RunStarted
from flowengine.errors import InputError, RunNotFoundError, refuse_other_kind

# --- Labels of runs

_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,62}[A-Za-z0-9_])?")
_MAX_LENGTH: Final = 200
"""Characters of a value."""
_MAX_LABELS: Final = 32
"""Labels of one run."""


def check_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Give the labels back as they are, or raise `InputError` for the first that cannot be one.

    >>> check_labels({"team": "billing"})
    {'team': 'billing'}
    >>> check_labels({"a team": "billing"})
    Traceback (most recent call last):
    flowengine.errors.InputError: label 'a team': a name is 1 to 64 letters, digits, _ . / and -
    """
    refuse_other_kind(labels, Mapping, "labels are a mapping, as {'team': 'billing'}", InputError)
    if len(labels) > _MAX_LABELS:
        raise InputError(f"a run has at most {_MAX_LABELS} labels, found {len(labels)}")
    for name, value in labels.items():
        problem = _find_problem(name, value)
        if problem is not None:
            raise InputError(f"label {name!r:.80}: {problem}")
    return dict(labels)


def parse_labels(pairs: Iterable[str]) -> Mapping[str, str]:
    """Read labels that are written `name=value`; `InputError` for what is none.

    >>> parse_labels(["team=billing", "env=prod"])
    {'team': 'billing', 'env': 'prod'}
    """
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"label {pair!r:.80}: write it as NAME=VALUE")
        if labels.setdefault(name, value) != value:
            raise InputError(f"label {name!r:.80} is given twice, as {labels[name]!r} and {value!r}")
    return check_labels(labels)


def parse_label_filter(pairs: Iterable[str]) -> Mapping[str, str] | None:
    """Read the labels that a run has to have, all of them; None: no run has them, for it has one value of each.

    >>> parse_label_filter(["team=billing", "env=prod"]), parse_label_filter(["env=prod", "env=test"])
    ({'team': 'billing', 'env': 'prod'}, None)
    """
    groups = [parse_labels([pair]) for pair in pairs]
    labels = {name: value for each in groups for name, value in each.items()}
    return labels if all(labels.items() >= each.items() for each in groups) else None


def labels_of(started: RunStarted) -> Mapping[str, str]:
    """The labels of a run; what a record holds in their place and is no label is left out."""
    labels: Any = started.settings.get("labels")
    if not isinstance(labels, Mapping):
        return EMPTY
    pairs = cast("Mapping[Any, Any]", labels).items()
    return {name: value for name, value in pairs if _find_problem(name, value) is None}


def storable(text: str | None) -> str | None:
    """File names may hold bytes that are no text; the event keeps them, the row of a run has `?`.

    >>> storable("a\\udcff\\0")
    'a??'
    """
    return None if text is None else text.encode(errors="replace").decode().replace("\0", "?")


def encode_labels(labels: Mapping[str, str]) -> str | None:
    """The labels as a store's row has them: a JSON object, None where there are none."""
    return json.dumps(dict(labels), ensure_ascii=False) if labels else None


def decode_labels(text: str | None) -> Mapping[str, str]:
    """The labels that `encode_labels` wrote; `ValueError` for any other text."""
    if text is None:
        return EMPTY
    labels: Any = json.loads(text)
    if not isinstance(labels, dict):
        raise ValueError(f"labels are an object, found {text!r:.80}")
    return {str(name): str(value) for name, value in cast("dict[Any, Any]", labels).items()}


def _find_problem(name: object, value: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name is 1 to 64 letters, digits, _ . / and -"
    if not isinstance(value, str):
        return f"a value is text, found {type(value).__name__}"
    if len(value) > _MAX_LENGTH or not value.isprintable():
        return f"a value is at most {_MAX_LENGTH} printable characters"
    return None


# --- Runs by `@last` or by id

_MAX_SHOWN = 5


def resolve(reference: str, run_ids: Sequence[str], store: str) -> str:
    """The full id among `run_ids`, which come newest first; `store` names the place in messages.

    >>> resolve("@last", ["b7", "a1"], "runs.db"), resolve("a", ["b7", "a1"], "runs.db")
    ('b7', 'a1')
    """
    refuse_other_kind(reference, str, "a run's id is text", InputError)
    if reference == "@last" and run_ids:
        return run_ids[0]
    if reference in run_ids:
        return reference
    matches = [run_id for run_id in run_ids if reference and run_id.startswith(reference)]
    if len(matches) > 1:
        raise RunNotFoundError(f"'{reference}' is the start of {len(matches)} runs in {store}: {_list_some(matches)}")
    if not matches:
        raise no_such_run(reference, run_ids, store)
    return matches[0]


def no_such_run(reference: str, run_ids: Sequence[str], store: str) -> RunNotFoundError:
    if not run_ids:
        return RunNotFoundError(f"no run '{reference}': {store} holds no runs")
    return RunNotFoundError(f"no run '{reference}' in {store}; it holds {_list_some(run_ids)}")


def _list_some(run_ids: Sequence[str]) -> str:
    rest = len(run_ids) - _MAX_SHOWN
    return ", ".join(run_ids[:_MAX_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


STATUS_WORDS: Final[tuple[str, ...]] = (*get_args(RunStatus), "queued", "interrupted")
"""How a run may stand; the last two are said of the store, not of the record."""


class RunQuery(NamedTuple):
    """A query for runs; empty fields and None do not restrict it."""

    flow: str = ""
    status: str = ""
    """A status of a record, or `queued` or `interrupted`."""
    labels: Mapping[str, str] = EMPTY
    """The run has all of them, with these values."""
    started_from: float | None = None
    started_before: float | None = None
    """Unix seconds."""
    text: str = ""
    """Words in its id, flow, file or labels, or in its inputs, outputs or errors (`run_digest.parse_search`)."""
    mark: str = ""
    """Somebody has marked it so."""
    answerer: str | None = None
    """It waits for an answer that this person may give; empty: somebody of whom nothing is known."""
    ended_from: float | None = None
    """It stopped then or later, in Unix seconds; a run that goes on has not."""
    session: str = ""
    """It belongs to this session."""

    def matches(self, info: RunInfo, status: str) -> bool:
        """Tells whether a run's row is one that is asked for; `status` is the word for how it stands now. Words, marks,
        questions and sessions are not in the row: `flowengine.runtime.run_listing` asks for those too.
        """
        return (
            (not self.flow or info.flow == self.flow)
            and (not self.status or status == self.status)
            and (self.started_from is None or info.started >= self.started_from)
            and (self.started_before is None or info.started < self.started_before)
            and (self.ended_from is None or (info.finished is not None and info.finished >= self.ended_from))
            and all(info.labels.get(name) == value for name, value in self.labels.items())
        )

    def select(self, infos: Iterable[RunInfo], statuses: Mapping[str, str] = EMPTY) -> list[RunInfo]:
        """The runs that are asked for, in the order given; `statuses`: run → its word, where record has another."""
        return [info for info in infos if self.matches(info, statuses.get(info.run_id, info.status))]
