"""`flowengine ask` asks one recorded call of a model again with changes, beside its answer, as the playground does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import click

from flowengine.cli.commands.run import load_flow_of_run
from flowengine.cli.commands.whatif import read_change
from flowengine.cli.ending import INTERRUPTED, run_until_interrupted
from flowengine.cli.format_parts import mark_words
from flowengine.cli.format_run import indent_lines, shorten
from flowengine.cli.options import FiniteRange, choose_store, keeps, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, beginning, read
from flowengine.cli.terminal import Results, complain, format_dollars, format_span, format_table
from flowengine.core import ModelCall
from flowengine.engine import Event, JournalStore
from flowengine.errors import InputError, RunNotFoundError
from flowengine.evals import ChangedCall, RecordedCall, ask_call, read_answer
from flowengine.journal import without_password
from flowengine.runtime import settings_of
from visualize.viewer import answer_text


@click.command("ask", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option(
    "--call",
    "seq",
    type=click.IntRange(0),
    required=True,
    metavar="N",
    help="Number of the call: see `runs show --calls`.",
)
@click.option(
    "--message", "messages", multiple=True, metavar="N=TEXT", help="Another Nth message; @FILE is its text, @@ one @."
)
@click.option("--model", metavar="NAME", help="Another model.")
@click.option("--set", "options", multiple=True, metavar="KEY=VALUE", help="Another option, as temperature=0.")
@click.option("--again", is_flag=True, help="Request another answer to the same question.")
@click.option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", help="Maximum cost in USD.")
@click.option("--flow", "file", metavar="FILE", help="The flow file; default: that of the run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_option
def command(
    reference: str,
    seq: int,
    messages: tuple[str, ...],
    model: str | None,
    options: tuple[str, ...],
    again: bool,
    max_cost: float | None,
    file: str | None,
    as_json: bool,
    store: str | None,
) -> int:
    """Ask a recorded call of RUN again, with other messages, another model or other options, and compare the answers.

    Where a judge scored the recorded answer, it scores the new one. The same question is asked and paid once: --again
    asks for another answer. Words that only the recorded answer has are [-marked so-], those of the new one {+so+}.
    """
    place, results = choose_store(store), Results()
    if not keeps(place):
        raise click.UsageError("a store in memory holds no runs of before")
    with open_journal(place) as journal:
        run_id = journal.find(reference)
        past = read(journal, run_id)
        with results.alone():
            plan = load_flow_of_run(beginning(past), file, settings_of(past).get("model")).plan
        recorded = RecordedCall(past, seq, plan)
        texts = _change_texts(recorded.call.messages, messages)
        changed = ChangedCall(recorded, texts, model or "", read_change(None, None, options))
        if again:
            changed = _find_unasked(journal, changed)
        with results.alone():
            flow = changed.make_flow()
        earlier = _events_of(journal, changed.run_id)
        if earlier is None or read_answer(earlier)[0] is None or read_answer(earlier)[2]:
            limits = {} if max_cost is None else {"cost_usd": max_cost}
            with results.alone():
                outcome = run_until_interrupted(
                    lambda: ask_call(changed, flow, journal, limits, has_run=earlier is not None)
                )
            if outcome is None:
                complain("interrupted")
                return INTERRUPTED
        call, score, problem = read_answer(_events_of(journal, changed.run_id) or ())
    try:
        changed.change()
        keep, refusal = changed.command(["--store", without_password(store)] if store else []), ""
    except InputError as error:
        keep, refusal = "", str(error)
    if as_json:
        comparison = {"run_id": changed.run_id, "before": recorded.call, "after": call, "error": problem, "keep": keep}
        results.value({**comparison, "score_before": recorded.score, "score_after": score})
    elif call is not None:
        results.lines(_format_answers(recorded, call, score))
        complain(f"asked as run {changed.run_id}; {f'to keep it: {keep}' if keep else refusal}")
    if problem:
        complain(f"error: {problem}")
    return 1 if call is None else 0


def _change_texts(messages: Sequence[Mapping[str, object]], pairs: Sequence[str]) -> list[str]:
    """The texts of a call's messages, with those that are given."""
    texts = [str(each.get("content") or "") for each in messages]
    for pair in pairs:
        number, equals, text = pair.partition("=")
        if not equals or not number.isdecimal() or not 1 <= int(number[:9]) <= len(texts):
            roles = ", ".join(f"{at} {each.get('role')}" for at, each in enumerate(messages, 1))
            raise click.UsageError(f"--message {pair!r:.80}: write N=TEXT; the call's messages are {roles}")
        texts[int(number) - 1] = str(read_change(None, text, ())["prompt"])
    return texts


def _events_of(store: JournalStore, run_id: str) -> Sequence[Event] | None:
    try:
        return store.events(run_id)
    except RunNotFoundError:
        return None


def _find_unasked(store: JournalStore, changed: ChangedCall) -> ChangedCall:
    """The same question, as often as it was asked already and once more."""
    samples = (replace(changed, sample=sample) for sample in count(1))
    return next(each for each in samples if _events_of(store, each.run_id) is None)


def _format_answers(recorded: RecordedCall, call: ModelCall, score: float | None) -> Iterator[str]:
    before = recorded.call
    rows = [
        ["", "RECORDED", "NEW"],
        ["model", before.model, call.model],
        ["took", format_span(before.seconds), format_span(call.seconds)],
        [
            "tokens",
            *(f"{each.prompt_tokens or 0:,} in, {each.completion_tokens or 0:,} out" for each in (before, call)),
        ],
        ["cost", format_dollars(before.cost_usd), format_dollars(call.cost_usd)],
    ]
    if recorded.score is not None or score is not None:
        rows.append(["score", *("" if each is None else f"{each:g}" for each in (recorded.score, score))])
    yield from format_table(rows)
    yield ""
    texts = answer_text(before), answer_text(call)
    yield "the answer is the same" if texts[0] == texts[1] else "answer"
    yield from indent_lines("\n".join(mark_words(*texts)) if texts[0] != texts[1] else shorten(texts[0]))
