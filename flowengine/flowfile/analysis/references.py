"""Finds what a flow's texts read, the edges that follow (from references, `needs`, routes and failures), and the code
and servers that it names.

Each distinct text is parsed once for a spec, never compiled. Nothing is judged here: an edge whose end
does not exist is left to the checks.

Each level has edges of its own. What a body reads of a level outside makes an edge there, from the node
that is read to the container that the reader is inside.

Source of the rules: rules 1, 2, 10 and 14 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import BaseModel

from flowengine.core import TRAITS
from flowengine.core.templating import ParsedTemplate, Reference, parse_expression, parse_template
from flowengine.engine import ON_ERROR, Edge, Vertex
from flowengine.errors import TemplateSyntaxError
from flowengine.flowfile.analysis.flow_nodes import (
    NodePath,
    agent_path,
    holders_of,
    home_of,
    is_agent,
    is_function,
    is_tool,
    key_path,
    level_of,
    may_call,
    nodes_of,
    routes_of,
    settings_in,
)
from flowengine.flowfile.compile import KNOWN_EVERYWHERE
from flowengine.flowfile.schema import (
    AgentSettings,
    BodyKeys,
    FlowSpec,
    McpServerSpec,
    ModelSettings,
    NodeSpec,
    TextKind,
    is_code,
    text_fields,
)
from flowengine.flowfile.yaml import KeyPath

# --- the texts

Scope: TypeAlias = Literal["node", "set", "end", "enough", "outputs"]
"""`node`: before the node runs; `set`: after it; `end`: after the body of a map or a loop; `enough`: the same, for
`until` of a map; `outputs`: after all."""


class Text(NamedTuple):
    """One text of the file."""

    path: KeyPath
    text: str
    kind: TextKind
    node: NodePath | None
    """The node that it belongs to; None for shared agents, defaults and outputs."""
    scope: Scope


def texts_of(spec: FlowSpec) -> Iterator[Text]:
    """Every text of the file, level by level."""
    for node_path, node in nodes_of(spec):
        at = key_path(node_path)
        for path, text, kind in _texts(node, at):
            yield Text(path, text, kind, node_path, _scope(node, str(path[len(at)])))
    for name, agent in spec.agents.items():
        for path, text, kind in _texts(agent, ("agents", name)):
            yield Text(path, text, kind, None, "node")
    if isinstance(spec.defaults.agent, BaseModel):
        for path, text, kind in _texts(spec.defaults.agent, ("defaults", "agent")):
            yield Text(path, text, kind, None, "node")
    for name, value in spec.outputs.items():
        for path, text in strings_in(value, ("outputs", name)):
            yield Text(path, text, "template", None, "outputs")


def _scope(node: BaseModel, key: str) -> Scope:
    if key == "set":
        return "set"
    if not isinstance(node, BodyKeys) or key not in node.after_body:
        return "node"
    return "enough" if key == "until" and "each" in node.names_inside() else "end"


def _texts(model: BaseModel, path: KeyPath) -> Iterator[tuple[KeyPath, str, TextKind]]:
    """The texts of a model and of the models in it, in the order of its fields; a body's nodes are left out."""
    kinds = text_fields(type(model))
    set_names = model.model_fields_set
    for name, key, kind in kinds:
        if name in set_names and not (name == "nodes" and isinstance(model, BodyKeys)):
            value = getattr(model, name)
            if kind is None:
                for inner, at in _models(value, (*path, key)):
                    yield from _texts(inner, at)
            else:
                for at, text in strings_in(value, (*path, key)):
                    yield at, text, "template" if kind == "values" else kind


def _models(value: Any, path: KeyPath) -> Iterator[tuple[BaseModel, KeyPath]]:
    if isinstance(value, BaseModel):
        yield value, path
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _models(each, (*path, key))
    elif isinstance(value, tuple):
        for number, each in enumerate(cast("tuple[Any, ...]", value)):
            yield from _models(each, (*path, number))


def strings_in(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every text in a value of a file, however deep, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from strings_in(each, (*path, key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(cast("list[Any]", value)):
            yield from strings_in(each, (*path, number))


# --- what is read

_MOST_SHARED: Final = 20_000
"""References in the texts of shared agents, counted once a node that names the agent."""


class Use(NamedTuple):
    """A name that a text reads."""

    text: Text
    reference: Reference


class Reads:
    """The names that all texts of a spec read, and the texts that do not parse."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.errors: list[tuple[Text, TemplateSyntaxError]] = []
        self.open_choices: list[tuple[Text, int, int]] = []
        """Line and column of each printed `x if y` without `else`."""
        self.of_node: dict[NodePath, list[Use]] = {}
        """Node → what it reads before it runs and in `set`, its agent's templates included."""
        self.at_end: dict[NodePath, list[Use]] = {(): []}
        """Level → what is read once its nodes are settled: `outputs`, and what a container says of its body."""
        self.too_much: NodePath | None = None
        """The node with which all nodes together read too much through shared agents; the rest was left aside."""
        self.of_nobody: list[Use] = []
        """The reads of agents that no node names."""
        self.reaching: dict[NodePath, list[Use]] = {}
        """Node → the uses that name a node of its own level, those of its body included."""


class Cause(NamedTuple):
    """An edge, and the place in the file that makes it."""

    edge: Edge
    path: KeyPath
    use: Use | None = None


def reads_of(spec: FlowSpec) -> Reads:
    """Collects the names that the texts of a spec read; computed once."""
    return spec.remember("reads", _reads)


def _reads(spec: FlowSpec) -> Reads:
    reads, shared = Reads(), dict[KeyPath, list[Use]]()
    reads.of_node = {path: [] for path, _ in nodes_of(spec)}
    for text, uses in _parse_all(spec, reads):
        if text.scope == "outputs":
            reads.at_end[()].extend(uses)
        elif text.node is None:
            shared.setdefault(text.path[:2], []).extend(uses)
        elif text.scope in ("end", "enough"):
            reads.at_end.setdefault(text.node, []).extend(uses)
        else:
            reads.of_node[text.node].extend(uses)
    _hand_out(spec, shared, reads)
    _follow(spec, reads)
    return reads


def _parse_all(spec: FlowSpec, reads: Reads) -> Iterator[tuple[Text, list[Use]]]:
    outcomes: dict[tuple[str, TextKind], ParsedTemplate | TemplateSyntaxError] = {}
    for text in texts_of(spec):
        if text.kind == "plain":
            continue
        outcome = outcomes.get((text.text, text.kind))
        if outcome is None:
            outcome = outcomes[text.text, text.kind] = _parse_text(text)
        if isinstance(outcome, TemplateSyntaxError):
            reads.errors.append((text, outcome))
            continue
        uses = [Use(text, reference) for reference in outcome.references]
        reads.open_choices.extend((text, *place) for place in outcome.open_choices)
        reads.uses.extend(uses)
        yield text, uses


def _parse_text(text: Text) -> ParsedTemplate | TemplateSyntaxError:
    try:
        return (parse_expression if text.kind == "expression" else parse_template)(text.text)
    except TemplateSyntaxError as error:
        return error


def _hand_out(spec: FlowSpec, shared: dict[KeyPath, list[Use]], reads: Reads) -> None:
    """Assigns the reads of shared agents to each node that uses them and does not override the key."""
    handed: set[int] = set()
    total = 0
    for path, node in nodes_of(spec) if shared else ():
        if is_agent(node):
            of_agent = shared.get(agent_path(spec, key_path(path), node) or (), [])
            total += len(of_agent)
            if total > _MOST_SHARED:
                reads.too_much = path
                break
            uses = [use for use in of_agent if use.text.path[2] not in node.model_fields_set]
            reads.of_node[path].extend(uses)
            handed.update(map(id, uses))
    reads.of_nobody = [use for uses in shared.values() for use in uses if id(use) not in handed]


def _follow(spec: FlowSpec, reads: Reads) -> None:
    """Notes for each node that is named the reader on that node's level."""
    for path, uses in reads.of_node.items():
        for use in uses:
            name = _name_of_use(use)
            if name is not None:
                home = home_of(spec, path[:-1], name)
                reader = path if home is None else path[: len(home) + 1]
                reads.reaching.setdefault(reader, []).append(use)
    for path, uses in reads.at_end.items():
        for use in uses:
            name = _name_of_use(use)
            home = None if name is None else home_of(spec, path, name)
            if home is not None and len(home) < len(path):
                reads.reaching.setdefault(path[: len(home) + 1], []).append(use)


def _name_of_use(use: Use) -> str | None:
    path = use.reference.path
    return path[1] if path[0] == "nodes" and len(path) > 1 else None


# --- which names texts know


_OF_SCOPE: Final[dict[Scope, tuple[str, ...]]] = {
    "node": ("result",),
    "set": ("result", "output"),
    "end": (),
    "enough": ("results",),
    "outputs": (),
}


def visible(spec: FlowSpec, level: NodePath, scope: Scope) -> tuple[str, ...]:
    """The names that a text knows which is evaluated inside a level."""
    holders = (each.holder for each in holders_of(spec, level))
    inside = [name for holder in holders if holder is not None for name in holder.names_inside()]
    return tuple(dict.fromkeys((*KNOWN_EVERYWHERE, *_OF_SCOPE[scope], *inside)))


# --- where it leads ----------------------------------------------------------------------------------


def causes_of(spec: FlowSpec, level: NodePath = ()) -> list[Cause]:
    """Every edge of a level with the place that makes it; also edges whose ends do not exist."""
    return spec.remember(
        f"causes of {'.'.join(level)}",
        lambda each: [cause for name in level_of(each, level) for cause in _causes(each, level, name)],
    )


def _causes(spec: FlowSpec, level: NodePath, name: str) -> Iterator[Cause]:
    node, path = level_of(spec, level)[name], (*level, name)
    at = key_path(path)
    for number, source in enumerate(node.needs):
        yield Cause(Edge(source, name), (*at, "needs", number))
    for use in reads_of(spec).reaching.get(path, ()):
        yield Cause(Edge(use.reference.path[1], name), use.text.path, use)
    for label, target, leads_at in routes_of(spec, name, level):
        if target is not None:
            yield Cause(Edge(name, target, label), leads_at)
    if node.on_error.then is not None:
        yield Cause(Edge(name, node.on_error.then, ON_ERROR), (*at, "on_error", "then"))


def edges_of(spec: FlowSpec, level: NodePath = ()) -> list[Edge]:
    """The edges among the nodes of a level, each once: the order is that of the file."""
    nodes = level_of(spec, level)
    edges = dict.fromkeys(cause.edge for cause in causes_of(spec, level))
    return [edge for edge in edges if edge.source in nodes and edge.target in nodes]


def vertices_of(spec: FlowSpec, level: NodePath = ()) -> list[Vertex]:
    """The vertices of a level, in the order of the file."""
    return [_vertex(name, node) for name, node in level_of(spec, level).items()]


def _vertex(name: str, node: NodeSpec) -> Vertex:
    return Vertex(name, node.type, node.join, node.on_error.action, TRAITS[node.type].transparent)


def last_of(spec: FlowSpec, level: NodePath) -> list[str]:
    """The nodes of a level that lead nowhere."""
    leading = {edge.source for edge in edges_of(spec, level)}
    return [name for name in level_of(spec, level) if name not in leading]


# --- the code and the servers that a flow names


class CodeUse(NamedTuple):
    """A reference to code."""

    path: KeyPath
    target: str
    holder: KeyPath
    """The node or the agent that it stands in."""
    key: Literal["call", "decide", "tool", "output", "tools", "contexts", "guardrails"]
    """The key that it stands at; `decide`: `call` of a node that chooses or judges."""


def code_of(spec: FlowSpec) -> Iterator[CodeUse]:
    """Every reference to code in the file."""
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        if may_call(node) and node.call is not None:
            yield CodeUse((*path, "call"), node.call, path, "call" if is_function(node) else "decide")
        if is_tool(node) and is_code(node.tool):
            yield CodeUse((*path, "tool"), node.tool, path, "tool")
    for path, settings in settings_in(spec):
        if isinstance(settings, AgentSettings):
            yield from _of_agent(settings, path)


def _of_agent(agent: AgentSettings, path: KeyPath) -> Iterator[CodeUse]:
    if isinstance(agent.output, str):
        yield CodeUse((*path, "output"), agent.output, path, "output")
    for number, target in enumerate(agent.tools or ()):
        yield CodeUse((*path, "tools", number), target, path, "tools")
    for number, target in enumerate(agent.contexts or ()):
        yield CodeUse((*path, "contexts", number), target, path, "contexts")
    if agent.guardrails is not None:
        for side in ("input", "output"):
            for number, target in enumerate(cast("tuple[str, ...]", getattr(agent.guardrails, side))):
                yield CodeUse((*path, "guardrails", side, number), target, path, "guardrails")


def servers_of(spec: FlowSpec) -> Iterator[tuple[KeyPath, McpServerSpec]]:
    """Every server in the file, with the place of its command or URL."""
    holders: list[tuple[KeyPath, FlowSpec | ModelSettings]] = [((), spec), *settings_in(spec)]
    for path, holder in holders:
        if isinstance(holder, FlowSpec | AgentSettings):
            for number, server in enumerate(holder.mcp_servers or ()):
                yield (*path, "mcp_servers", number, "command" if server.url is None else "url"), server
