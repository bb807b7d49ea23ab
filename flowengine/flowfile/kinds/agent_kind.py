"""The kind `agent`: a model is asked. The kind of a node that names none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from flowengine.core import TRAITS
from flowengine.flowfile.compile import shared_beginning, template, values
from flowengine.flowfile.schema import (
    AgentRef,
    AgentSettings,
    ListOf,
    Maybe,
    NodeCompiler,
    NodeKind,
    Prompt,
    Template,
    WorkKeys,
    targets_of,
)

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


class AgentNodeSpec(WorkKeys, AgentSettings):
    """A model is asked; the output is its answer. The type of a node that names none."""

    type: Literal["agent"] = "agent"
    """Kind of the node."""
    agent: Maybe[AgentRef] = None
    """An entry of `agents`, or an agent in place; keys of the node go before it."""
    prompt: Maybe[Prompt] = None
    """The user input. Left out: the predecessor's `result`; in a first node the flow's input."""
    attach: ListOf[Template] = ()
    """Files that the model sees with the input: images, PDF, sound as such, text files as text."""


def make(node: AgentNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import AgentNode

    routing = compiler.routing_of(node)
    targets, fallback = ({}, None) if routing is None else targets_of(routing.routes, routing.fallback)
    shared = shared_beginning(node.prompt) if node.prompt is not None and compiler.is_repeated() else ""
    return AgentNode(
        compiler.agent(node),
        prompt=None if node.prompt is None else template(node.prompt),
        shared_prompt=template(shared) if shared else None,
        attach=values(node.attach) if node.attach else None,
        targets=targets,
        fallback=fallback,
        **settings,
    )


KIND: Final = NodeKind(AgentNodeSpec, make, TRAITS["agent"])
