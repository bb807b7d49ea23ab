"""`flowengine runs to-test` writes a flow test, or a row of data, from a recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from flowengine.cli.options import choose_store, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, read
from flowengine.cli.terminal import Results, complain
from flowengine.core.context import EMPTY
from flowengine.core.output_file import tells_refusals, write_output
from flowengine.engine.events import Event, RunStarted
from flowengine.errors import InputError
from flowengine.journal.run_lookup import labels_of

__all__ = ["to_test"]


@click.command("to-test", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="The file to write; a row is added to it.  [default: stdout]")
@click.option("--row", "as_row", is_flag=True, help="A row of data with its outputs as expected, for an eval.")
@click.option("--mask", is_flag=True, help="Without personal data and secrets.")
@click.option("--name", metavar="TEXT", default="", help="What the test says of the flow.")
@click.option("--force", is_flag=True, help="Also over a file that is there.")
@store_option
def to_test(
    reference: str, output: str | None, as_row: bool, mask: bool, name: str, force: bool, store: str | None
) -> int:
    """Make a test of RUN: an id, the start of one, or @last.

    It has the run's inputs, what models, tools, functions and people answered, and the outputs as expected, so that
    `flowengine test` runs it without asking anybody.
    """
    from flowengine.testing.recorded_case import make_row, make_test

    with open_journal(choose_store(store)) as kept:
        run_id = kept.find(reference)
        events = read(kept, run_id)
    _refuse_judges(run_id, events)
    place = None if output is None else Path(output)
    if as_row:
        text = make_row(events, run_id, mask=mask) + "\n"
    else:
        _check_name(place, force=force)
        made = make_test(events, run_id, mask=mask, folder=None if place is None else place.parent, name=name)
        text = made.text
    if place is None:
        Results().document(text.rstrip("\n"))
        return 0
    if as_row:
        with tells_refusals(place), place.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    else:
        write_output(place, [text])
    complain(f"wrote {place}" if not as_row else f"added a row to {place}")
    if not as_row:
        complain(f"to run it: flowengine test {place}")
    return 0


def _refuse_judges(run_id: str, events: Sequence[Event]) -> None:
    """`@last` behind an eval is what its judges were asked, which is no run of a flow that anybody wrote."""
    labels = labels_of(events[0]) if isinstance(events[0], RunStarted) else EMPTY
    if labels.get("part") == "judges" and "eval" in labels:
        chosen = " ".join(f"--label {name}={labels[name]}" for name in ("set", "row") if name in labels)
        raise InputError(
            f"run '{run_id}' is what the judges of the eval '{labels['eval']}' were asked; "
            f"the run that they judged: flowengine runs list --label part=flow {chosen}"
        )


def _check_name(place: Path | None, *, force: bool) -> None:
    if place is None:
        return
    if not place.name.endswith(".flowtest.yaml"):
        raise InputError(f"-o {place}: the name of a flow test ends with .flowtest.yaml")
    if place.exists() and not force:
        raise InputError(f"{place} is there already: --force writes over it, -o names another")
