"""Runs a job to its end for `run` and `resume`: reports on it, lets a signal stop it, prints its end.

The exit code is chosen here, and what is printed of a run when it has ended.

It loads no flow and chooses no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from flowengine.cli.failure import report
from flowengine.cli.interrupt import INTERRUPTED, run_until_interrupted
from flowengine.cli.options import OPTION_OF
from flowengine.cli.run_access import choose_store, format_command, keeps, open_journal, read
from flowengine.cli.terminal import Results, complain
from flowengine.cli.watch import Reporting, watching
from flowengine.core.context import NodeStatus, RunStatus
from flowengine.core.json_values import dumps
from flowengine.engine.events import ErrorInfo, Event
from flowengine.engine.ports import Durability, JournalStore
from flowengine.errors import LimitError
from flowengine.journal.approvals import open_questions, told_last
from flowengine.journal.run_lookup import labels_of
from flowengine.journal.stores import TeeStore
from flowengine.nodes.compiled_flow import CompiledFlow
from flowengine.runners import local
from flowengine.runners.run import Live, Run, RunOptions, higher_limit
from visualize.progress import NodeRow, Progress

__all__ = ["Execution", "exit_code_of", "format_outputs", "to_node_object", "to_run_json", "to_run_object"]

# --- The end of a run: what is printed, and the exit code


def exit_code_of(status: RunStatus, error: ErrorInfo | None) -> int:
    """The exit code of a run that ended.

    >>> exit_code_of("failed", ErrorInfo("LimitError", "the run took longer than its limit of 1 s"))
    4
    """
    if status == "failed":
        return 4 if error is not None and error.type == LimitError.__name__ else 1
    return {"succeeded": 0, "waiting": 3, "paused": 4, "partial": 4, "cancelled": INTERRUPTED}.get(status, 1)


def format_error(error: ErrorInfo, node: str | None) -> str:
    place = f"node '{node}': " if node is not None else ""
    return f"error: {place}{error.message}".replace("\n", "\n  ")


def format_outputs(outputs: Mapping[str, Any]) -> str:
    r"""The outputs for people: one text alone as it is, else `name: value`, a longer text below its name.

    >>> format_outputs({"greeting": "Hello"}), format_outputs({"a": "x", "n": [1]})
    ('Hello', 'a: x\nn: [1]')
    """
    if len(outputs) == 1:
        [value] = outputs.values()
        if isinstance(value, str):
            return value
    return "\n".join(_format_named(name, value) for name, value in outputs.items())


def format_reuse(progress: Progress) -> str | None:
    """Says how many nodes were re-used; None if none were and no earlier run was named."""
    nodes, of = progress.count_reused()
    asked = progress.started is not None and "reuse" in progress.started.settings
    return f"re-used {nodes:,} of {of:,} nodes" if nodes or asked else None


def _format_named(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else dumps(value)
    if "\n" not in text:
        return f"{name}: {text}"
    return f"{name}:\n" + "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


def to_run_json(
    progress: Progress, outputs: Mapping[str, Any] | None, statuses: Mapping[str, NodeStatus] | None = None
) -> str:
    """`to_run_object` as text."""
    return dumps(to_run_object(progress, outputs, statuses), indent=2)


def to_run_object(
    progress: Progress, outputs: Mapping[str, Any] | None, statuses: Mapping[str, NodeStatus] | None = None
) -> dict[str, Any]:
    """The run as one object. `statuses` are the walk's, which also knows what an `on_error` made of a failure."""
    finished = progress.finished
    error = None if finished is None else finished.error
    usage = progress.usage
    return {
        "run_id": "" if progress.started is None else progress.started.run_id,
        "flow": progress.flow,
        "status": progress.status,
        "labels": {} if progress.started is None else labels_of(progress.started),
        "outputs": outputs,
        "error": None if error is None or finished is None else _to_error_object(error, finished.node),
        "nodes": {name: to_node_object(row, (statuses or {}).get(name)) for name, row in progress.nodes.items()},
        "seconds": progress.seconds(),
        "idle_seconds": progress.idle,
        "reused": progress.count_reused()._asdict(),
        "tokens": usage.tokens,
        "cost_usd": usage.cost_usd,
    }


def _to_error_object(error: ErrorInfo, node: str | None) -> Mapping[str, Any]:
    return {"type": error.type, "message": error.message, "node": node}


def to_node_object(row: NodeRow, status: NodeStatus | None = None) -> Mapping[str, Any]:
    """One node as an object."""
    calls = row.usage.calls
    return {
        "status": status or row.status,
        "kind": row.kind,
        "cause": row.cause,
        "error": None if row.error is None else row.error._asdict(),
        "earlier_errors": [each._asdict() for each in row.earlier_errors],
        "seconds": row.seconds(),
        "waited_seconds": row.sum_waiting(),
        "model_calls": calls,
        "tokens": row.usage.tokens,
        "cost_usd": row.usage.cost_usd,
        "retries": row.retries,
        "reused": None if row.reused is None else {"run_id": row.reused.run_id, "node": row.reused.node},
    }


_WAITING: Final = 3

Job = Callable[[JournalStore, Live], Awaitable[Run]]
"""Runs in the store that it is given, whose events are watched, and hands on what agents write."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One run on the command line."""

    run_id: str
    store: str | None
    """As it was given with `--store`."""
    reporting: Reporting
    results: Results
    durability: Durability = "full"
    past: Sequence[Event] = ()
    """Of a run that is resumed."""
    plan: CompiledFlow | None = None
    """Of the flow that is run, where that is known here."""

    def run(self, job: Job) -> int:
        """Do it, tell what became of it, and give the exit code."""
        code = self._run(job)
        if self.results.failure is not None:
            raise self.results.failure
        return self._ask_person(code) if code == _WAITING and self._can_ask else code

    @property
    def _can_ask(self) -> bool:
        """Whether somebody sits at the terminal who may answer what the run waits with."""
        from flowengine.cli.questions import can_ask_person  # Most runs ask nobody.

        is_plain = not (self.reporting.json or self.reporting.events or self.reporting.quiet)
        return is_plain and self.plan is not None and keeps(choose_store(self.store)) and can_ask_person()

    def _ask_person(self, code: int) -> int:
        """Have the run's questions answered at the terminal, and go on with it."""
        from flowengine.cli.questions import ask_person

        plan = self.plan
        assert plan is not None  # Else nobody can be asked.
        with open_journal(choose_store(self.store), self.durability) as kept:
            given = ask_person(kept, self.run_id, read(kept, self.run_id))
            past = read(kept, self.run_id)
        if any(each.writer is None for each in given):
            again = replace(self, past=past)
            return again.run(
                lambda kept, live: local.resume(plan, self.run_id, kept, RunOptions(allow_changed=True, live=live))
            )
        self._tell_how_to_answer(past)
        return code

    def _run(self, job: Job) -> int:
        progress, run = Progress(), None
        failure: BaseException | None = None
        with open_journal(choose_store(self.store), self.durability) as kept:
            try:
                with (
                    self.results.alone(),
                    watching(progress, self.reporting, self.results, self.past, kept) as watch,
                ):
                    run = run_until_interrupted(lambda: job(TeeStore(kept, watch), watch.hear))
            except (Exception, SystemExit, BaseExceptionGroup) as error:
                failure = cast("BaseException", error)  # a node may call sys.exit(); that ends no shell's pipeline
            if run is not None and failure is None:
                return self._tell(run, progress)  # Of its events, as long as they can be read.
        if failure is not None:
            return self._tell_failure(failure, progress)
        complain("interrupted")
        if self.reporting.json and progress.finished is not None:
            self.results.json(to_run_json(progress, None))
        self._tell_how_to_go_on(progress)
        return INTERRUPTED

    def _tell_failure(self, failure: BaseException, progress: Progress) -> int:
        has_run = progress.events > len(self.past)
        code = report(failure, has_run=has_run)
        if code == 5:
            anyway = format_command("resume --allow-changed", self.run_id, self.store)
            complain(f"  to go on with the flow as it is now: {anyway}")
        elif has_run:
            self._tell_how_to_go_on(progress)
        return code

    def _tell(self, run: Run, progress: Progress) -> int:
        if self.reporting.json:
            statuses: dict[str, NodeStatus] = {name: node.status for name, node in run.nodes.items()}
            self.results.json(to_run_json(progress, run.outputs, statuses))
        elif run.outputs and not self.reporting.events:
            self.results.line(format_outputs(run.outputs))
        reused = format_reuse(progress)
        if reused is not None and not self.reporting.quiet:
            complain(reused)
        if run.error is not None:
            complain(format_error(run.error, run.failed_node))
        if run.status == "waiting":
            self._tell_questions(run)
        elif run.status != "succeeded":
            self._tell_record(run)
            if not self._tell_how_to_raise(run):
                self._tell_how_to_go_on(progress)
        else:
            self._tell_failed_items(run)
        return exit_code_of(run.status, run.error)

    def _tell_record(self, run: Run) -> None:
        if run.failed_node is not None and keeps(choose_store(self.store)) and not self.reporting.quiet:
            complain(f"  what happened: {format_command(f'runs show --node {run.failed_node}', run.id, self.store)}")

    def _tell_failed_items(self, run: Run) -> None:
        """Prints the command that repeats failed items, if the run is stored."""
        if self.plan is None or self.reporting.quiet or not keeps(choose_store(self.store)):
            return
        if not any(node.kind == "map" for node in self.plan.all_nodes.values()):
            return
        from flowengine.runners.forking import failed_items

        failed = sum(len(items) for items in failed_items(self.plan, run.events).values())
        if failed:
            items = "1 item" if failed == 1 else f"{failed:,} items"
            complain(f"{items} failed; to repeat: {format_command('resume --failed-items', run.id, self.store)}")

    def _tell_questions(self, run: Run) -> None:
        """Prints the run's open questions, if they cannot be asked here."""
        from flowengine.cli.format_run import format_told  # Most runs ask nobody.
        from flowengine.cli.questions import describe_question

        if not self._can_ask:
            for path, asked in open_questions(run.events).items():
                for line in describe_question(path, asked):
                    complain(line)
            for told in told_last(run.events):
                complain(f"  {format_told(told)}")
            self._tell_how_to_answer(run.events)

    def _tell_how_to_answer(self, events: Sequence[Event]) -> None:
        from flowengine.cli.questions import format_choices

        if keeps(choose_store(self.store)):
            for path, asked in open_questions(events).items():
                how = f"{format_command('approve', self.run_id, self.store)} {path} {format_choices(asked)}"
                complain(f"  to answer: {how}")

    def _tell_how_to_raise(self, run: Run) -> bool:
        """Prints the command that continues with a higher limit; returns False if there is none."""
        error = run.error
        if error is None or error.limit not in OPTION_OF or not keeps(choose_store(self.store)):
            return False
        if error.part:
            anyway = format_command("resume --allow-changed", run.id, self.store)
            complain(f"  to go on: raise the limits of node '{error.part}' in the flow's file, then: {anyway}")
            return True
        option = f"{OPTION_OF[error.limit]} {higher_limit(error, run.limits)}"
        complain(f"  to go on with a higher limit: {format_command(f'resume {option}', run.id, self.store)}")
        return True

    def _tell_how_to_go_on(self, progress: Progress) -> None:
        if progress.started is not None and keeps(choose_store(self.store)):
            complain(f"  to go on: {format_command('resume', self.run_id, self.store)}")
