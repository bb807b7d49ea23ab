"""FlowEngine: LLM workflows as plain YAML graphs.

The public names are here, grouped, and nothing else; each is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowengine.version import __version__ as __version__

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent as Agent
    from flowengine.agents.evaluation import EvaluationAgent as EvaluationAgent
    from flowengine.agents.routing import RoutingAgent as RoutingAgent
    from flowengine.building import FlowBuilder as FlowBuilder
    from flowengine.context import Context as Context
    from flowengine.context import EvaluationResult as EvaluationResult
    from flowengine.context import LLMResult as LLMResult
    from flowengine.context import NodeResult as NodeResult
    from flowengine.context import RoutingResult as RoutingResult
    from flowengine.contexts.manager import ContextManager as ContextManager
    from flowengine.contexts.result import ToolCallResult as ToolCallResult
    from flowengine.contexts.typed import TypedContext as TypedContext
    from flowengine.engine.merging import StateKey as StateKey
    from flowengine.errors import FlowEngineError as FlowEngineError
    from flowengine.errors import FlowError as FlowError
    from flowengine.errors import RunError as RunError
    from flowengine.flow import Flow as Flow
    from flowengine.ledger import Bounds as Bounds
    from flowengine.llm.detect import get_llm as get_llm
    from flowengine.nodes.agent import AgentNode as AgentNode
    from flowengine.nodes.agent import EvaluationNode as EvaluationNode
    from flowengine.nodes.agent import RoutingNode as RoutingNode
    from flowengine.nodes.approval import ApprovalNode as ApprovalNode
    from flowengine.nodes.condition import ConditionNode as ConditionNode
    from flowengine.nodes.function import FunctionNode as FunctionNode
    from flowengine.nodes.inputs import InputField as InputField
    from flowengine.nodes.limits import FlowLimits as FlowLimits
    from flowengine.nodes.limits import PartLimits as PartLimits
    from flowengine.nodes.loop import LoopNode as LoopNode
    from flowengine.nodes.map import MapNode as MapNode
    from flowengine.nodes.retry import Retry as Retry
    from flowengine.nodes.subflow import SubflowNode as SubflowNode
    from flowengine.providers.compressor import ContextCompressorProvider as ContextCompressorProvider
    from flowengine.providers.conversation import ConversationHistoryProvider as ConversationHistoryProvider
    from flowengine.providers.custom_data import CustomDataProvider as CustomDataProvider
    from flowengine.providers.factory import ContextProviderFactory as ContextProviderFactory
    from flowengine.providers.filter import ContextFilterProvider as ContextFilterProvider
    from flowengine.providers.fixed_file import FixedFileProvider as FixedFileProvider
    from flowengine.providers.long_term_memory import LongTermMemoryProvider as LongTermMemoryProvider
    from flowengine.providers.provider import ContextProvider as ContextProvider
    from flowengine.providers.retrieval import RetrievalProvider as RetrievalProvider
    from flowengine.providers.source_code import SourceCodeProvider as SourceCodeProvider
    from flowengine.runners.run import Run as Run
    from flowengine.runs import Question as Question
    from flowengine.runs import RunRecord as RunRecord
    from flowengine.runs import Runs as Runs
    from flowengine.skills.store import SkillStore as SkillStore
    from flowengine.tools.toolset import ToolSet as ToolSet

_PUBLIC = {
    # Flows and their nodes
    "Flow": "flowengine.flow",
    "FlowBuilder": "flowengine.building",
    "FlowLimits": "flowengine.nodes.limits",
    "PartLimits": "flowengine.nodes.limits",
    "Bounds": "flowengine.ledger",
    "InputField": "flowengine.nodes.inputs",
    "StateKey": "flowengine.engine.merging",
    "FunctionNode": "flowengine.nodes.function",
    "ConditionNode": "flowengine.nodes.condition",
    "AgentNode": "flowengine.nodes.agent",
    "RoutingNode": "flowengine.nodes.agent",
    "EvaluationNode": "flowengine.nodes.agent",
    "LoopNode": "flowengine.nodes.loop",
    "MapNode": "flowengine.nodes.map",
    "SubflowNode": "flowengine.nodes.subflow",
    "ApprovalNode": "flowengine.nodes.approval",
    "Retry": "flowengine.nodes.retry",
    # Agents and models
    "Agent": "flowengine.agents.agent",
    "RoutingAgent": "flowengine.agents.routing",
    "EvaluationAgent": "flowengine.agents.evaluation",
    "get_llm": "flowengine.llm.detect",
    # What enters a prompt
    "ContextProvider": "flowengine.providers.provider",
    "ContextProviderFactory": "flowengine.providers.factory",
    "ConversationHistoryProvider": "flowengine.providers.conversation",
    "FixedFileProvider": "flowengine.providers.fixed_file",
    "SourceCodeProvider": "flowengine.providers.source_code",
    "ContextCompressorProvider": "flowengine.providers.compressor",
    "ContextFilterProvider": "flowengine.providers.filter",
    "LongTermMemoryProvider": "flowengine.providers.long_term_memory",
    "CustomDataProvider": "flowengine.providers.custom_data",
    "RetrievalProvider": "flowengine.providers.retrieval",
    "TypedContext": "flowengine.contexts.typed",
    "ContextManager": "flowengine.contexts.manager",
    "ToolCallResult": "flowengine.contexts.result",
    "ToolSet": "flowengine.tools.toolset",
    "SkillStore": "flowengine.skills.store",
    # What goes in and what comes out
    "Context": "flowengine.context",
    "NodeResult": "flowengine.context",
    "LLMResult": "flowengine.context",
    "RoutingResult": "flowengine.context",
    "EvaluationResult": "flowengine.context",
    "Run": "flowengine.runners.run",
    "Runs": "flowengine.runs",
    "RunRecord": "flowengine.runs",
    "Question": "flowengine.runs",
    # What can go wrong
    "FlowEngineError": "flowengine.errors",
    "FlowError": "flowengine.errors",
    "RunError": "flowengine.errors",
}

__all__ = [
    "Agent",
    "AgentNode",
    "ApprovalNode",
    "Bounds",
    "ConditionNode",
    "Context",
    "ContextCompressorProvider",
    "ContextFilterProvider",
    "ContextManager",
    "ContextProvider",
    "ContextProviderFactory",
    "ConversationHistoryProvider",
    "CustomDataProvider",
    "EvaluationAgent",
    "EvaluationNode",
    "EvaluationResult",
    "FixedFileProvider",
    "Flow",
    "FlowBuilder",
    "FlowEngineError",
    "FlowError",
    "FlowLimits",
    "FunctionNode",
    "InputField",
    "LLMResult",
    "LongTermMemoryProvider",
    "LoopNode",
    "MapNode",
    "NodeResult",
    "PartLimits",
    "Question",
    "RetrievalProvider",
    "Retry",
    "RoutingAgent",
    "RoutingNode",
    "RoutingResult",
    "Run",
    "RunError",
    "RunRecord",
    "Runs",
    "SkillStore",
    "SourceCodeProvider",
    "StateKey",
    "SubflowNode",
    "ToolCallResult",
    "ToolSet",
    "TypedContext",
    "get_llm",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'flowengine' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
