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
    from flowengine.builder import FlowBuilder as FlowBuilder
    from flowengine.context_providers.compressor.compressor import (
        ContextCompressorProvider as ContextCompressorProvider,
    )
    from flowengine.context_providers.conversation import ConversationHistoryProvider as ConversationHistoryProvider
    from flowengine.context_providers.custom_data import CustomDataProvider as CustomDataProvider
    from flowengine.context_providers.factory import ContextProviderFactory as ContextProviderFactory
    from flowengine.context_providers.filter import ContextFilterProvider as ContextFilterProvider
    from flowengine.context_providers.fixed_file import FixedFileProvider as FixedFileProvider
    from flowengine.context_providers.long_term_memory import LongTermMemoryProvider as LongTermMemoryProvider
    from flowengine.context_providers.provider import ContextProvider as ContextProvider
    from flowengine.context_providers.retrieval import RetrievalProvider as RetrievalProvider
    from flowengine.context_providers.source_code.source_code import SourceCodeProvider as SourceCodeProvider
    from flowengine.core.budget import Budget as Budget
    from flowengine.core.context import Context as Context
    from flowengine.core.context import EvaluationResult as EvaluationResult
    from flowengine.core.context import LLMResult as LLMResult
    from flowengine.core.context import NodeResult as NodeResult
    from flowengine.core.context import RoutingResult as RoutingResult
    from flowengine.engine.merging import StateKey as StateKey
    from flowengine.errors import FlowEngineError as FlowEngineError
    from flowengine.errors import FlowError as FlowError
    from flowengine.errors import RunError as RunError
    from flowengine.flow import Flow as Flow
    from flowengine.models.open import get_llm as get_llm
    from flowengine.nodes.agent import AgentNode as AgentNode
    from flowengine.nodes.agent import EvaluationNode as EvaluationNode
    from flowengine.nodes.agent import RoutingNode as RoutingNode
    from flowengine.nodes.approval import ApprovalNode as ApprovalNode
    from flowengine.nodes.compiled_flow import InputField as InputField
    from flowengine.nodes.condition import ConditionNode as ConditionNode
    from flowengine.nodes.function import FunctionNode as FunctionNode
    from flowengine.nodes.loop import LoopNode as LoopNode
    from flowengine.nodes.map import MapNode as MapNode
    from flowengine.nodes.node import NodeLimits as NodeLimits
    from flowengine.nodes.node import RetryPolicy as RetryPolicy
    from flowengine.nodes.node import RunLimits as RunLimits
    from flowengine.nodes.subflow import SubflowNode as SubflowNode
    from flowengine.runners.run import Run as Run
    from flowengine.runs import Question as Question
    from flowengine.runs import RunRecord as RunRecord
    from flowengine.runs import Runs as Runs
    from flowengine.skills.skill_store import SkillStore as SkillStore
    from flowengine.tools.toolset import ToolSet as ToolSet
    from flowengine.typed_contexts.manager import ContextManager as ContextManager
    from flowengine.typed_contexts.typed import ToolCallResult as ToolCallResult
    from flowengine.typed_contexts.typed import TypedContext as TypedContext

_PUBLIC = {
    # Flows and their nodes
    "Flow": "flowengine.flow",
    "FlowBuilder": "flowengine.builder",
    "RunLimits": "flowengine.nodes.node",
    "NodeLimits": "flowengine.nodes.node",
    "Budget": "flowengine.core.budget",
    "InputField": "flowengine.nodes.compiled_flow",
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
    "RetryPolicy": "flowengine.nodes.node",
    # Agents and models
    "Agent": "flowengine.agents.agent",
    "RoutingAgent": "flowengine.agents.routing",
    "EvaluationAgent": "flowengine.agents.evaluation",
    "get_llm": "flowengine.models.open",
    # What enters a prompt
    "ContextProvider": "flowengine.context_providers.provider",
    "ContextProviderFactory": "flowengine.context_providers.factory",
    "ConversationHistoryProvider": "flowengine.context_providers.conversation",
    "FixedFileProvider": "flowengine.context_providers.fixed_file",
    "SourceCodeProvider": "flowengine.context_providers.source_code.source_code",
    "ContextCompressorProvider": "flowengine.context_providers.compressor.compressor",
    "ContextFilterProvider": "flowengine.context_providers.filter",
    "LongTermMemoryProvider": "flowengine.context_providers.long_term_memory",
    "CustomDataProvider": "flowengine.context_providers.custom_data",
    "RetrievalProvider": "flowengine.context_providers.retrieval",
    "TypedContext": "flowengine.typed_contexts.typed",
    "ContextManager": "flowengine.typed_contexts.manager",
    "ToolCallResult": "flowengine.typed_contexts.typed",
    "ToolSet": "flowengine.tools.toolset",
    "SkillStore": "flowengine.skills.skill_store",
    # What goes in and what comes out
    "Context": "flowengine.core.context",
    "NodeResult": "flowengine.core.context",
    "LLMResult": "flowengine.core.context",
    "RoutingResult": "flowengine.core.context",
    "EvaluationResult": "flowengine.core.context",
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
    "Budget",
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
    "FunctionNode",
    "InputField",
    "LLMResult",
    "LongTermMemoryProvider",
    "LoopNode",
    "MapNode",
    "NodeLimits",
    "NodeResult",
    "Question",
    "RetrievalProvider",
    "RetryPolicy",
    "RoutingAgent",
    "RoutingNode",
    "RoutingResult",
    "Run",
    "RunError",
    "RunLimits",
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
