"""Tells the bounds of a flow as data, and what keeps them from being known, or lower."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from flowengine.agents import CallSettings
from flowengine.core import EMPTY, TRAITS
from flowengine.flowfile.analysis import is_agent, is_asking, is_map_node, nodes_of, retry_of, settings_of
from flowengine.flowfile.estimate.bounds import FlowBound, NodeBound
from flowengine.flowfile.estimate.model_call_bounds import list_named_models
from flowengine.flowfile.schema import FlowSpec
from flowengine.models import BATCH_PRICE, BATCH_VENDORS, KnownModel


def to_data(
    spec: FlowSpec, bound: FlowBound, missing: Collection[str] = (), vendors: Mapping[str, KnownModel] = EMPTY
) -> dict[str, Any]:
    """Returns the plan as plain data; null where no bound is known."""
    return {
        "flow": spec.name,
        "nodes": [
            {"node": each.path, "kind": each.kind, "runs": each.runs, **each.most.to_data()} for each in bound.nodes
        ],
        "longest_path": list(bound.longest),
        "most": bound.most.to_data(),
        "most_if_unanswered": bound.billed.to_data(),
        "most_cost_usd_if_cached": bound.most.cost_at_best,
        "without_limits": bound.unlimited.to_data(),
        "models": {
            model: {"provider": vendor.provider, "because": vendor.because} for model, vendor in vendors.items()
        },
        "notes": list(notes_of(spec, bound, missing)),
    }


_BATCH_HOURS: Final = 24
"""Within which vendors answer a batch."""


def batch_data(bound: FlowBound, vendors: Mapping[str, KnownModel] = EMPTY) -> dict[str, Any]:
    """Returns the cost with batch APIs: half the price if all models support them."""
    live = [model for model, vendor in vendors.items() if vendor.provider not in BATCH_VENDORS]
    cost, most = bound.most.cost_usd, bound.waves.most
    return {
        "cost_usd": cost if cost is None or live else cost * BATCH_PRICE,
        "waves": bound.waves.usual,
        "waves_at_most": most,
        "latest_hours": None if most is None else most * _BATCH_HOURS,
        "asked_live": live,
    }


def notes_of(spec: FlowSpec, bound: FlowBound, missing: Collection[str] = ()) -> Iterator[str]:
    """Explains what prevents known or lower bounds, and what helps. `missing`: inputs."""
    yield from _explain_bounds(bound, missing)
    yield from _explain_embeddings(spec, bound)
    yield from _explain_repeats(spec)
    yield from _explain_waits(spec)


def _explain_waits(spec: FlowSpec) -> Iterator[str]:
    """Agents whose calls wait for people, and maps that may end early: the bounds hold for all that could be done."""
    for path, node in nodes_of(spec):
        if is_agent(node) and (names := settings_of(spec, node).approve):
            yield f"calls of {_join_names(names)} by '{'.'.join(path)}' wait for a person, who may refuse them"
        elif is_map_node(node) and node.until is not None:
            yield f"'{'.'.join(path)}' ends with enough results (`until`); at most all its items are done"


def _explain_bounds(bound: FlowBound, missing: Collection[str]) -> Iterator[str]:
    """Explains what prevents known or lower bounds, and what helps."""
    if missing:
        yield f"not given: {_join_names(list(missing))}; with -i NAME=VALUE the prompts that read it are measured"
    nodes = bound.nodes
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        if node.kind == "map" and node.runs is not None and following is not None and following.runs is None:
            yield (
                f"how many items '{node.path}' gets is not known: give the input that it goes over with -i, a "
                f"`maxItems` in the schema of what it goes over, or a limit"
            )
    for model in sorted(bound.unlimited.unpriced):
        yield (
            f"the price of {model} is not known: say it in the project file, as "
            f'[tool.flowengine.prices."{model}"] with input and output in USD per million tokens'
        )
    endless = [each.path for each in nodes if _is_endless(each)]
    if endless:
        yield (
            f"nothing bounds the tokens of a call of {_join_names(endless)}: `max_tokens` bounds an answer; what a "
            f"prompt takes from tools, context, functions or inputs that are not given is bounded by the model's "
            f"window, which is not known"
        )


def _explain_embeddings(spec: FlowSpec, bound: FlowBound) -> Iterator[str]:
    """Agents whose documents are turned into vectors, in as many calls as there are batches of them."""
    endless = {each.path for each in bound.nodes if each.most.calls is None}
    for path, node in nodes_of(spec):
        if not is_agent(node) or ".".join(path) not in endless:
            continue
        context = settings_of(spec, node).context or ()
        if any(model for entry in context for model in list_named_models(entry, "embedding")):
            yield (
                f"how many vectors '{'.'.join(path)}' asks for is not known: `embedding` of its context turns every "
                f"document that the index lacks into one; `limits` with model_calls or cost_usd bounds them"
            )


def _explain_repeats(spec: FlowSpec) -> Iterator[str]:
    """Nodes that are repeated as a whole and repeat their calls, too."""
    for path, node in nodes_of(spec):
        retry = retry_of(spec, node)
        if not is_asking(node) or retry is None or retry.attempts < 2:
            continue
        max_retries = settings_of(spec, node).max_retries
        retries = CallSettings().max_retries if max_retries is None else max_retries
        if retries:
            yield (
                f"retries of '{'.'.join(path)}' multiply: `retry` runs it up to {retry.attempts} times, and in each "
                f"run a call is repeated or corrected up to {retries} times (`max_retries`)"
            )


def _is_endless(node: NodeBound) -> bool:
    return TRAITS[node.kind].asks_models and node.most.call_tokens is None


def _join_names(names: Sequence[str]) -> str:
    text = ", ".join(f"'{each}'" for each in names[:3])
    return text if len(names) <= 3 else f"{text} and {len(names) - 3} more"
