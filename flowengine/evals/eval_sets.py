"""Keeps what evals came to beside the runs of a store: each set of rows with its scores, by the eval's name.

A set says which run each row had, so that the next one takes from it what still holds, and two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from flowengine.engine import JournalStore
from flowengine.errors import RunNotFoundError
from flowengine.evals.scoring import NOTHING_TO_COMPARE, Score

_INDEX: Final = "evals"
_SETS: Final = "eval-sets"
_MAX_LISTED: Final = 200
"""Sets of one eval that are listed, the newest."""


class EvalRow(NamedTuple):
    """One row of a set, one time that it was run."""

    key: str
    """The digest of what the row gives the flow: it tells which rows of two sets are the same."""
    number: int
    """Its place in the data."""
    sample: int
    run_id: str | None
    judged: str | None
    """The run of the judges."""
    status: str
    error: str
    scores: Mapping[str, Score]
    slices: Mapping[str, str]
    calls: int
    """Model calls that its answers are made of, judges included."""
    paid_calls: int
    """Calls, of `calls`, that were made now."""
    cost_usd: float
    """Cost of `calls`, as far as prices are known."""
    paid_usd: float
    seconds: float
    """Seconds that the run took; calls that were not made again count with the time that they took."""
    shown: str
    """The beginning of what it gave, for people."""
    unpriced_calls: int = 0
    """Calls, of `calls`, without a known price."""
    paid_unpriced_calls: int = 0
    """Calls, of `paid_calls`, without a known price."""
    has_stand_in: bool = False
    """Whether the offline stand-in gave an answer in it, to the judges too."""

    @property
    def place(self) -> tuple[str, int]:
        return self.key, self.sample


@dataclass(slots=True)
class EvalSet:
    """All rows of one go."""

    id: str
    eval: str
    flow: str
    at: float
    """Unix seconds of its beginning."""
    definition: str
    """A digest of the flow as it was."""
    fingerprints: Mapping[str, str]
    """Node → what it was defined as, with the code that it calls."""
    version: str = ""
    """The origin of the flow, if it is not the file as it stands: `git:…`."""
    finished: bool = False
    rows: list[EvalRow] = field(default_factory=list[EvalRow])
    passes_from: Mapping[str, float] = field(default_factory=dict[str, float])
    """Scorer → the score from which on a row passes."""
    judging: str = ""
    """A digest of the judges as they were."""
    stand_in: str = ""
    """Says which nodes and judges the stand-in answered although nobody chose it."""

    @property
    def scorers(self) -> Sequence[str]:
        return list(self.passes_from)

    def reason_of_no_score(self) -> str | None:
        """Says why no row has any score, as far as one was to be had; None where there is one."""
        scores = [score for row in self.rows for score in row.scores.values()]
        if any(each.value is not None for each in scores):
            return None
        return next((each.reason for each in scores if each.reason != NOTHING_TO_COMPARE), None)

    def by_place(self) -> Mapping[tuple[str, int], EvalRow]:
        """The rows by what they give and the number of their sample."""
        return {each.place: each for each in self.rows}


class SetInfo(NamedTuple):
    """One line of a list of sets."""

    id: str
    at: float
    definition: str
    version: str
    finished: bool
    flow: str
    rows: int
    means: Mapping[str, float]
    judging: str = ""


def keep_set(store: JournalStore, new_set: EvalSet) -> None:
    """Keep a set, and list it among those of its eval, the newest first."""
    store.revise(_SETS, new_set.id, lambda before: _to_data(new_set))
    info = _info_of(new_set)

    def with_set(before: Any) -> Any:
        others = [each for each in before or () if each["id"] != new_set.id]
        return sorted([info._asdict(), *others], key=lambda each: -each["at"])[:_MAX_LISTED]

    store.revise(_INDEX, new_set.eval, with_set)
    store.revise(_INDEX, "", lambda before: sorted({*(before or ()), new_set.eval}))


def _info_of(full_set: EvalSet) -> SetInfo:
    means: dict[str, float] = {}
    for name in full_set.scorers:
        values = [score.value for row in full_set.rows if (score := row.scores.get(name)) and score.value is not None]
        if values:
            means[name] = sum(values) / len(values)
    return SetInfo(
        full_set.id, full_set.at, full_set.definition, full_set.version, full_set.finished, full_set.flow,
        len(full_set.rows), means, full_set.judging,
    )  # fmt: skip


def list_evals(store: JournalStore) -> Sequence[str]:
    """The names of all evals that the store has sets of."""
    return list(store.recall(_INDEX, "") or ())


def list_sets(store: JournalStore, name: str) -> Sequence[SetInfo]:
    """The sets of an eval, the newest first."""
    return [SetInfo(**each) for each in store.recall(_INDEX, name) or ()]


def find_set(infos: Iterable[SetInfo], reference: str) -> SetInfo:
    """The set that is meant: `LAST` is the newest finished one, else an id or the beginning of one."""
    candidates = [each for each in infos if each.finished]
    if reference.upper() in ("LAST", "@LAST"):
        if candidates:
            return candidates[0]
        raise RunNotFoundError("this eval file was not run to its end before: only its own sets can be compared with")
    matches = [each for each in candidates if each.id.startswith(reference)]
    if len(matches) == 1:
        return matches[0]
    ids = ", ".join(each.id for each in candidates[:5]) or "none"
    problem = f"'{reference}' is the start of {len(matches)} sets" if matches else f"no set '{reference}'"
    raise RunNotFoundError(f"{problem} of this eval file, which has {ids}")


def load_set(store: JournalStore, set_id: str) -> EvalSet:
    """A set with its rows."""
    entry = store.recall(_SETS, set_id)
    if entry is None:
        raise RunNotFoundError(f"the store has no set '{set_id}' of an eval")
    fields = dict(entry)
    fields["rows"] = [_row_of(each) for each in fields["rows"]]
    return EvalSet(**fields)


def _to_data(full_set: EvalSet) -> dict[str, Any]:
    data = {name: getattr(full_set, name) for name in EvalSet.__slots__}
    data["rows"] = [list(each._replace(scores=_scores_to_data(each.scores))) for each in full_set.rows]
    return data


def _scores_to_data(scores: Mapping[str, Score]) -> Any:
    return {name: list(score) for name, score in scores.items()}


def _row_of(data: Sequence[Any]) -> EvalRow:
    row = EvalRow(*data)
    scores: Any = row.scores
    return row._replace(scores={name: Score(*each) for name, each in scores.items()})
