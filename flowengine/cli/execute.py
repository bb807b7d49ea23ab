"""Runs a job to its end for `run` and `resume`: reports on it, lets a signal stop it, prints its end.

The exit code is chosen here, what is printed of a run when it has ended, and what is told while it goes on. It loads no
flow and chooses no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, cast

from flowengine.cli.ending import INTERRUPTED, report, run_until_interrupted
from flowengine.cli.options import OPTION_OF, Reporting, RunningOptions
from flowengine.cli.run_access import format_command, read
from flowengine.cli.terminal import Results, complain, has_live_stderr
from flowengine.core import EMPTY, NodeStatus, Notice, Reused, RunStatus, dumps
from flowengine.engine import ErrorInfo, Event, JournalStore, NodeRecorded, NodeStarted, RunStarted, TokenStreamed
from flowengine.errors import LimitError, RunBusyError
from flowengine.journal import open_questions, tell_events, told_last
from flowengine.nodes import CompiledFlow
from flowengine.runtime import Live, Run, RunOptions, higher_limit
from flowengine.runtime.local import local
from visualize.progress import Progress

if TYPE_CHECKING:
    from flowengine.cli.run_outlook import RunOutlook

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
    has_reuse = progress.started is not None and "reuse" in progress.started.settings
    return f"re-used {nodes:,} of {of:,} nodes" if nodes or has_reuse else None


def _format_named(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else dumps(value)
    if "\n" not in text:
        return f"{name}: {text}"
    return f"{name}:\n" + "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


# --- While a run goes on: its events, its notices, a line from time to time or the live tree

_FIRST_LINE: Final = 10.0
"""Seconds after which a pipe is told for the first time how far a run is."""
_EACH_LINE: Final = 15.0
_MOST_UNFOLDED: Final = 1_000
"""Events that are kept for a look that may never come."""


class ProgressWatch:
    """The journal's listener: it prints what the user wants, and folds the events once somebody looks at the run."""

    def __init__(
        self, reporting: Reporting, results: Results, past: Sequence[Event] = (), store: JournalStore | None = None
    ) -> None:
        self._reporting = reporting
        self._results = results
        self._store = store
        self._folded: Progress | None = None
        self._unfolded: list[Event] = []
        self._notices: set[str] = set()
        """Notices that were told, each once."""
        self.has_reuse = False
        """Whether results of another run were taken, or asked for."""
        self._outlook: RunOutlook | None = None
        self._pieces: dict[str, TokenStreamed] = {}
        """Node → whom it asks, until that is told."""
        self._is_live = has_live_stderr()
        self._say_at = monotonic() + _FIRST_LINE
        for event in past:
            self._keep(event)

    def fold(self) -> Progress:
        """The run as it is after the last event."""
        progress = self._folded = self._folded or Progress()
        for event in self._unfolded:
            progress.apply(event)
        self._unfolded.clear()
        return progress

    @property
    def is_drawn(self) -> bool:
        """Whether the tree of nodes is drawn, and drawn anew."""
        is_covered = self._reporting.events and self._results.on_terminal
        return self._is_live and not self._reporting.quiet and not is_covered

    @property
    def outlook(self) -> RunOutlook:
        """Facts about the run that its record does not hold; computed on first use."""
        if self._outlook is None:
            from flowengine.cli.run_outlook import RunOutlook  # Most runs end before anybody asks.

            self._outlook = RunOutlook(self.fold(), self._store)
            for piece in self._pieces.values():
                self._outlook.hear(piece)
        return self._outlook

    def hear(self, piece: TokenStreamed) -> None:
        """Hear what an agent writes, where somebody is shown it."""
        if self._outlook is not None:
            self._outlook.hear(piece)
        elif piece.model:
            self._pieces[piece.node] = piece

    def __call__(self, event: Event) -> None:
        notice = self._keep(event)
        if self._outlook is not None or len(self._unfolded) > _MOST_UNFOLDED:
            self.fold()
        if self._outlook is not None:
            self._outlook.apply(event)
        elif self._pieces and not isinstance(event, NodeStarted):
            self._pieces.pop(getattr(event, "node", None) or "", None)
        if self._reporting.events:
            from flowengine.journal import event_line  # Reads and writes journals; few commands need it.

            self._results.attempt(event_line(event))
        if notice and not self._reporting.quiet:
            complain(f"notice: {notice}")
        self.tell_progress()

    def _keep(self, event: Event) -> str:
        """Keeps an event for the fold; the text of a notice that was not told before."""
        self._unfolded.append(event)
        if isinstance(event, RunStarted):
            self.has_reuse |= "reuse" in event.settings
        record = event.record if isinstance(event, NodeRecorded) else None
        self.has_reuse |= isinstance(record, Reused)
        if not isinstance(record, Notice) or record.text in self._notices:
            return ""
        self._notices.add(record.text)
        return record.text

    def tell_progress(self) -> None:
        """A line from time to time, where no picture can be drawn: for logs of jobs."""
        if self._is_live or self._reporting.quiet or self._reporting.events or monotonic() < self._say_at:
            return
        from flowengine.cli.live import format_progress_line  # rich is not needed before.

        self._say_at = monotonic() + _EACH_LINE
        progress = self.fold()
        if progress.started is not None and progress.finished is None:
            complain(format_progress_line(progress, time(), self.outlook))

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draws the tree of nodes, where it can be drawn, as long as the block lasts."""
        try:
            if self.is_drawn:
                from flowengine.cli.live import live_tree  # rich is for terminals.

                with live_tree(self.fold(), self.outlook):
                    yield
            else:
                yield
        finally:
            if self._outlook is not None:
                self._outlook.close()


# --- A run on the command line

_WAITING: Final = 3

Job = Callable[[JournalStore, Live], Awaitable[Run]]
"""Runs in the store that it is given, whose events are watched, and hands on what agents write."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One run on the command line."""

    run_id: str
    plan: CompiledFlow
    running: RunningOptions
    results: Results
    past: Sequence[Event] = ()
    """The events of a run that is resumed."""
    may_be_busy: bool = False
    """Whether it is right that another process goes on with the run, which has all that was given it to go on with."""

    @property
    def _reporting(self) -> Reporting:
        return self.running.reporting

    def _format_command(self, command: str) -> str:
        return format_command(command, self.run_id, self.running.store)

    def run(self, job: Job) -> int:
        """Do it, tell what became of it, and give the exit code."""
        code = self._run(job)
        if self.results.failure is not None:
            raise self.results.failure
        return self._ask_person(code) if code == _WAITING and self._can_ask else code

    @property
    def _can_ask(self) -> bool:
        """Whether somebody sits at the terminal who may answer what the run waits with."""
        from flowengine.cli.questions import can_ask_person  # Most runs have no questions.

        return not any(self._reporting) and self.running.is_kept and can_ask_person()

    def _ask_person(self, code: int) -> int:
        """Have the run's questions answered at the terminal, and go on with it."""
        from flowengine.cli.questions import ask_person

        with self.running.open_store() as journal:
            replies = ask_person(journal, self.run_id, read(journal, self.run_id))
            past = read(journal, self.run_id)
        if any(each.writer is None for each in replies):
            again = replace(self, past=past)
            return again.run(
                lambda journal, live: local.resume(
                    self.plan, self.run_id, journal, RunOptions(allow_changed=True, live=live)
                )
            )
        self._tell_how_to_answer(past)
        return code

    def _run(self, job: Job) -> int:
        run = None
        failure: BaseException | None = None
        if not self.past and not self._reporting.quiet and (notice := self.plan.untold_notice) is not None:
            complain(f"notice: {notice}")
        with self.running.open_store() as journal:
            watch = ProgressWatch(self._reporting, self.results, self.past, journal)
            try:
                with self.results.alone(), watch.shown():
                    run = run_until_interrupted(lambda: job(tell_events(journal, watch), watch.hear))
            except (Exception, SystemExit, BaseExceptionGroup) as error:
                failure = cast("BaseException", error)  # a node may call sys.exit(); that ends no shell's pipeline
            if run is not None and failure is None:
                return self._tell(run, watch)  # Of its events, as long as they can be read.
        if failure is not None:
            return self._tell_failure(failure, watch)
        complain("interrupted")
        if self._reporting.json and watch.fold().finished is not None:
            self._print_json(watch.fold(), None)
        self._tell_how_to_go_on(watch)
        return INTERRUPTED

    def _tell_failure(self, failure: BaseException, watch: ProgressWatch) -> int:
        if isinstance(failure, RunBusyError) and self.may_be_busy:
            if not self._reporting.quiet:
                complain(f"  kept; the {failure.writer} that writes the run goes on with it")
            return 0
        has_run = watch.fold().events > len(self.past)
        code = report(failure, has_run=has_run)
        if code == 5:
            anyway = self._format_command("resume --allow-changed")
            complain(f"  to go on with the flow as it is now: {anyway}")
        elif has_run:
            self._tell_how_to_go_on(watch)
        return code

    def _tell(self, run: Run, watch: ProgressWatch) -> int:
        if self._reporting.json:
            statuses: dict[str, NodeStatus] = {name: node.status for name, node in run.nodes.items()}
            self._print_json(watch.fold(), run.outputs, statuses)
        elif run.outputs and not self._reporting.events:
            self.results.line(format_outputs(run.outputs))
        reused = format_reuse(watch.fold()) if watch.has_reuse else None
        if reused is not None and not self._reporting.quiet:
            complain(reused)
        if run.error is not None:
            complain(format_error(run.error, run.failed_node))
        if run.status == "waiting":
            self._tell_questions(run)
        elif run.status != "succeeded":
            self._tell_record(run)
            if not self._tell_how_to_raise(run):
                self._tell_how_to_go_on(watch)
        else:
            if run.unkept and not self._reporting.quiet:
                complain(f"flowengine resume {run.id} tries again to keep its memories")
            self._tell_failed_items(run)
        return exit_code_of(run.status, run.error)

    def _print_json(
        self, progress: Progress, outputs: Mapping[str, Any] | None, statuses: Mapping[str, NodeStatus] = EMPTY
    ) -> None:
        from flowengine.cli.format_run import to_run_json  # Most runs are printed as their outputs.

        self.results.json(to_run_json(progress, outputs, statuses))

    def _tell_record(self, run: Run) -> None:
        if run.failed_node is not None and self.running.is_kept and not self._reporting.quiet:
            complain(f"  what happened: {self._format_command(f'runs show --node {run.failed_node}')}")

    def _tell_failed_items(self, run: Run) -> None:
        """Prints the command that repeats failed items, if the run is stored."""
        if self._reporting.quiet or not self.running.is_kept:
            return
        if not any(node.kind == "map" for node in self.plan.all_nodes.values()):
            return
        from flowengine.runtime.local import failed_items

        failed = sum(len(items) for items in failed_items(self.plan, run.events).values())
        if failed:
            items = "1 item" if failed == 1 else f"{failed:,} items"
            complain(f"{items} failed; to repeat: {self._format_command('resume --failed-items')}")

    def _tell_questions(self, run: Run) -> None:
        """Prints the run's open questions, if they cannot be asked here."""
        from flowengine.cli.format_run import format_told  # Most runs have no questions.
        from flowengine.cli.questions import describe_question

        if not self._can_ask:
            for path, question in open_questions(run.events).items():
                for line in describe_question(path, question):
                    complain(line)
            for notice in told_last(run.events):
                complain(f"  {format_told(notice)}")
            self._tell_how_to_answer(run.events)

    def _tell_how_to_answer(self, events: Sequence[Event]) -> None:
        from flowengine.cli.questions import format_choices

        if self.running.is_kept:
            for path, question in open_questions(events).items():
                how = f"{self._format_command('approve')} {path} {format_choices(question)}"
                complain(f"  to answer: {how}")

    def _tell_how_to_raise(self, run: Run) -> bool:
        """Prints the command that continues with a higher limit; returns False if there is none."""
        error = run.error
        if error is None or error.limit not in OPTION_OF or not self.running.is_kept:
            return False
        if error.part:
            anyway = self._format_command("resume --allow-changed")
            complain(f"  to go on: raise the limits of node '{error.part}' in the flow's file, then: {anyway}")
            return True
        option = f"{OPTION_OF[error.limit]} {higher_limit(error, run.limits)}"
        complain(f"  to go on with a higher limit: {self._format_command(f'resume {option}')}")
        return True

    def _tell_how_to_go_on(self, watch: ProgressWatch) -> None:
        if watch.fold().started is not None and self.running.is_kept:
            complain(f"  to go on: {self._format_command('resume')}")
