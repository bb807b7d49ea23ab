"""Says what recorded runs would have come to with one node changed: another model, prompt or option.

Each run is forked at the node, with the flow as it was then. What is behind the node is recomputed only where its
answer differs; nothing has an effect outside and no person is asked: their recorded results stand, and where what they
are asked differs, the fork ends there and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from flowengine.core import Budget, EvaluationResult, Ledger, dumps, is_map
from flowengine.engine import Event, JournalStore, NodeFinished, RunFinished, RunStarted
from flowengine.errors import InactiveError, InputError, did_you_mean
from flowengine.evals.batch_collector import BatchPace, open_collector
from flowengine.evals.recorded_rows import parse_runs
from flowengine.evals.spending import Effort, NeededCalls, effort_of_calls
from flowengine.flow import Flow
from flowengine.flowfile.yaml import parse_yaml
from flowengine.journal import only_looking
from flowengine.nodes import CompiledFlow, file_path
from flowengine.runtime import Run, RunOptions
from flowengine.runtime.local import DataRow, RowResult, RowRuns, RowSet, fork


class VerdictChange(NamedTuple):
    """A judge's verdict before and after."""

    node: str
    before: float | None
    after: float | None
    passed_before: bool | None
    passed_after: bool | None


class WhatIfRow(NamedTuple):
    """One recorded run, and what it would have come to."""

    run_id: str
    fork_id: str | None
    status: str
    error: str
    ended_at: str | None
    """The node at which it ended, since its effect is not had again."""
    answer_differs: bool | None
    """Whether the changed node answers otherwise; None where it did not answer."""
    outputs_differ: bool | None
    verdicts: Sequence[VerdictChange]
    before: Effort
    after: Effort
    paid_usd: float
    paid_unpriced_calls: int = 0


class WhatIfReport(NamedTuple):
    """The summary of all forks."""

    node: str
    change: Mapping[str, Any]
    rows: Sequence[WhatIfRow]
    left: int
    """Runs that a limit left out."""

    @property
    def is_whole(self) -> bool:
        """Whether no limit left a run out or stopped its fork."""
        return not self.left and all(each.status != "paused" for each in self.rows)

    @property
    def ended_rows(self) -> Sequence[WhatIfRow]:
        """The rows whose forks came to their end, where before and after can be compared."""
        return [each for each in self.rows if each.status == "succeeded"]

    def totals(self) -> Mapping[str, Any]:
        """Counts, dollars and seconds."""
        rows = self.ended_rows
        moved = Counter(
            (each.node, "passes now" if each.passed_after else "fails now")
            for row in rows
            for each in row.verdicts
            if each.passed_before is not None and each.passed_after not in (None, each.passed_before)
        )
        return {
            "runs": len(self.rows),
            "left": self.left,
            "paused": sum(each.status == "paused" for each in self.rows),
            "ended": len(rows),
            "ended_at_an_effect": sum(each.ended_at is not None for each in self.rows),
            "answers_differ": sum(bool(each.answer_differs) for each in self.rows),
            "outputs_differ": sum(bool(each.outputs_differ) for each in rows),
            "verdicts": {f"{node} {what}": count for (node, what), count in sorted(moved.items())},
            "cost_usd_before": sum(each.before.cost_usd for each in rows),
            "cost_usd_after": sum(each.after.cost_usd for each in rows),
            "model_seconds_before": sum(each.before.seconds for each in rows),
            "model_seconds_after": sum(each.after.seconds for each in rows),
            "paid_usd": sum(each.paid_usd for each in self.rows),
            "unpriced_calls_before": sum(each.before.unpriced for each in rows),
            "unpriced_calls_after": sum(each.after.unpriced for each in rows),
            "paid_unpriced_calls": sum(each.paid_unpriced_calls for each in self.rows),
        }


def change_node(text: str, path: str, node: str, change: Mapping[str, Any]) -> str:
    """A flow file's text with keys of one node changed; `InputError` for an unknown node.

    `node` is a path: `polish.judge` is in the body of `polish`. A key that becomes None is taken out.
    """
    data: Any = parse_yaml(text, path).data
    at: Any = data
    for name in file_path(node).split("."):
        nodes = at.get("nodes") if is_map(at) else None
        if not is_map(nodes) or name not in nodes:
            names = list(nodes) if is_map(nodes) else []
            raise InputError(f"the flow has no node '{node}'{did_you_mean(name, names)}")
        if nodes[name] is None:
            nodes[name] = {}
        at = nodes[name]
    at.update(change)
    for key in [key for key, value in change.items() if value is None]:
        del at[key]
    return json.dumps(data, ensure_ascii=False, default=str)


@dataclass(kw_only=True)
class WhatIf:
    """One question about recorded runs."""

    store: JournalStore
    node: str
    change: Mapping[str, Any]
    """Keys of the node, as a flow file has them."""
    runs: str
    """The text that selects the runs (see `recorded_rows.parse_runs`)."""
    budget: Budget = field(default_factory=Budget)
    concurrency: int = 10
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of each fork."""
    batch: BatchPace | None = None
    """Through vendors' batches."""
    tell: Callable[[str], object] = lambda text: None
    heard: Callable[[RowResult], None] | None = None
    _plans: dict[tuple[str, str], CompiledFlow] = field(init=False, default_factory=dict[tuple[str, str], CompiledFlow])

    def __post_init__(self) -> None:
        self.chosen = [each.run_id for each in parse_runs(self.runs).select(self.store)]
        if not self.change:
            raise InputError("say what is changed: a model, a prompt or an option of the node")
        self._plan_of(self._start_of(self.chosen[0]))  # What is wrong with the change is told before anything is paid.

    def _start_of(self, run_id: str) -> RunStarted:
        with only_looking():
            started = self.store.events(run_id)[0]
        if not isinstance(started, RunStarted) or started.source is None:
            raise InputError(f"run {run_id} is of a flow without a file, and cannot be changed")
        return started

    def _plan_of(self, started: RunStarted) -> CompiledFlow:
        """The flow as it was, with the node changed, without notices of its questions."""
        key = started.source or "", started.path or ""
        if key not in self._plans:
            text = change_node(*key, self.node, self.change)
            flow = Flow.from_text(text, key[1], environ=self.environ)
            self._plans[key] = replace(flow.plan, notifier=None)
        return self._plans[key]

    async def run(self) -> WhatIfReport:
        """Fork the runs and compare."""
        plan = self._plan_of(self._start_of(self.chosen[0]))
        question = [self.node, dict(self.change), self.runs, self.chosen]
        set_id = hashlib.sha256(dumps(question).encode()).hexdigest()[:8]  # Asked again, it goes on.
        earlier = {each.run_id: each for each in self.store.list() if each.labels.get("set") == set_id}
        rows = RowSet(set_id, "whatif", earlier)
        runs = RowRuns(
            plan=plan,
            store=self.store,
            rows=rows,
            concurrency=self.concurrency,
            budget=self.budget,
            options=RunOptions(labels={"whatif": self.node[:200]}),
            retry_failed=True,
            begin=self._fork,
            plan_of=lambda row: self._plan_of(self._start_of(row.data)),
            heard=self.heard,
            tell=self.tell,
        )
        collector = open_collector(self.store, set_id, self.batch, self.tell)
        async with collector, aclosing(runs.results(self._rows())) as results:
            rows_after = [self._compare(each) async for each in results]
        return WhatIfReport(self.node, self.change, rows_after, len(self.chosen) - len(rows_after))

    def _rows(self) -> Iterator[DataRow]:
        for number, run_id in enumerate(self.chosen, 1):
            yield DataRow(number, {"run": run_id}, data=run_id)

    async def _fork(self, row: DataRow, run_id: str, ledger: Ledger, labels: Mapping[str, str]) -> Run:
        plan = self._plan_of(self._start_of(row.data))
        at = self.node.partition(".")[0].partition("[")[0]
        options = RunOptions(run_id=run_id, above=ledger, labels=labels, settings=self.settings)
        return await fork(plan, row.data, self.store, at, acts=False, options=options)

    def _compare(self, result: RowResult) -> WhatIfRow:
        with only_looking():
            then = self.store.events(result.row.data)
            now = self.store.events(result.run_id) if result.run_id is not None else ()
        before, after = _find_finished(then), _find_finished(now)
        node = file_path(self.node)
        answers = [_answers(each, node) for each in (before, after)]
        error = result.error
        ended_at = result.node if error is not None and error.type == InactiveError.__name__ else None
        last = then[-1]
        outputs = last.outputs if isinstance(last, RunFinished) else None
        return WhatIfRow(
            result.row.data,
            result.run_id,
            "ended at an effect" if ended_at is not None else result.status,
            "" if error is None else error.message,
            ended_at,
            None if not answers[1] else answers[0] != answers[1],
            None if not result.succeeded else dumps(outputs) != dumps(dict(result.outputs)),
            list(_verdicts(before, after)),
            effort_of_calls(NeededCalls(self.store).of_run(then)),
            effort_of_calls(NeededCalls(self.store).of_run(now)),
            0.0 if result.was_there else result.spent.cost_usd,
            0 if result.was_there else result.spent.unpriced_calls,
        )


def _find_finished(events: Sequence[Event]) -> Mapping[str, NodeFinished]:
    """Node → how it finished, the last time."""
    return {each.node: each for each in events if isinstance(each, NodeFinished)}


def _answers(finished: Mapping[str, NodeFinished], node: str) -> Mapping[str, str]:
    """Returns a node's outputs as text, one for each time that it ran."""
    return {path: dumps(each.result.output) for path, each in finished.items() if file_path(path) == node}


def _verdicts(before: Mapping[str, NodeFinished], after: Mapping[str, NodeFinished]) -> Iterator[VerdictChange]:
    for path in dict.fromkeys([*before, *after]):
        one, two = (_verdict(each.get(path)) for each in (before, after))
        if one != _NO_VERDICT or two != _NO_VERDICT:
            yield VerdictChange(path, one[0], two[0], one[1], two[1])


_NO_VERDICT: Final = (None, None)


def _verdict(finished: NodeFinished | None) -> tuple[float | None, bool | None]:
    """The score, and whether it passes."""
    evaluation = None if finished is None else finished.result.evaluation
    return (evaluation.score, evaluation.passed) if isinstance(evaluation, EvaluationResult) else _NO_VERDICT
