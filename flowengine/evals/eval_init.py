"""Writes an eval from recorded runs: a data set of their inputs with their outputs as expected, and a floweval file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.core import EMPTY, dumps, write_output
from flowengine.engine import JournalStore, RunFinished
from flowengine.errors import InputError
from flowengine.evals.eval_effects import list_unfaked
from flowengine.evals.eval_file import SUFFIX
from flowengine.evals.recorded_rows import recorded_rows
from flowengine.flow import Flow
from flowengine.journal import mask_events
from flowengine.runtime.local import DataRow
from flowengine.testing import FakesSpec, name_columns


class WrittenEval(NamedTuple):
    """The files that were written."""

    files: tuple[Path, Path]
    """The floweval file, and the data."""
    rows: int


def write_eval(
    flow: Flow, path: Path, store: JournalStore, runs: str, *, output: str | None, mask: bool, force: bool
) -> WrittenEval:
    """Write both files, over what is there only with `force`; `runs` says which runs (see `recorded_rows`)."""
    place = path.with_name(f"{path.stem}{SUFFIX}") if output is None else Path(output)
    if not place.name.endswith(SUFFIX):
        raise InputError(f"-o {place}: the name of an eval ends with {SUFFIX}")
    data = place.with_name(f"{place.name.removesuffix(SUFFIX)}.rows.jsonl")
    existing = [each for each in (place, data) if each.exists()]
    if existing and not force:
        raise InputError(f"{existing[0]} is there already: --force writes over it, -o names another")
    has_flow = any(each.startswith("flow=") for each in runs.split())
    query = runs if has_flow else f"flow={flow.name} {runs}".strip()
    recorded = list(recorded_rows(store, query, flow.plan))
    expected, run = name_columns({name for row in recorded for name in row.inputs})
    outputs = list(dict.fromkeys(name for row in recorded for name in row.data["outputs"]))
    if not outputs:
        raise InputError("none of these runs has outputs to expect")
    text = _text(os.path.relpath(path, place.parent), data.name, expected, outputs)
    unfaked = list(dict.fromkeys(each.fake for each in list_unfaked(flow, FakesSpec())))
    if unfaked:
        text += "# These have an effect outside: fake them, or say `effects: run`.\n"
        text += "".join(f"# fakes: {{{each}}}\n" for each in unfaked)
    rows = _rows(recorded, expected, run, mask=mask)
    write_output(data, (f"{dumps(row)}\n" for row in rows))
    write_output(place, [text])
    return WrittenEval((place, data), len(recorded))


def _rows(recorded: Sequence[DataRow], expected: str, run: str, *, mask: bool) -> Iterator[Mapping[str, Any]]:
    masker = None
    if mask:
        from flowengine.core.masking import Masker  # Its patterns take a while to compile.

        masker = Masker()
    for row in recorded:
        values: dict[str, Any] = {**row.inputs, expected: dict(row.data["outputs"])}
        if masker is not None:
            [event] = mask_events([RunFinished(0.0, "succeeded", values)], masker)
            hidden = event.outputs if isinstance(event, RunFinished) else EMPTY
            values = {**(hidden or EMPTY)}
        yield {**values, run: row.data["run"]}


def _text(flow: str, data: str, expected: str, outputs: list[str]) -> str:
    scorers = "".join(
        f"  {json.dumps(name)}: {{outputs: {{{json.dumps(name)}: "
        f"{{equals: \"{{{{ row.{expected}['{name}'] }}}}\"}}}}}}\n"
        for name in outputs
    )
    return (
        "# What the flow gave in recorded runs is expected of it. Texts that may differ are better judged:\n"
        '#   reply: {judge: {target: "{{ outputs.reply }}", criteria: {polite: It is friendly}}, threshold: 0.7}\n'
        f"flow: {json.dumps(flow)}\ndata: {json.dumps(data)}\nscorers:\n{scorers}"
    )
