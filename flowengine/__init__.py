"""FlowEngine: LLM workflows as plain YAML graphs.

The public names are here, grouped, and nothing else; each is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowengine.version import __version__ as __version__

if TYPE_CHECKING:
    from flowengine.context import Context as Context
    from flowengine.context import EvaluationResult as EvaluationResult
    from flowengine.context import LLMResult as LLMResult
    from flowengine.context import NodeResult as NodeResult
    from flowengine.context import RoutingResult as RoutingResult
    from flowengine.flow import Flow as Flow
    from flowengine.nodes.condition import ConditionNode as ConditionNode
    from flowengine.nodes.function import FunctionNode as FunctionNode

_PUBLIC = {
    # Flows and their nodes
    "Flow": "flowengine.flow",
    "FunctionNode": "flowengine.nodes.function",
    "ConditionNode": "flowengine.nodes.condition",
    # What goes in and what comes out
    "Context": "flowengine.context",
    "NodeResult": "flowengine.context",
    "LLMResult": "flowengine.context",
    "RoutingResult": "flowengine.context",
    "EvaluationResult": "flowengine.context",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'flowengine' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
