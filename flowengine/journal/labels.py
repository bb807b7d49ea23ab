"""Labels of runs: short texts by name, chosen by the caller when a run is started, by which runs are found again.

They stand among the settings of the run's first event, and stores keep them in the run's row too. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from flowengine.context import EMPTY
from flowengine.engine.events import RunStarted
from flowengine.errors import InputError

__all__ = ["check_labels", "decode_labels", "encode_labels", "labels_of", "parse_labels"]

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
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"label {pair!r:.80}: write it as NAME=VALUE")
        if found.setdefault(name, value) != value:
            raise InputError(f"label {name!r:.80} is given twice, as {found[name]!r} and {value!r}")
    return check_labels(found)


def labels_of(started: RunStarted) -> Mapping[str, str]:
    """The labels of a run; what a record holds in their place and is no label is left out."""
    found: Any = started.settings.get("labels")
    if not isinstance(found, Mapping):
        return EMPTY
    pairs = cast("Mapping[Any, Any]", found).items()
    return {name: value for name, value in pairs if _find_problem(name, value) is None}


def encode_labels(labels: Mapping[str, str]) -> str | None:
    """The labels as a store's row has them: a JSON object, None where there are none."""
    return json.dumps(dict(labels), ensure_ascii=False) if labels else None


def decode_labels(text: str | None) -> Mapping[str, str]:
    """The labels that `encode_labels` wrote; `ValueError` for any other text."""
    if text is None:
        return EMPTY
    found: Any = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"labels are an object, found {text!r:.80}")
    return {str(name): str(value) for name, value in cast("dict[Any, Any]", found).items()}


def _find_problem(name: object, value: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name is 1 to 64 letters, digits, _ . / and -"
    if not isinstance(value, str):
        return f"a value is text, found {type(value).__name__}"
    if len(value) > _MAX_LENGTH or not value.isprintable():
        return f"a value is at most {_MAX_LENGTH} printable characters"
    return None
