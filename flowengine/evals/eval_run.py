"""Runs an eval: its flow over its rows, its judges over the answers, and gives the scores as a set.

A row takes what still holds from that row's earlier runs in this eval, so that only a change is paid: by the same rules
as `run --reuse`, since that is what it is. A set that was interrupted goes on.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import time
from typing import Any, Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from flowengine.core import EMPTY, Budget, Ledger, ModelCall, cut_text, format_value
from flowengine.engine import JournalStore, RunInfo
from flowengine.errors import InputError
from flowengine.evals.batch_collector import BatchPace, open_collector
from flowengine.evals.data_file import DataFile, open_data
from flowengine.evals.eval_effects import explain_unfaked, has_queues, list_unfaked, with_fakes
from flowengine.evals.eval_file import EvalFile, RecordedSpec, check_columns
from flowengine.evals.eval_sets import EvalRow, EvalSet, SetInfo, keep_set, list_sets, load_set
from flowengine.evals.recorded_rows import recorded_rows
from flowengine.evals.scoring import Score, Scorers, ScoringView
from flowengine.evals.spending import Effort, NeededCalls, effort_of_calls, paid_calls
from flowengine.flow import Flow
from flowengine.models import is_stand_in
from flowengine.nodes import CompiledFlow, digest_of
from flowengine.runtime import RunOptions, hold_set
from flowengine.runtime.local import DataRow, RowResult, RowRuns, RowSet, content_key, read_run

_MOST_EARLIER: Final = 12
"""Earlier runs in which a row looks for results."""
_SHOWN: Final = 240
"""Characters of what a row gave that a set keeps."""


def fingerprints_of(plan: CompiledFlow) -> Mapping[str, str]:
    """Node → a short digest of what it is defined as, with the code that it calls and the model that it asks where it
    names none."""
    models = {name: [each.name] for name, each in plan.default_models.items()}
    return {
        name: digest_of([text, plan.code.get(name), *models.get(name, ())])[:16]
        for name, text in plan.fingerprints.items()
    }


def definition_of(plan: CompiledFlow) -> str:
    """A digest of the whole flow."""
    return digest_of(dict(fingerprints_of(plan)))[:16]


class _AnsweredRow(NamedTuple):
    """A row whose run has ended."""

    row: DataRow
    key: str
    sample: int
    result: RowResult
    view: ScoringView
    scores: Mapping[str, Score]
    questions: Mapping[str, Any]
    needed: Effort
    """Effort of the calls that its answers are made of, whenever they were paid."""
    paid: Effort


@dataclass(kw_only=True)
class EvalRun:
    """One go of an eval."""

    file: EvalFile
    store: JournalStore
    flow: Flow | None = None
    """Another version of the flow than the file's."""
    version: str = ""
    """The version's name."""
    against: EvalSet | None = None
    """What judges of pairs compare with."""
    fresh: bool = False
    """Ask anew."""
    first_rows: int | None = None
    """Only so many rows."""
    concurrency: int | None = None
    budget: Budget | None = None
    """Instead of the file's limits."""
    shared: Ledger | None = None
    """What several evals may spend together, instead of either."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    batch: BatchPace | None = None
    """Through vendors' batches."""
    tell: Callable[[str], object] = lambda text: None
    heard: Callable[[RowResult], None] | None = None
    reuse_sets: Sequence[str] = ()
    """Sets to take results from, beside those that are found."""

    def __post_init__(self) -> None:
        self.plan = self._prepare_flow().plan
        self.scorers = Scorers(self.file)
        self.data = self._open_data()
        limits = self.file.spec.limits
        budget = self.budget or Budget(limits.cost_usd, limits.tokens, limits.model_calls)
        self.ledger = self.shared or Ledger(budget, of="the eval", on_limit="pause")
        self._infos = {each.run_id: each for each in self.store.list()}
        self._earlier = self._find_earlier()
        self._judged: Mapping[tuple[str, int], Sequence[str]] | None = None
        self._pairs = dict[tuple[str, int], EvalRow]() if self.against is None else self.against.by_place()

    def _prepare_flow(self) -> Flow:
        """The flow as it is run: with its fakes. `InputError` where a version of it would have effects outside."""
        flow, spec = self.flow or self.file.flow, self.file.spec
        unfaked = list_unfaked(flow, spec.fakes) if spec.effects is None else ()
        if unfaked:
            raise InputError(f"{self.version or self.file.name}: {explain_unfaked(unfaked)}, or `effects: run`")
        return with_fakes(flow, spec.fakes, refuses=spec.effects is None) if spec.fakes.model_fields_set else flow

    def _open_data(self) -> DataFile | Sequence[DataRow]:
        spec, file = self.file.spec, self.file
        if isinstance(spec.data, RecordedSpec):
            return list(recorded_rows(self.store, spec.data.runs, self.plan, spec.map, spec.inputs))
        data = open_data(file.path.parent / spec.data, self.plan.inputs, spec.map, spec.inputs)
        check_columns(file, data.columns)
        data.tell_invalid(self.tell)
        return data

    @property
    def total(self) -> int:
        """Runs that it takes."""
        rows = self.data.total if isinstance(self.data, DataFile) else len(self.data)
        return min(rows, self.first_rows or rows) * self.file.spec.samples

    # --- Earlier sets of this eval

    def _find_earlier(self) -> Sequence[SetInfo]:
        """Returns the sets in which rows look for earlier runs: those of the same flow and judges, then those that were
        asked for, then all others, each time the newest first."""
        if self.fresh:
            return []
        same = definition_of(self.plan), self._judging_definition()
        return sorted(
            list_sets(self.store, self.file.name),
            key=lambda each: (
                each.definition != same[0],
                each.judging != same[1],
                self.reuse_sets.index(each.id) if each.id in self.reuse_sets else len(self.reuse_sets),
            ),
        )

    @property
    def stand_in_notice(self) -> str:
        """Says which nodes and judges the stand-in answers although nobody chose it; empty where there are none."""
        plans = [self.plan, *([] if self.scorers.judging is None else [self.scorers.judging.plan])]
        return "; ".join(dict.fromkeys(filter(None, (each.stand_in_notice for each in plans))))

    def _judging_definition(self) -> str:
        return "" if self.scorers.judging is None else definition_of(self.scorers.judging.plan)

    def _earlier_runs(self, content: str) -> Sequence[str]:
        """The runs that a row had, one for each definition of the flow. `content`: the key of its inputs."""
        run_ids: dict[str, str] = {}
        for each in self._earlier:
            run_id = f"{each.id}-{content}"
            if each.definition not in run_ids and run_id in self._infos:
                run_ids[each.definition] = run_id
        return list(run_ids.values())[:_MOST_EARLIER]

    def _earlier_judgements(self, place: tuple[str, int]) -> Sequence[str]:
        """The judges' runs that a row had, one for each definition of the flow and of the judges."""
        if self._judged is None:
            runs_by_place: dict[tuple[str, int], dict[tuple[str, str], str]] = {}
            for each in self._earlier:
                for row in load_set(self.store, each.id).rows if each.rows else ():
                    if row.judged in self._infos:
                        runs_by_place.setdefault(row.place, {}).setdefault((each.definition, each.judging), row.judged)
            self._judged = {key: list(runs.values())[:_MOST_EARLIER] for key, runs in runs_by_place.items()}
        return self._judged.get(place, ())

    def _begin(self) -> tuple[EvalSet, Mapping[str, RunInfo]]:
        """The set that was interrupted, or a new one."""
        plan, name = self.plan, self.file.name
        passes_from = {scorer: spec.passes_from for scorer, spec in self.scorers.specs.items()}
        latest: SetInfo | None = next(iter(list_sets(self.store, name)), None)
        definition = digest_of([definition_of(plan), self.file.source.text])[:16]
        new_set = EvalSet(
            os.urandom(4).hex(), name, plan.name, time(), definition_of(plan), fingerprints_of(plan), self.version,
            passes_from=passes_from, judging=self._judging_definition(), stand_in=self.stand_in_notice,
        )  # fmt: skip
        if latest is not None and not latest.finished and not self.fresh:
            unfinished = load_set(self.store, latest.id)
            if unfinished.version == self.version and self.store.recall("eval-begun", latest.id) == definition:
                infos = {run: info for run, info in self._infos.items() if info.labels.get("set") == latest.id}
                return replace(new_set, id=unfinished.id, at=unfinished.at), infos
        keep_set(self.store, new_set)
        self.store.revise("eval-begun", new_set.id, lambda before: definition)
        return new_set, EMPTY

    # --- Rows through the flow, and through the judges

    async def run(self) -> EvalSet:
        """Run all rows, score them and keep the set; one that a limit ended is kept unfinished."""
        current, infos = self._begin()
        name = os.path.basename(self.file.name)
        rows, is_complete = RowSet(current.id, name, infos), True
        with hold_set(self.store, current.id):  # What another process is at work on stays as it is.
            try:
                async with open_collector(self.store, current.id, self.batch, self.tell) as batches:
                    await self._collect(rows, current.rows)
                is_complete = batches is None or batches.is_complete  # What may be paid is left to be had.
            finally:
                current.finished = is_complete and len(current.rows) == self.total and not self.ledger.has_refused
                keep_set(self.store, current)
        return current

    def _row_runs(self, plan: CompiledFlow, rows: RowSet, part: str) -> RowRuns:
        anew = part == "flow" and has_queues(self.file.spec.fakes)  # Each run uses its fakes up.
        return RowRuns(
            plan=plan,
            plan_of=(lambda row: self._prepare_flow().plan) if anew else None,
            store=self.store,
            rows=rows,
            concurrency=self.concurrency or self.file.spec.concurrency,
            ledger=self.ledger,
            options=RunOptions(settings=self.settings, labels={"eval": self.file.name[-200:], "part": part}),
            retry_failed=True,
            heard=self.heard if part == "flow" else None,
            tell=self.tell,
        )

    async def _collect(self, rows: RowSet, results: list[EvalRow]) -> None:
        """Put the rows with all their scores into a list, in their order."""
        judging, put = self.scorers.judging, results.append
        if judging is None:
            async with aclosing(self._list_answered_rows(rows)) as answers:
                async for each in answers:
                    put(self._row_of(each, None))
            return
        send, receive = anyio.create_memory_object_stream[DataRow](64)
        runs, failure = self._row_runs(judging.plan, rows, "judges"), list[Exception]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_questions, rows, send, failure)
            try:
                async with receive, aclosing(runs.results(receive)) as judged:
                    async for result in judged:
                        put(self._row_of(result.row.data, result))
            except Exception as error:
                failure.append(error)
                tasks.cancel_scope.cancel()
        if failure:  # Raised once the tasks are closed, so that it comes out alone.
            raise failure[0]

    async def _send_questions(
        self, rows: RowSet, send: MemoryObjectSendStream[DataRow], failure: list[Exception]
    ) -> None:
        with send:
            try:
                async with aclosing(self._list_answered_rows(rows)) as answers:
                    async for each in answers:
                        await send.send(self._question_of(each))
            except anyio.BrokenResourceError:  # There is no reader any more.
                return
            except Exception as error:  # Raised to the reader, once the tasks are closed.
                failure.append(error)

    def _question_of(self, each: _AnsweredRow) -> DataRow:
        """The row for the flow of judges."""
        inputs = {name: value for name, value in each.questions.items() if name}
        nothing = None if inputs else "no judge is asked"
        variant = f"judges {each.key} {each.sample}"
        labels = {"sample": str(each.sample)} if self.file.spec.samples > 1 else EMPTY
        earlier = self._earlier_judgements((each.key, each.sample))
        return DataRow(each.row.number, inputs, nothing, each, labels, earlier or None, variant)

    async def _list_answered_rows(self, rows: RowSet) -> AsyncGenerator[_AnsweredRow]:
        """The rows whose runs have ended, with the scores that need no model."""
        runs = self._row_runs(self.plan, rows, "flow")
        async with aclosing(runs.results(self._rows())) as results:
            async for result in results:
                yield await self._answer(result)

    def _rows(self) -> Iterator[DataRow]:
        samples, counts = self.file.spec.samples, dict[str, int]()
        data = self.data.rows() if isinstance(self.data, DataFile) else iter(self.data)
        for number, row in enumerate(data):
            if self.first_rows is not None and number >= self.first_rows:
                return
            content = content_key(row.inputs, row.problem or "")
            counts[content] = counts.get(content, 0) + 1
            key = f"{content}-{counts[content]}" if counts[content] > 1 else content
            for sample in range(1, samples + 1):
                labels = {"sample": str(sample)} if samples > 1 else EMPTY
                variant = f"sample {sample} of {key}"
                earlier = self._earlier_runs(content_key(row.inputs, variant))
                yield row._replace(labels=labels, reuse=earlier or None, variant=variant, data=(row.data, key, sample))

    async def _answer(self, result: RowResult) -> _AnsweredRow:
        data, key, sample = result.row.data
        run = result.run
        if run is None and result.run_id is not None:
            run = read_run(self.plan, self.store.events(result.run_id))
        events = () if run is None else run.events
        reads_prompts = any(each.prompts for each in self.scorers.specs.values())
        by_node, paid = NeededCalls(self.store, whole=reads_prompts).by_node(events), paid_calls(events)
        needed = [call for calls in by_node.values() for call in calls]
        made_here = set(map(id, paid))
        seconds = result.seconds + sum(each.seconds for each in needed if id(each) not in made_here)
        effort = effort_of_calls(needed)
        pair = self._pair_of(key, sample)
        view = ScoringView(
            data if isinstance(data, Mapping) else EMPTY,
            result.row.inputs,
            result.outputs,
            {"id": result.run_id, "status": result.status, "seconds": seconds, "cost_usd": effort.cost_usd},
            pair,
        )
        scores = await self.scorers.score(view, result, run, by_node)
        questions: Mapping[str, Any] = EMPTY
        if self.scorers.judging is not None:
            questions, more_scores = self.scorers.questions(view, result)
            scores |= more_scores
        row = result.row._replace(data=data)
        row_result = result._replace(run=None, row=row, has_stand_in=_has_stand_in(needed))
        return _AnsweredRow(row, key, sample, row_result, view, scores, questions, effort, effort_of_calls(paid))

    def _pair_of(self, key: str, sample: int) -> Mapping[str, Any] | None:
        other = self._pairs.get((key, sample))
        if other is None or other.run_id is None or other.run_id not in self._infos:
            return None
        last = self.store.events(other.run_id)[-1]
        outputs = getattr(last, "outputs", None)
        return None if outputs is None else {"outputs": outputs, "run": {"id": other.run_id, "status": other.status}}

    def _row_of(self, answer: _AnsweredRow, judged: RowResult | None) -> EvalRow:
        result, scores = answer.result, dict(answer.scores)
        paid, total, is_offline = answer.paid, answer.needed, result.has_stand_in
        if judged is not None:
            run = judged.run
            if run is None and judged.run_id is not None and self.scorers.judging is not None:
                run = read_run(self.scorers.judging.plan, self.store.events(judged.run_id))
            events = () if run is None else run.events
            calls_by_node = NeededCalls(self.store).by_node(events)
            efforts = {node: effort_of_calls(calls) for node, calls in calls_by_node.items()}
            scores |= self.scorers.read(run, judged.error, answer.questions, efforts)
            paid = paid.plus(effort_of_calls(paid_calls(events)))
            for each in efforts.values():
                total = total.plus(each)
            is_offline = is_offline or any(map(_has_stand_in, calls_by_node.values()))
        order = self.scorers.specs
        return EvalRow(
            answer.key,
            answer.row.number,
            answer.sample,
            result.run_id,
            None if judged is None else judged.run_id,
            result.status,
            "" if result.error is None else result.error.message[:_SHOWN],
            {name: scores.get(name, Score(None, "not scored")) for name in order},
            {column: format_value(answer.view.row.get(column, "")) for column in self.file.spec.slices},
            total.calls,
            paid.calls,
            total.cost_usd,
            paid.cost_usd,
            answer.view.run["seconds"],
            _preview(answer.view.outputs),
            total.unpriced,
            paid.unpriced,
            is_offline,
        )


def _has_stand_in(calls: Iterable[ModelCall]) -> bool:
    return any(is_stand_in(each.provider) for each in calls)


def _preview(outputs: Mapping[str, Any]) -> str:
    values = list(outputs.values())
    text = format_value(values[0] if len(values) == 1 else dict(outputs)) if values else ""
    return cut_text(text, _SHOWN)
