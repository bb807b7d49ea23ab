"""Finds which edit between two versions of a flow moved its score: parts are taken back one by one, or in halves.

A part is a node, a named agent, or another key of the file; a function, class or constant of the code that the flow
calls; or a text in a file of its own. A probe is the bad version with some parts as the good one has them, scored by
the eval; it pays only behind the parts that it changes, since its rows take what still holds from both versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import fsum, nan
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, cast

from flowengine.core import EMPTY, Budget, Ledger, is_map
from flowengine.engine import JournalStore
from flowengine.errors import FlowError, InputError, did_you_mean
from flowengine.evals.edited_files import FileEdit, edits_between, version_with
from flowengine.evals.eval_file import EvalFile
from flowengine.evals.eval_report import scores_by_row
from flowengine.evals.eval_run import EvalRun
from flowengine.evals.eval_sets import EvalRow, EvalSet
from flowengine.evals.score_statistics import Difference, estimate_difference
from flowengine.flow import Flow
from flowengine.flowfile.yaml import parse_yaml
from flowengine.runtime.local import RowResult

_NO_FLOW: Final = "by itself it makes no flow"
_SINGLY: Final = 8
"""So many parts are tried one by one; of more, halves are tried first."""
_BY_NAME: Final = ("nodes", "agents", "inputs", "shared_state", "outputs")
"""Keys of a flow file whose entries are parts of their own."""
Part: TypeAlias = "tuple[str, ...] | FileEdit"


class Probe(NamedTuple):
    """The bad version with some parts taken back."""

    parts: Sequence[str]
    mean: float | None
    """None where such a flow is none, or the limit did not allow it; NaN where no row has a score."""
    gain: Difference | None
    """Against the bad version, row by row."""
    error: str = ""
    is_joint: bool = False
    """Whether each of the parts makes a flow only beside others."""


class BlameReport(NamedTuple):
    """The result of the search."""

    scorer: str
    good: float
    """Mean of the scores; NaN where no row has one."""
    bad: float
    whole: Difference
    """The difference of the good version against the bad one."""
    parts: Sequence[str]
    """Names of the parts that differ."""
    probes: Sequence[Probe]
    paid_usd: float
    paid_unpriced_calls: int
    finished: bool
    """Whether the limit allowed everything."""

    @property
    def blamed(self) -> Sequence[str]:
        """Parts that by themselves bring the score back for certain, the one that brings most first; of those that
        depend on each other all."""
        helpful = [each for each in self.probes if (each.is_joint or len(each.parts) == 1) and _helps(self, each)]
        ranked = sorted(helpful, key=lambda each: -abs(each.gain.mean if each.gain else 0.0))
        return list(dict.fromkeys(part for each in ranked for part in each.parts))


def _helps(report: BlameReport, probe: Probe) -> bool:
    gain = probe.gain
    return gain is not None and gain.is_certain and gain.mean * report.whole.mean > 0


def changed_parts(good: Mapping[str, Any], bad: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The parts that differ between two flow files, as data."""
    parts: list[tuple[str, ...]] = []
    for key in dict.fromkeys([*bad, *good]):
        one, two = good.get(key), bad.get(key)
        if one == two or key in ("name", "description"):
            continue
        if key in _BY_NAME and is_map(one or {}) and is_map(two or {}):
            old, new = dict(one or {}), dict(two or {})
            parts += [(key, name) for name in dict.fromkeys([*new, *old]) if old.get(name, ...) != new.get(name, ...)]
        else:
            parts.append((key,))
    return parts


def with_parts(bad: Mapping[str, Any], good: Mapping[str, Any], parts: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The bad version with some parts as the good one has them."""
    mixed: dict[str, Any] = deepcopy(dict(bad))
    for part in parts:
        here: dict[str, Any] = mixed
        there: Mapping[str, Any] = good
        for key in part[:-1]:
            here, there = here.setdefault(key, {}), cast("Mapping[str, Any]", there.get(key) or EMPTY)
        if part[-1] in there:
            here[part[-1]] = deepcopy(there[part[-1]])
        else:
            here.pop(part[-1], None)
    return mixed


@dataclass(kw_only=True)
class Blame:
    """One question about two versions."""

    file: EvalFile
    store: JournalStore
    good: Path
    """The flow's file in the good version's tree."""
    bad: Path
    scorer: str | None = None
    budget: Budget = field(default_factory=Budget)
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    heard: Callable[[RowResult], None] | None = None
    tell: Callable[[str], object] = lambda text: None

    def __post_init__(self) -> None:
        names = list(self.file.spec.scorers)
        self.chosen = self.scorer or names[0]
        if self.chosen not in names:
            raise InputError(f"the eval has no scorer '{self.chosen}'{did_you_mean(self.chosen, names)}")
        self._then, self._now = (_read(each) for each in (self.good, self.bad))
        flows = [Flow.from_yaml(each, environ=self.environ) for each in (self.good, self.bad)]
        self._flows = flows[0], flows[1]
        edits = edits_between(flows[0], self.good, flows[1], self.bad)
        self.parts: list[Part] = [*changed_parts(self._then, self._now), *edits]
        if not self.parts:
            raise InputError(
                "the two versions of the flow say the same, in its file and in the code and texts that it uses: "
                "no part of it is to blame"
            )
        self._ledger = Ledger(self.budget, of="the search", on_limit="pause")
        self._probes: list[Probe] = []
        self._rows: list[EvalRow] = []
        self._sets: list[str] = []

    async def run(self) -> BlameReport:
        """Score both versions, then probes between them."""
        good = await self._score(self._flows[0], "blame: good")
        bad = await self._score(self._flows[1], "blame: bad")
        self._bad_scores = scores_by_row(bad.rows, self.chosen)
        good_scores = scores_by_row(good.rows, self.chosen)
        whole = self._difference(good_scores)
        if good.finished and bad.finished and whole.n and whole.mean:
            await self._search(self.parts, whole)
            await self._join_dependent_parts()
        return BlameReport(
            self.chosen,
            _mean(good_scores),
            _mean(self._bad_scores),
            whole,
            [_name(each) for each in self.parts],
            self._probes,
            fsum(each.paid_usd for each in self._rows),
            sum(each.paid_unpriced_calls for each in self._rows),
            not self._ledger.has_refused,
        )

    async def _search(self, parts: Sequence[Part], whole: Difference) -> None:
        """Try parts singly; of many, the halves that bring something back."""
        if len(parts) <= _SINGLY:
            for part in parts:
                await self._probe([part])
            return
        middle = len(parts) // 2
        for half in (parts[:middle], parts[middle:]):
            probe = await self._probe(half)
            if probe.gain is None or probe.gain.mean * whole.mean > 0:
                await self._search(half, whole)

    async def _join_dependent_parts(self) -> None:
        """Parts that make no flow by themselves, such as a node and its reader, are taken back together."""
        failed = {each.parts[0] for each in self._probes if len(each.parts) == 1 and each.error.startswith(_NO_FLOW)}
        parts, more = list[Part](), [each for each in self.parts if _name(each) in failed]
        while more:
            parts += more
            probe = await self._try(parts, [_name(each) for each in parts])
            more = [each for each in self.parts if each not in parts and f"'{_name(each)}'" in probe.error]
            if not more and len(parts) > 1:
                self._probes.append(probe._replace(is_joint=True))

    async def _probe(self, parts: Sequence[Part]) -> Probe:
        names = [_name(each) for each in parts]
        probe = await self._try(parts, names)
        self._probes.append(probe)
        return probe

    async def _try(self, parts: Sequence[Part], names: Sequence[str]) -> Probe:
        if self._ledger.has_refused:
            return Probe(names, None, None, "the limit was reached")
        keys = [each for each in parts if not isinstance(each, FileEdit)]
        text = json.dumps(with_parts(self._now, self._then, keys), ensure_ascii=False, default=str)
        edits = [each for each in parts if isinstance(each, FileEdit)]
        with version_with(edits, self.good, self.bad) as place:
            try:
                flow = Flow.from_text(text, place, environ=self.environ)
            except FlowError as error:
                message = error.diagnostics[0].message if error.diagnostics else str(error)
                return Probe(names, None, None, f"{_NO_FLOW}: {message}")
            scored_set = await self._score(flow, f"blame: {', '.join(names)}"[:200])
        if not scored_set.finished:
            return Probe(names, None, None, "the limit was reached")
        scores = scores_by_row(scored_set.rows, self.chosen)
        return Probe(names, _mean(scores), self._difference(scores))

    async def _score(self, flow: Flow, version: str) -> EvalSet:
        self.tell(version)
        go = EvalRun(
            file=self.file,
            store=self.store,
            flow=flow,
            version=version,
            shared=self._ledger,
            settings=self.settings,
            reuse_sets=self._sets[:2],
            heard=self.heard,
        )
        scored_set = await go.run()
        self._rows += scored_set.rows
        self._sets.append(scored_set.id)
        return scored_set

    def _difference(self, scores: Mapping[str, float]) -> Difference:
        keys = [each for each in scores if each in self._bad_scores]
        return estimate_difference([self._bad_scores[each] for each in keys], [scores[each] for each in keys])


def _read(path: Path) -> Mapping[str, Any]:
    data: Any = parse_yaml(path.read_text("utf-8-sig"), str(path)).data
    if not is_map(data):
        raise InputError(f"{path} is no flow file")
    return data


def _mean(scores: Mapping[str, float]) -> float:
    return fsum(scores.values()) / len(scores) if scores else nan


def _name(part: Part) -> str:
    if isinstance(part, FileEdit):
        return str(part)
    return part[1] if part[0] == "nodes" else ".".join(part)
