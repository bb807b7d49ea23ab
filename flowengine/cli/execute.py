"""Runs a job to its end for `run` and `resume`: reports on it, lets a signal stop it, and returns the exit code.

It loads no flow and chooses no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast

from flowengine.cli.failure import report
from flowengine.cli.interrupt import INTERRUPTED, run_until_interrupted
from flowengine.cli.options import OPTION_OF
from flowengine.cli.outcome import exit_code_of, format_error, format_outputs, format_reuse, higher_limit, to_run_json
from flowengine.cli.run_access import choose_store, format_command, keeps, open_journal
from flowengine.cli.terminal import Results, complain
from flowengine.cli.watch import Reporting, watching
from flowengine.core.context import NodeStatus
from flowengine.engine.events import Event
from flowengine.engine.ports import Durability, JournalStore
from flowengine.journal.approvals import open_questions
from flowengine.journal.stores import TeeStore
from flowengine.nodes.compiled_flow import CompiledFlow
from flowengine.nodes.container import every_node
from flowengine.runners.run import Run
from visualize.progress import Progress

__all__ = ["Execution"]

Job = Callable[[JournalStore], Awaitable[Run]]
"""Runs in the store that it is given, whose events are watched."""


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
        return code

    def _run(self, job: Job) -> int:
        progress, run = Progress(), None
        failure: BaseException | None = None
        with open_journal(choose_store(self.store), self.durability) as kept:
            try:
                with self.results.alone(), watching(progress, self.reporting, self.results, self.past) as listener:
                    run = run_until_interrupted(lambda: job(TeeStore(kept, listener)))
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
        """How to repeat the items that a run went on without, where it was kept."""
        if self.plan is None or self.reporting.quiet or not keeps(choose_store(self.store)):
            return
        if not any(node.kind == "map" for _, node in every_node(self.plan.definitions)):
            return
        from flowengine.runners.forking import failed_items

        failed = sum(len(items) for items in failed_items(self.plan, run.events).values())
        if failed:
            items = "1 item" if failed == 1 else f"{failed:,} items"
            complain(f"{items} failed; to repeat: {format_command('resume --failed-items', run.id, self.store)}")

    def _tell_questions(self, run: Run) -> None:
        """What the run waits with, and how to answer it."""
        for node, asked in open_questions(run.events).items():
            complain(f"'{node}' asks: {asked.message}")
            form = " --form FILE" if asked.form is not None else ""
            choices = "|".join(asked.choices)
            if keeps(choose_store(self.store)):
                complain(
                    f"  to answer: {format_command('approve', run.id, self.store)} {node} --choice {choices}{form}"
                )

    def _tell_how_to_raise(self, run: Run) -> bool:
        """How to go on beyond the limit that the run ended at; False where it ended at none, or was kept nowhere."""
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
