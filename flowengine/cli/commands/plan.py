"""`flowengine plan` prints how many model calls, tokens and dollars a flow can take at most. It runs nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import click

from flowengine.cli.environment import read_model_facts
from flowengine.cli.options import FiniteRange, gather_inputs
from flowengine.cli.terminal import Results, complain, format_count, format_dollars, format_table
from flowengine.core import EMPTY, FileKeeper
from flowengine.errors import FlowError
from flowengine.flowfile import load_flow
from flowengine.flowfile.checks import check_models, describe_unnamed, vendors_of
from flowengine.flowfile.estimate import FlowBound, Most, NodeBound, batch_data, bound_of, notes_of, to_data
from flowengine.flowfile.project import Project, find_project
from flowengine.flowfile.schema import FlowSpec
from flowengine.models import KnownModel
from flowengine.nodes import REQUIRED, InputField, checked_inputs, take_files

# --- The bounds as lines

_NO_BOUND: Final = "?"
_HEADINGS: Final = ["NODE", "KIND", "RUNS", "CALLS", "TOKENS", "COST", "SHARE"]
_LIMITS: Final = ("model_calls", "tokens", "cost_usd")


def lines_of(
    spec: FlowSpec, bound: FlowBound, missing: Collection[str] = (), vendors: Mapping[str, KnownModel] = EMPTY
) -> Iterator[str]:
    """Yields lines for people: each node, the longest path, the whole, what keeps it from being known, and where the
    models are. `missing`: inputs."""
    rows = [_HEADINGS, *(_format_row(each, bound.unlimited) for each in bound.nodes)]
    yield from format_table(rows, right=range(2, len(_HEADINGS)))
    yield ""
    yield f"longest path: {' → '.join(bound.longest)}"
    yield f"at most: {_format_bound(bound.most)}"
    yield from _list_billed(bound)
    best = bound.most.cost_at_best
    if best is not None and best < (bound.most.cost_usd or 0.0):
        yield f"at best, with what the caches of vendors can serve: {format_dollars(best)}"
    limits = [f"{name} {value}" for name in _LIMITS if (value := getattr(spec.limits, name)) is not None]
    if limits:
        yield f"without the limits of the file ({', '.join(limits)}): {_format_bound(bound.unlimited)}"
    for model, vendor in vendors.items():
        yield f"model '{model}' goes to {vendor.provider}, since {vendor.because}"
    for note in notes_of(spec, bound, missing):
        yield f"note: {note}"


def _list_billed(bound: FlowBound) -> Iterator[str]:
    """Lines for a bill that may be higher than the bound."""
    if bound.billed.cost_usd != bound.most.cost_usd:
        yield f"if attempts get no answer and are billed all the same, at most: {_format_bound(bound.billed)}"


def _format_row(node: NodeBound, whole: Most) -> list[str]:
    most = node.most
    name = f"{'  ' * node.depth}{node.path.rpartition('.')[2]}"
    if most.calls == 0:
        return [name, node.kind, format_count(node.runs), "", "", "", ""]
    return [
        name,
        node.kind,
        format_count(node.runs),
        format_count(most.calls),
        format_count(most.tokens),
        format_dollars(most.cost_usd) or _NO_BOUND,
        _format_share(most.cost_usd, whole.cost_usd) or _format_share(most.tokens, whole.tokens),
    ]


def _format_share(part: float | None, whole: float | None) -> str:
    return "" if not whole or part is None else f"{min(1.0, part / whole):.0%}"


def _format_bound(most: Most) -> str:
    """
    >>> _format_bound(Most(1, 4200, None))
    '1 model call, 4,200 tokens, a cost without a known bound'
    """
    calls = "any number of model calls" if most.calls is None else f"{most.calls:,} model call{'s' * (most.calls != 1)}"
    tokens = "any number of tokens" if most.tokens is None else f"{most.tokens:,} tokens"
    cost = "a cost without a known bound" if most.cost_usd is None else format_dollars(most.cost_usd)
    return f"{calls}, {tokens}, {cost}"


@click.command("plan")
@click.argument("flow", metavar="FLOW")
@click.option(
    "-i",
    "--input",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A known input; the length of a list bounds maps over it.",
)
@click.option("--inputs", "file", metavar="FILE", help="A JSON object of inputs; - is stdin. -i overrides it.")
@click.option("--data", metavar="FILE", help="Add up all rows of a file, as for `run --data`.")
@click.option("--map", "mapping", multiple=True, metavar="COLUMN=INPUT", help="With --data: the input for a column.")
@click.option("--model", metavar="NAME", help="Use this model in place of all models of the flow.")
@click.option("--max-cost", type=FiniteRange(min=0), metavar="USD", help="Exit code 1 if it may cost more.")
@click.option("--against", metavar="git:REV", help="Show what changed since a git revision, and why.")
@click.option("--markdown", is_flag=True, help="With --against: print it as Markdown, for a pull request.")
@click.option("--risks", is_flag=True, help="List instead the paths on which untrusted text reaches an effect.")
@click.option("--batch", is_flag=True, help="Also show the cost with the vendors' batch APIs.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON object.")
def command(
    flow: str,
    pairs: tuple[str, ...],
    file: str | None,
    data: str | None,
    mapping: tuple[str, ...],
    model: str | None,
    max_cost: float | None,
    against: str | None,
    markdown: bool,
    risks: bool,
    batch: bool,
    as_json: bool,
) -> int:
    """Say how many model calls, tokens and dollars the flow in the file FLOW can take at most.

    Nothing runs and no model is asked. The bounds follow from the file (rounds, items, retries, `max_tokens`, limits),
    from the inputs given, and from the models' prices; models that functions of the project ask are not in them.
    """
    project = find_project(flow)
    spec = load_flow(flow, project=project)
    if markdown and (against is None or as_json):
        raise click.UsageError("--markdown goes with --against, and not with --json")
    if mapping and data is None:
        raise click.UsageError("--map goes with --data")
    if data is not None and against is not None:
        raise click.UsageError("--against compares two versions of a flow, not what rows of --data take")
    if risks:
        if (
            data is not None
            or pairs
            or file is not None
            or model is not None
            or max_cost is not None
            or against is not None
        ):
            raise click.UsageError("--risks follows from the file alone: it goes with --json and no other option")
        return _print_risks(spec, project, as_json)
    values = _read_inputs(spec, pairs, file)
    facts = read_model_facts(project)
    unknown = check_models(spec, facts, model)
    if unknown:
        raise FlowError(unknown)
    bound = bound_of(spec, facts, inputs=values, model=model)
    missing = [name for name, each in spec.inputs.items() if each.required and name not in values]
    rows = None
    if data is not None:
        from flowengine.cli.plan_rows import bound_rows  # Few plans have rows.
        from flowengine.evals import open_data, parse_mapping

        table = open_data(data, _fields_of(spec, is_whole=True), parse_mapping(mapping), values)
        rows = bound_rows(table, lambda inputs: bound_of(spec, facts, inputs=inputs, model=model))
    vendors = {model: facts.of(model)} if model is not None else vendors_of(spec, facts)
    results = Results()
    if against is not None:
        _print_change(flow, against, (spec, bound), values, model, "json" if as_json else "md" if markdown else "text")
    elif as_json:
        beside: dict[str, Any] = {"batch": batch_data(bound, vendors)} if batch else {}
        if rows is not None:
            beside["data"] = rows.to_data(vendors, batch=batch)
        results.value({**to_data(spec, bound, missing, vendors), **beside})
    else:
        unnamed = None if model is not None else describe_unnamed(spec, facts)
        lines = [
            *lines_of(spec, bound, missing, vendors),
            *([unnamed] if unnamed else ()),
            *(_batch_lines(bound, vendors) if batch else ()),
        ]
        if rows is not None:
            beside_rows = [
                "",
                *rows.lines(_format_bound),
                *_list_billed(rows.bound),
                *(_batch_lines(rows.bound, vendors) if batch else ()),
            ]
            lines = [*lines_of(spec, bound, (), vendors), *beside_rows]
        results.lines(lines)
    return 0 if max_cost is None else _exit_code(bound if rows is None else rows.bound, max_cost)


def _print_risks(spec: FlowSpec, project: Project, as_json: bool) -> int:
    from flowengine.cli.risks import list_risk_paths, risk_paths_as_data  # Loads networkx.
    from flowengine.flowfile.risks import risk_paths_of

    results, ways = Results(), risk_paths_of(spec, project)
    if as_json:
        results.value(risk_paths_as_data(spec.name, ways))
    else:
        results.lines(list_risk_paths(ways))
    return 0


def _print_change(
    flow: str,
    against: str,
    now: tuple[FlowSpec, FlowBound],
    inputs: Mapping[str, Any],
    model: str | None,
    form: Literal["text", "json", "md"],
) -> None:
    """Prints what changed since a revision; a new flow is compared with nothing."""
    from flowengine.cli.plan_change import change_as_data, change_as_markdown, list_change  # Few plans compare.
    from flowengine.evals import PREFIX, NotThereError, revision_of, tree_at
    from flowengine.flowfile.estimate import compare_bounds

    if not against.startswith(PREFIX):
        raise click.UsageError(f"--against takes a revision, as in {PREFIX}main; found '{against}'")
    commit = revision_of(Path(flow), against.removeprefix(PREFIX))
    try:
        with tree_at(Path(flow), commit) as there:
            old = _bound_at(there, inputs, model)
    except NotThereError:
        old = None
    change = compare_bounds(old, now)
    results = Results()
    if form == "json":
        results.value(change_as_data(flow, against, commit, change))
        return
    results.lines((change_as_markdown if form == "md" else list_change)(flow, against, change))


def _bound_at(file: Path, arguments: Mapping[str, Any], model: str | None) -> tuple[FlowSpec, FlowBound]:
    """A flow of another folder, with its own project and those of the inputs that it has."""
    project = find_project(file)
    spec = load_flow(file, project=project)
    inputs = {name: value for name, value in arguments.items() if name in spec.inputs}
    return spec, bound_of(spec, read_model_facts(project), inputs=inputs, model=model)


def _read_inputs(spec: FlowSpec, pairs: tuple[str, ...], file: str | None) -> dict[str, Any]:
    """Reads the inputs that are given; none is missed."""
    fields = _fields_of(spec, is_whole=False)
    inputs = gather_inputs(fields, pairs, file)
    project = find_project(spec.path)
    rules = replace(project.files, root=project.root)
    inputs = anyio.run(take_files, fields, inputs, FileKeeper(None, "", rules))
    checked_inputs(fields, inputs)
    return dict(inputs)


def _fields_of(spec: FlowSpec, *, is_whole: bool) -> dict[str, InputField]:
    """The inputs as they are checked; not `is_whole`: none is missed."""
    return {
        name: InputField(
            each.type,
            (REQUIRED if each.required else each.default) if is_whole else None,
            each.enum,
            each.schema_,
            media_types=each.media_types,
        )
        for name, each in spec.inputs.items()
    }


def _batch_lines(bound: FlowBound, vendors: Mapping[str, KnownModel]) -> Iterator[str]:
    batches = batch_data(bound, vendors)
    usual, most = batches["waves"], batches["waves_at_most"]
    waves = "any number of waves" if most is None else f"{usual} wave{'s' * (usual != 1)} as a rule, {most} at most"
    end = "" if most is None else f"; the latest end is {batches['latest_hours']} hours after the start"
    yield f"in batches: {format_dollars(batches['cost_usd']) or 'a cost without a known bound'}, {waves}{end}"
    for model in batches["asked_live"]:
        yield f"note: {model} has no batches here: it is asked live, at its price, and so nothing is halved above"


def _exit_code(bound: FlowBound, max_cost: float) -> int:
    cost = bound.billed.cost_usd
    if cost is not None and cost <= max_cost:
        return 0
    text = "what it may cost has no bound that is known" if cost is None else f"it may cost {format_dollars(cost)}"
    complain(f"{text}, and --max-cost allows {format_dollars(max_cost)}")
    return 1
