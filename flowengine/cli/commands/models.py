"""`flowengine models` lists the project's own names of models, and what is known of each. It asks no server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import click

from flowengine.cli.environment import read_model_facts
from flowengine.cli.terminal import Results, complain, format_count, format_table
from flowengine.core import EMPTY
from flowengine.errors import ModelConfigError
from flowengine.flowfile.project import Project, find_project
from flowengine.models import (
    Capabilities,
    KeySource,
    KnownModel,
    ModelFacts,
    Price,
    SaidCapabilities,
    capabilities_of,
    find_key_source,
    is_packaged,
    listed_entry,
    served_natively,
    vendor_named,
)
from flowengine.models.http import traits_of


class ListedModel(NamedTuple):
    """Facts about one model name."""

    name: str
    model: KnownModel | None
    """None where the name goes to no vendor."""
    problem: str
    served_by: str
    """`native`, `litellm`, `package`, or `nobody` for a stand-in."""
    structured_output: str | None
    key: KeySource | None
    base_url: str | None


@click.command("models")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def command(names: tuple[str, ...], as_json: bool) -> int:
    """List the models that the project names, and what is known of each: vendor, who serves it, bounds, price, key.

    With NAMEs only these, which may also be names of vendors' models. No server is asked, no command for a key is run,
    and no key is shown. Exit code 1 where a name goes to no vendor, or the variable for its key is not set.
    """
    project = find_project()
    facts = read_model_facts(project)
    models = [_look_up(name, project, facts) for name in names or project.models]
    results = Results()
    if as_json:
        results.value([_to_data(each) for each in models])
    elif models:
        rows = [_HEADINGS, *(_format_row(each) for each in models if each.model is not None)]
        results.lines(format_table(rows if len(rows) > 1 else []))
        results.lines(_explain(models))
    else:
        file = "flowengine.toml" if project.file is None else project.file.name
        complain(f"the project names no models; [models.NAME] in {file} does")
    return 0 if all(each.model is not None and _is_ready(each) for each in models) else 1


def _look_up(name: str, project: Project, facts: ModelFacts) -> ListedModel:
    try:
        model = facts.of(name)
    except ModelConfigError as error:
        return ListedModel(name, None, str(error), "", None, None, None)
    own, settings = model.definition, project.providers.get(model.provider)
    base_url = (own and own.base_url) or (settings and settings.base_url) or None
    adapter = (own and own.adapter) or (settings and settings.adapter) or None
    is_native = served_natively(model.provider, adapter)
    shape = (own and own.structured_output) or (settings and settings.structured_output) or None
    if is_native:
        shape = traits_of(
            model.provider, model.name, structured_output=shape, is_elsewhere=base_url is not None
        ).structured_output
    key = find_key_source(model.provider, facts.environ, own, settings)
    return ListedModel(name, model, "", _find_server(model.provider, is_native), shape, key, base_url)


def _find_server(provider: str, is_native: bool) -> str:
    if vendor_named(provider).is_stand_in:
        return "nobody"
    return "native" if is_native else "package" if is_packaged(provider) else "litellm"


def _is_ready(each: ListedModel) -> bool:
    return each.key is None or each.key.is_set is not False


# --- for people

_UNKNOWN: Final = "?"
_HEADINGS: Final = ["NAME", "MODEL", "SERVED BY", "WINDOW", "ANSWER", "USD/M IN", "OUT", "SHAPE", "IMAGES", "KEY"]


def _format_row(each: ListedModel) -> list[str]:
    model = each.model
    assert model is not None
    price = _price_of(model)
    return [
        each.name,
        str(model),
        each.served_by,
        format_count(model.window),
        format_count(model.longest),
        _UNKNOWN if price is None else f"{price.input:g}",
        _UNKNOWN if price is None else f"{price.output:g}",
        each.structured_output or _UNKNOWN,
        _UNKNOWN if model.takes_images is None else "yes" if model.takes_images else "no",
        "" if each.key is None else _format_key(each.key),
    ]


_OTHER_KEYS: Final = {"none": "none needed", "elsewhere": "found by the vendor's library"}


def _price_of(model: KnownModel) -> Price | None:
    """Returns the price of uncached tokens; `plan` uses the highest price that may apply."""
    entry = listed_entry(model.provider, model.name) or {}
    rates = [entry.get(f"{kind}_cost_per_token") for kind in ("input", "output")]
    if model.own_price is not None or None in rates:
        return model.own_price
    return Price(*(round(float(rate or 0) * 1_000_000, 6) for rate in rates))


def _format_key(key: KeySource) -> str:
    if key.kind in _OTHER_KEYS:
        return _OTHER_KEYS[key.kind]
    if key.kind == "command":
        return f"command '{key.name}'"
    return f"{key.name} is set" if key.is_set else f"{key.name} is not set"


def _look_up_capabilities(model: KnownModel) -> Capabilities:
    capabilities = EMPTY if model.definition is None else model.definition.capabilities
    return capabilities_of(model.provider, model.name, capabilities)


def _explain(models: list[ListedModel]) -> Iterator[str]:
    """Yields remarks that do not fit into the table."""
    for each in models:
        if each.model is None:
            yield f"{each.name}: {each.problem}"
            continue
        if each.base_url is not None:
            yield f"{each.name}: at {_without_secrets(each.base_url)}"
        yield from _explain_thinking(each.name, _look_up_capabilities(each.model))
        if each.model.options:
            yield f"{each.name}: {', '.join(f'{name} {value}' for name, value in each.model.options.items())}"


def _explain_thinking(name: str, can: Capabilities) -> Iterator[str]:
    """Says what decides what a call may say: interface, efforts, temperature, tools."""
    facts = [f"asked at OpenAI's {_APIS[can.api]} alone"] if can.api is not None else []
    if can.efforts:
        facts.append(f"takes `reasoning_effort` {', '.join(can.efforts)}")
    if can.sampling in ("never", "unless it thinks"):
        facts.append(f"takes {'no temperature' if can.sampling == 'never' else 'a temperature unless it thinks'}")
    if can.tools is False:
        facts.append("calls no tools")
    if facts:
        yield f"{name}: {'; '.join(facts)}"


_APIS: Final = {"chat": "chat completions", "responses": "Responses API"}


def _without_secrets(address: str) -> str:
    """An address without a user, a password or a query, which may be secrets."""
    scheme, _, rest = address.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


# --- for scripts


def _to_said(can: Capabilities) -> dict[str, Any]:
    """Returns what is known of a model, by the keys with which a project would say it."""
    return {name: getattr(can, name) for name in SaidCapabilities._fields if name != "same_as"}


def _to_data(each: ListedModel) -> dict[str, Any]:
    model, key = each.model, each.key
    if model is None:
        return {"name": each.name, "problem": each.problem}
    price = _price_of(model)
    return {
        "name": each.name,
        "provider": model.provider,
        "model": model.name,
        "because": model.because,
        "served_by": each.served_by,
        "base_url": each.base_url and _without_secrets(each.base_url),
        "window": model.window,
        "longest_answer": model.longest,
        "price": None if price is None else {"input": price.input, "output": price.output, "per_call": price.per_call},
        "structured_output": each.structured_output,
        "images": model.takes_images,
        "capabilities": _to_said(_look_up_capabilities(model)),
        "options": dict(model.options or {}),
        "key": None if key is None else {"from": key.kind, "name": key.name or None, "is_set": key.is_set},
        "place": model.definition.place if model.definition is not None else None,
    }
