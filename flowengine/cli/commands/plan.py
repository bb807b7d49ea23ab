"""`flowengine plan`: what a flow can take at most, told before it runs."""

from __future__ import annotations

from typing import Any

import click

from flowengine.cli.environment import environment
from flowengine.cli.inputs import gather
from flowengine.cli.plain import dumps
from flowengine.cli.plan_sheet import as_data, lines_of
from flowengine.cli.terminal import Results, complain
from flowengine.cli.units import dollars
from flowengine.errors import FlowError
from flowengine.llm.dotenv import read_environment
from flowengine.llm.facts import Facts
from flowengine.nodes.inputs import InputField, checked_inputs
from flowengine.spec.bounds import FlowBound, bound_of
from flowengine.spec.check_models import check_models, vendors_of
from flowengine.spec.loader import load_flow
from flowengine.spec.project import find_project
from flowengine.spec.schema import FlowSpec

__all__ = ["command"]


@click.command("plan")
@click.argument("flow", metavar="FLOW")
@click.option(
    "-i",
    "--input",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An input that is known; a list tells how often a map over it runs.",
)
@click.option("--inputs", "file", metavar="FILE", help="A JSON object of inputs; - is stdin. -i wins over it.")
@click.option("--model", metavar="NAME", help="Use this model instead of every model that the flow names.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="Exit code 1 where it may cost more.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON object.")
def command(
    flow: str, pairs: tuple[str, ...], file: str | None, model: str | None, max_cost: float | None, as_json: bool
) -> int:
    """Say how many model calls, tokens and dollars the flow in the file FLOW can take at most.

    Nothing runs and nobody is asked. The bounds follow from the file (rounds, items, retries, `max_tokens`, limits),
    from the inputs given, and from the models' prices; models that functions of the project ask are not in them.
    """
    project = find_project(flow)
    spec = load_flow(flow, project=project)
    given = _inputs(spec, pairs, file)
    facts = Facts(read_environment(project.root, environment()), project.prices, project.default_provider)
    unknown = check_models(spec, facts) if model is None else []
    if unknown:
        raise FlowError(unknown)
    bound = bound_of(spec, facts, inputs=given, model=model)
    missing = [name for name, each in spec.inputs.items() if each.required and name not in given]
    vendors = {model: facts.of(model)} if model is not None else vendors_of(spec, facts)
    results = Results()
    if as_json:
        results.json(dumps(as_data(spec, bound, missing, vendors), indent=2))
    else:
        for line in lines_of(spec, bound, missing, vendors):
            results.line(line)
    return 0 if max_cost is None else _judged(bound, max_cost)


def _inputs(spec: FlowSpec, pairs: tuple[str, ...], file: str | None) -> dict[str, Any]:
    """Those that are given; none is missed."""
    fields = {name: InputField(each.type, None, each.enum, each.schema_) for name, each in spec.inputs.items()}
    given = gather(fields, pairs, file)
    checked_inputs(fields, given)
    return given


def _judged(bound: FlowBound, max_cost: float) -> int:
    cost = bound.most.cost_usd
    if cost is not None and cost <= max_cost:
        return 0
    told = "what it may cost has no bound that is known" if cost is None else f"it may cost {dollars(cost)}"
    complain(f"{told}, and --max-cost allows {dollars(max_cost)}")
    return 1
