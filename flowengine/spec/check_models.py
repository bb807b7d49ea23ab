"""Which vendors the models of a file go to, and which of their names nobody is known to have.

What is right here may be wrong elsewhere: it depends on the environment and the project, which the caller hands in.
Nothing is asked and no key is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flowengine.errors import Diagnostic, ModelConfigError
from flowengine.spec.levels import key_path, node_at, nodes_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentSettings, ModelSettings
from flowengine.spec.shapes import is_map

if TYPE_CHECKING:
    from flowengine.llm.facts import Facts, KnownModel

__all__ = ["NamedModel", "check_models", "models_of", "vendors_of"]


class NamedModel(NamedTuple):
    """A model that a file names."""

    model: str
    """As it is written."""
    path: KeyPath

    @property
    def node(self) -> str | None:
        """The node that asks it; None where it is named for several."""
        return ".".join(node_at(self.path)) or None


def check_models(spec: FlowSpec, facts: Facts) -> list[Diagnostic]:
    """Every name that goes to no vendor, also in the flows that run as nodes."""
    report = Report(spec)
    for each in models_of(spec):
        try:
            facts.of(each.model)
        except ModelConfigError as error:
            report.at_value("FE511", str(error), each.path)
    inner = (problem for each in spec.subflows.values() for problem in check_models(each, facts))
    return list(dict.fromkeys([*report.found, *inner]))


def vendors_of(spec: FlowSpec, facts: Facts) -> dict[str, KnownModel]:
    """Model as it is written → what is known of it, for those that go to a vendor; subflows' models included."""
    found: dict[str, KnownModel] = {}
    for each in models_of(spec):
        try:
            found[each.model] = facts.of(each.model)
        except ModelConfigError:
            continue
    for each in spec.subflows.values():
        found |= vendors_of(each, facts)
    return found


def models_of(spec: FlowSpec) -> Iterator[NamedModel]:
    """Every model that the file names, with its place."""
    holders: list[tuple[KeyPath, object]] = [(("defaults", "agent"), spec.defaults.agent)]
    holders += [(("agents", name), agent) for name, agent in spec.agents.items()]
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        holders += [(path, node), ((*path, "agent"), getattr(node, "agent", None))]
    for path, holder in holders:
        if isinstance(holder, ModelSettings):
            yield from _of_settings(holder, path)


_JUDGES: Final = ("improve", "evaluate")
_IN_PROVIDERS: Final = ("model", "embedding")


def _of_settings(settings: ModelSettings, path: KeyPath) -> Iterator[NamedModel]:
    if settings.model is not None:
        yield NamedModel(settings.model, (*path, "model"))
    for number, each in enumerate(settings.fallbacks or ()):
        yield NamedModel(each, (*path, "fallbacks", number))
    if not isinstance(settings, AgentSettings):
        return
    for key in _JUDGES:
        judge = getattr(settings, key)
        if judge is not None and judge.model is not None:
            yield NamedModel(judge.model, (*path, key, "model"))
    for number, entry in enumerate(settings.context or ()):
        yield from _of_provider(entry, (*path, "context", number))


def _of_provider(entry: Any, path: KeyPath) -> Iterator[NamedModel]:
    """`{type: compressor, model: …}` and `{compressor: {model: …}}`."""
    if not is_map(entry):
        return
    inner = {} if "type" in entry else {(*path, name): each for name, each in entry.items() if is_map(each)}
    for place, settings in ({path: entry} if "type" in entry else inner).items():
        for key in _IN_PROVIDERS:
            if isinstance(settings.get(key), str):
                yield NamedModel(settings[key], (*place, key))
