"""Makes flows, and the bodies of nodes that run others, ready to run: graph, wrapped nodes, merge rules, outputs.

Flows from YAML and flows built in Python end here, in the same compiled form. It is made once, and shared by runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, Self, Unpack

import anyio
import anyio.to_thread

from flowengine.core import Context, FileRules, freeze, frozen_dict
from flowengine.engine import (
    ENGINE_KEYS,
    Event,
    FinalContext,
    Graph,
    KeyRules,
    LevelBody,
    Node,
    StateKey,
    Walk,
    state_rules,
)
from flowengine.errors import (
    DefinitionError,
    Diagnostic,
    FlowError,
    ModelConfigError,
    RunError,
    refuse_other_kind,
)
from flowengine.nodes.node import FlowNode, NodeSettings, RunLimits
from flowengine.nodes.policy import wrap_node
from flowengine.nodes.run_inputs import InputField

if TYPE_CHECKING:
    from flowengine.models import DefaultModel
    from flowengine.nodes.code_reading import CodeReading

CODE_SCHEME: Final = f"code-1.{sys.version_info.major}.{sys.version_info.minor}-"
"""How digests of code begin. Those of another FlowEngine or Python say nothing about these."""

_MOST_NAMED: Final = 5
"""Nodes that a message names."""
_INDEX: Final = re.compile(r"(\.round)?\[\d+\]")
_IN_PATHS: Final = re.compile(r"[.\[\]\x00-\x1f\x7f]")
"""What separates a node from the place of it in the paths of a run."""

# --- Levels: the nodes of a flow, or those inside one of its nodes


def compile_level(nodes: Mapping[str, FlowNode]) -> LevelBody:
    """The graph of some nodes, and the nodes with their policies; `FlowError` for ids that cannot stand in paths, for
    unknown targets and for cycles."""
    for name, node in nodes.items():
        _check_id(name)
        form = f"node '{name}' is a node, as FunctionNode(function) or AgentNode(agent)"
        refuse_other_kind(node, FlowNode, form, DefinitionError)
    graph = Graph(
        (node.vertex(name) for name, node in nodes.items()),
        (edge for name, node in nodes.items() for edge in node.edges(name)),
    )
    runnable = {name: wrap_node(node) if node.has_policies else node for name, node in nodes.items()}
    return LevelBody(graph, [runnable[name] for name in graph.ids])


def _check_id(name: object) -> None:
    """Refuse an id that could be read as the path of another node."""
    if not isinstance(name, str) or not name or _IN_PATHS.search(name):
        text = f"{name!r:.60} is not a valid id of a node: text without '.', '[', ']' and control characters"
        raise FlowError([Diagnostic("FE206", text)])


def file_path(path: str) -> str:
    """A node's path as the file has it.

    >>> file_path("polish.round[2].judge"), file_path("investigate[3].search")
    ('polish.judge', 'investigate.search')
    """
    return _INDEX.sub("", path)


def skeleton_of(graph: Graph, nodes: Mapping[str, FlowNode], most: int | None = None) -> Mapping[str, Any]:
    """Nodes with kinds and edges with labels, level by level, so that a run can be drawn without its flow.

    `most`: how often the level runs at the most, where that is known.
    """
    labels: dict[tuple[str, str], list[str]] = {}
    for source, target, route in graph.edges:
        routes = labels.setdefault((source, target), [])
        if route is not None:
            routes.append(route)
    rows: list[list[Any]] = []
    for vertex in graph.vertices:
        node = nodes[vertex.id]
        body = [skeleton_of(node.body.graph, node.inside, node.most)] if isinstance(node, ContainerNode) else []
        rows.append([vertex.id, vertex.kind, *body])
    edges = [[source, target, routes] for (source, target), routes in labels.items()]
    models = {name: node.model_name for name, node in nodes.items() if node.model_name}
    extras = {**({"models": models} if models else {}), **({} if most is None else {"most": most})}
    return freeze({"nodes": rows, "edges": edges, **extras})


class ContainerNode(FlowNode):
    """A node that runs other nodes. It holds no slot of the run's concurrency, and is not retried: its nodes are."""

    container: ClassVar[bool] = True
    starts_tasks: ClassVar[bool] = False

    def __init__(self, nodes: Mapping[str, FlowNode], **settings: Unpack[NodeSettings]) -> None:
        super().__init__(**settings)
        if self.retry is not None:
            raise DefinitionError(f"a {self.kind} takes no `retry`: put it on the nodes inside")
        refuse_other_kind(
            nodes, Mapping, f"the nodes of a {self.kind} are a mapping, as {{'draft': node}}", DefinitionError
        )
        if not nodes:
            raise DefinitionError(f"a {self.kind} needs at least one node inside")
        self.definitions = dict(nodes)
        self.body = compile_level(self.definitions)

    def with_nodes(self, nodes: Mapping[str, FlowNode]) -> Self:
        """The same container round other nodes."""
        changed = copy(self)
        changed.definitions = dict(nodes)
        changed.body = compile_level(changed.definitions)
        return changed

    @property
    def inside(self) -> Mapping[str, FlowNode]:
        return self.definitions

    @property
    def most(self) -> int | None:
        """The maximum number of runs of the body, if known in advance."""
        return None


def are_others(then: str | None, now: str | None) -> bool:
    """Tells whether two digests are of different things. Those that were made in different ways do not tell."""
    schemes = {None if each is None else each.rpartition("-")[0] for each in (then, now)}
    return then != now and len(schemes) == 1


# --- A whole flow


class QuestionDelivery(NamedTuple):
    """Somebody who is to be told of a question."""

    node: str
    """The node that asks."""
    key: Hashable
    """Equal for the same question, channel and person."""
    send: Callable[[], Awaitable[Any]]
    """Tells them; gives the record of what became of it, and raises nothing."""


class Notifier(Protocol):
    """Tells people of the questions that nodes park with."""

    def due(self, events: Sequence[Event], /) -> Sequence[QuestionDelivery]:
        """Returns the open questions that still need a notification, according to the run's journal."""
        ...

    def find_unset(self, *, all_channels: bool) -> Sequence[str]:
        """Returns the unset variables without which nobody is told: those of all channels, or of the channels that
        every question goes to."""
        ...


@dataclass(frozen=True)
class CompiledFlow:
    """Everything a runner needs. `nodes` are in the graph's topological order."""

    name: str
    graph: Graph
    definitions: Mapping[str, FlowNode]
    nodes: Sequence[Node]
    inputs: Mapping[str, InputField] | None = None
    state: Mapping[str, StateKey] = field(default_factory=dict[str, StateKey])
    outputs: Mapping[str, Callable[[Context], Any]] | None = None
    """Output name → value; None: the outputs of the last nodes, by name."""
    limits: RunLimits = field(default_factory=RunLimits)
    description: str = ""
    allow_env: Sequence[str] = ()
    """Environment values that templates may read; they are kept in the journal."""
    files: FileRules = field(default_factory=FileRules)
    """What files its runs may take in."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where they are read from."""
    path: str | None = None
    source: str | None = None
    place_of: Callable[[str], tuple[int, int]] | None = field(default=None, repr=False)
    """Node → line and column in the file; None where there is no file."""
    model_problems: Callable[[], Sequence[Diagnostic]] | None = field(default=None, repr=False)
    """What is wrong with the models that the file names, as `flowengine validate` says it; None where there is none."""
    pack: Callable[[], Mapping[str, Any]] = field(default=dict[str, Any], repr=False)
    """Packs what another machine needs beside the source to build the plan (`flowengine.flowfile.run_bundle`)."""
    interruptible: bool = True
    """Whether a `KeyboardInterrupt` out of a node's code interrupts the run; else the node fails."""
    notifier: Notifier | None = field(default=None, repr=False)
    """Tells people of the flow's questions; None where no one is to be told."""
    prepares_slowly: bool = False
    """Whether preparing may wait for a command that gives a key."""

    @cached_property
    def all_nodes(self) -> Mapping[str, FlowNode]:
        """The nodes by their paths as the file has them (`polish.judge`), those inside others too."""
        return dict(_every_node(self.definitions, ""))

    @cached_property
    def baggage(self) -> Mapping[str, Any]:
        """What `pack` gives; packed at the first use."""
        return self.pack()

    @cached_property
    def fingerprints(self) -> Mapping[str, str]:
        """Node → hash of its definition; worked out at the first use."""
        return {path: self._fingerprint(path, node) for path, node in self.all_nodes.items()}

    def _fingerprint(self, path: str, node: FlowNode) -> str:
        if node.says_its_definition:
            return _hash(node.fingerprint_source)
        read = self._code_texts[path]
        return f"{CODE_SCHEME}{_hash([*node.fingerprint_source, read and read.text])}"

    @cached_property
    def _code_texts(self) -> Mapping[str, CodeReading | None]:
        return {path: node.read_code() for path, node in self.all_nodes.items()}

    @property
    def default_models(self) -> Mapping[str, DefaultModel]:
        """Node that names no model → the one that the environment gives it now."""
        models = {path: node.default_model for path, node in self.all_nodes.items()}
        return {path: each for path, each in models.items() if each is not None}

    @property
    def stand_in_notice(self) -> str | None:
        """Says which nodes the stand-in answers although nobody chose it; None where there are none."""
        notices = {path: each.notice for path, each in self.default_models.items() if each.notice is not None}
        if not notices:
            return None
        more = f" and {len(notices) - _MOST_NAMED} more" if len(notices) > _MOST_NAMED else ""
        names = ", ".join(f"'{path}'" for path in list(notices)[:_MOST_NAMED])
        return f"{names}{more} of flow '{self.name}': {next(iter(notices.values()))}"

    @property
    def untold_notice(self) -> str | None:
        """Names the unset variables without which nobody hears of the flow's questions; None where all are set, or it
        asks nothing."""
        nodes = self.all_nodes.values()
        names_own = any(each.tells_people for each in nodes)
        if self.notifier is None or not (names_own or any(each.asks_by_default for each in nodes)):
            return None
        unset = self.notifier.find_unset(all_channels=names_own)
        if not unset:
            return None
        are = "is" if len(unset) == 1 else "are"
        return f"who is to be told of questions of flow '{self.name}' will not be: {', '.join(unset)} {are} not set"

    def refuse_stand_in(self) -> None:
        """Refuse to let the stand-in answer people who take it for a model, unless it is named."""
        if (notice := self.stand_in_notice) is not None:
            raise ModelConfigError(f"{notice}; with FLOWENGINE_DEFAULT_MODEL=offline the stand-in is meant")

    @cached_property
    def server_checks(self) -> Sequence[tuple[str, FlowNode]]:
        """Nodes of which something is known only once their servers run, with their paths."""
        return [(path, node) for path, node in self.all_nodes.items() if node.checks_servers]

    @cached_property
    def takes_files(self) -> bool:
        """Whether an input is a file, or may hold one."""
        return self.inputs is None or any(each.type == "file" for each in self.inputs.values())

    @cached_property
    def starts_tasks(self) -> bool:
        """Whether tasks may begin in a run of it that live as long as the run."""
        return any(node.starts_tasks for node in self.all_nodes.values())

    @cached_property
    def code(self) -> Mapping[str, str]:
        """Node → hash of the functions that it calls, where its definition does not have them."""
        return {
            path: f"{CODE_SCHEME}{_hash(read.text)}"
            for path, read in self._code_texts.items()
            if read is not None and self.all_nodes[path].says_its_definition
        }

    @cached_property
    def gaps(self) -> Mapping[str, Sequence[str]]:
        """Node → what cannot be read of its code, and is not declared by a `version`: its results are not known to
        hold another time."""
        return {
            path: read.gaps
            for path, read in self._code_texts.items()
            if read is not None and read.gaps and not self.all_nodes[path].version
        }

    @cached_property
    def skeleton(self) -> Mapping[str, Any]:
        """Nodes with kinds, edges with labels, and the merge rules, so that a run can be drawn without its flow.

        Frozen, so that a journal may keep the text of it from one run to the next.
        """
        shape = skeleton_of(self.graph, self.definitions)
        return freeze({**shape, "state": state_rules(self.state)}) if self.state else shape

    @cached_property
    def rules(self) -> KeyRules:
        """Of the shared state, as each run's store keeps them."""
        return KeyRules(self.state, {name for node in self.all_nodes.values() for name in node.adds_up})

    @cached_property
    def caches(self) -> bool:
        """Whether a node is to be cached."""
        return any(node.cache for node in self.all_nodes.values())

    def prepare(self) -> None:
        """Let every node say now what would fail later (a missing key), before anything is paid."""
        for name, node in self._preparing:
            try:
                node.prepare()
            except DefinitionError as error:
                problems = self.model_problems() if self.model_problems and isinstance(error, ModelConfigError) else ()
                message = "\n".join(map(str, problems)) or f"{self._where(name)}{error}"
                error.args = (message, *error.args[1:])
                raise

    def check_options(self) -> None:
        """Refuse an option that a call would be made without, before a run begins; one that began has done so."""
        if self._refused:
            raise ModelConfigError("\n".join(map(str, self._refused)))

    @cached_property
    def _refused(self) -> Sequence[Diagnostic]:
        problems = self.model_problems() if self.model_problems is not None else ()
        return [each for each in problems if each.code == "FE513"]

    async def ready(self) -> None:
        """`prepare`, without keeping the event loop from all else where that may wait."""
        if self.prepares_slowly:
            await anyio.to_thread.run_sync(self.prepare)
        else:
            self.prepare()

    @cached_property
    def _preparing(self) -> Sequence[tuple[str, FlowNode]]:
        return [each for each in self.all_nodes.items() if type(each[1]).prepare is not FlowNode.prepare]

    def _where(self, name: str) -> str:
        """The place of a node, as messages begin with it."""
        place = () if self.place_of is None else self.place_of(name)
        location = "".join(f"{part}:" for part in (self.path, *place) if part is not None)
        return f"{location}{' ' if location else ''}node '{name}': "


def assemble(name: str, nodes: Mapping[str, FlowNode], **parts: Any) -> CompiledFlow:
    """The plan of a flow; `parts` are the other fields of `CompiledFlow`.

    Raises `FlowError` for no nodes, unknown targets and cycles.
    """
    if not nodes:
        raise FlowError([Diagnostic("FE208", f"flow '{name}' has no nodes")])
    body = compile_level(nodes)
    reserved = [key for key in parts.get("state", ()) if key in ENGINE_KEYS or key.startswith("=")]
    if reserved:
        raise FlowError([Diagnostic("FE402", f"shared state key '{reserved[0]}' belongs to the engine")])
    return CompiledFlow(name, body.graph, dict(nodes), body.nodes, **parts)


def outputs_of(plan: CompiledFlow, walk: Walk) -> Mapping[str, Any]:
    """Renders a flow's outputs after its nodes are settled; raises template errors."""
    if plan.outputs is None:
        done = {plan.graph.ids[leaf]: walk.result_of(leaf) for leaf in plan.graph.leaves}
        return freeze({name: result.output for name, result in done.items() if result is not None})
    context = FinalContext(walk)
    return frozen_dict({name: _freeze_output(name, value(context)) for name, value in plan.outputs.items()})


def partial_outputs_of(plan: CompiledFlow, walk: Walk) -> Mapping[str, Any]:
    """Those outputs that can be worked out from what there is: one that fails, as it does of a node that did not run,
    takes no other with it."""
    if plan.outputs is None:
        return outputs_of(plan, walk)
    context, outputs = FinalContext(walk), dict[str, Any]()
    for name, value in plan.outputs.items():
        with suppress(Exception):  # Templates raise ours, functions of a flow built in Python any.
            outputs[name] = _freeze_output(name, value(context))
    return frozen_dict(outputs)


def _freeze_output(name: str, value: Any) -> Any:
    try:
        return freeze(value)
    except RecursionError:
        raise RunError(f"output '{name}' contains itself, or is nested too deep") from None


def _every_node(nodes: Mapping[str, FlowNode], prefix: str) -> Iterator[tuple[str, FlowNode]]:
    for name, node in nodes.items():
        yield f"{prefix}{name}", node
        yield from _every_node(node.inside, f"{prefix}{name}.")


def _hash(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=repr, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
