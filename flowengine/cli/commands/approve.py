"""`flowengine approve` writes down a person's answer to the question that a run waits with, and resumes the run."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import click

from flowengine.cli.commands.run import resume_run
from flowengine.cli.options import RunningOptions, add_running_options, format_store, open_journal
from flowengine.cli.questions import ask_person, can_ask_person, describe_question, format_choices, name_person
from flowengine.cli.run_access import beginning, format_command, read
from flowengine.cli.terminal import complain
from flowengine.core import parse_json
from flowengine.engine import JournalStore
from flowengine.errors import InputError, RunNotFoundError, StoreCorruptError, StoreVersionError
from flowengine.journal import Given, RunsAsked, answer, open_questions, run_index_of
from flowengine.runtime.queue import hold, queue_of

_MOST_READ: Final = 100
"""Runs that have stopped, and as many at work, that are looked through for the newest that asks."""


@click.command("approve")
@click.argument("reference", metavar="RUN")
@click.argument("node", required=False)
@click.option("--choice", help="One of the choices that the node offers.")
@click.option("--comment", default="", help="Comment, stored with the choice.")
@click.option(
    "--form",
    "form",
    metavar="FILE|JSON",
    help="What is filled in beside the choice, or a call's other arguments: a file, - for stdin, or the JSON itself.",
)
@click.option(
    "--by", help="Name of the answerer, if the question names no approvers.  [default: the user of this machine]"
)
@click.option("--no-resume", is_flag=True, help="Only store the answer; resume the run later.")
@click.option("--here", is_flag=True, help="Continue in this process, even if the run is queued.")
@add_running_options
def command(
    reference: str,
    node: str | None,
    choice: str | None,
    comment: str,
    form: str | None,
    by: str | None,
    no_resume: bool,
    here: bool,
    running: RunningOptions,
) -> int:
    """Answer the question that RUN waits with at NODE (left out where there is but one), and go on with the run.

    RUN is an id, the start of one, or @last: here the newest run that waits for an answer.

    A call of a tool is named NODE:TOOL. It is accepted, refused with the word of --comment, which the model reads, or
    accepted with the arguments of --form in place of its own. On a terminal, what --choice leaves out is asked for.

    A run that was submitted is put back into its queue, and goes on in a worker. The answer to a run that is at work
    is kept for the process that has it, which goes on with it. `flowengine runs show RUN` tells
    what is asked.
    """
    if here and no_resume:
        raise click.UsageError("--here and --no-resume exclude each other")
    form_values = None if form is None else _read_form(form)
    with open_journal(running.store) as journal:
        run_id = journal.find(reference) if reference != "@last" else _find_last_asking(journal, running)
        queue = None if here else queue_of(journal, beginning(read(journal, run_id)))
        if queue is not None and no_resume:
            hold(journal, run_id)
        if choice is None:
            reply = _ask_here(journal, run_id, node)
            if reply is None:
                return 3
        else:
            who = name_person(read(journal, run_id), node, by)
            give = partial(answer, journal, run_id, node, choice, comment=comment, by=who, form=form_values)
            reply = anyio.run(give)
            if not running.reporting.quiet:
                complain(f"run {run_id}: '{choice}' is the answer of node '{reply.node}'")
        if reply.writer is not None:
            if not running.reporting.quiet:
                complain(f"  kept; the {reply.writer} that writes the run takes it in")
            return 0
        if queue is not None and not no_resume:
            return _requeue_run(journal, run_id, queue, running)
    if no_resume:
        complain(f"  to go on: {format_command('resume', run_id, running.store)}")
        return 0
    return resume_run(run_id, running, may_be_busy=True)  # Whoever took it up meanwhile has read the answer.


def _find_last_asking(journal: JournalStore, running: RunningOptions) -> str:
    """The newest run that has an open question, also while its other nodes go on; it is told which one that is."""
    index = run_index_of(journal)
    stopped, at_work = (index.find(RunsAsked(status=each), _MOST_READ).infos for each in ("waiting", "running"))
    for info in sorted((*stopped, *at_work), key=lambda each: each.started, reverse=True):
        try:
            asks = bool(open_questions(read(journal, info.run_id)))
        except (RunNotFoundError, StoreCorruptError, StoreVersionError):
            continue  # It is told of where it is named.
        if asks:
            if not running.reporting.quiet:
                complain(f"@last is run {info.run_id} of flow '{info.flow}'")
            return info.run_id
    raise RunNotFoundError(f"no run '@last': none in {format_store(running.store)} waits for an answer")


def _ask_here(journal: JournalStore, run_id: str, node: str | None) -> Given | None:
    """The last answer of the person at the terminal; None where none was given. `UsageError` without a terminal."""
    events = read(journal, run_id)
    questions = open_questions(events)
    matching = {name: each for name, each in questions.items() if node in (None, name)}
    if not can_ask_person() or not matching:
        hints = [
            f"\n  {line}" for name, each in (matching or questions).items()
            for line in (*describe_question(name, each), format_choices(each))
        ]  # fmt: skip
        raise click.UsageError(f"Missing option '--choice'.{''.join(hints)}")
    replies = ask_person(journal, run_id, events, node)
    return replies[-1] if replies else None


def _requeue_run(journal: JournalStore, run_id: str, queue: str, running: RunningOptions) -> int:
    from flowengine.runtime.queue import queue_store, requeue  # Needs its extra.

    anyio.run(partial(requeue, queue_store(journal), run_id, settings=running.settings))
    if not running.reporting.quiet:
        complain(f"  it goes on in a worker of queue '{queue}'")
    return 0


def _read_form(file: str) -> Any:
    """`file`: its name, or the JSON itself, which is an object."""
    if file.lstrip().startswith("{"):
        try:
            return parse_json(file)
        except ValueError as error:
            raise InputError(f"--form is no JSON: {error}") from error
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return parse_json(data.decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the form '{file}' cannot be read: {error}") from error
    except ValueError as error:
        raise InputError(f"the form '{file}' is no JSON: {error}") from error
