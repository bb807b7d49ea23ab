"""FlowEngine: LLM workflows as plain YAML graphs.

The public names are here, grouped, and nothing else; each is imported at its first use. `flowengine/docs/api.md` lists
them, with the modules that are public beside this one.
"""

from __future__ import annotations

import sys

from flowengine.core.moved_modules import MovedModuleFinder

TYPE_CHECKING = False
"""As that of `typing`, whose import is most of the time in which Ctrl-C at the start of a command is not heard yet."""

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

    from flowengine.agents.agent import Agent
    from flowengine.agents.context.compressor.compressor import ContextCompressorProvider
    from flowengine.agents.context.conversation import ConversationHistoryProvider
    from flowengine.agents.context.custom_data import CustomDataProvider
    from flowengine.agents.context.factory import ContextProviderFactory
    from flowengine.agents.context.filter import ContextFilterProvider
    from flowengine.agents.context.fixed_file import FixedFileProvider
    from flowengine.agents.context.long_term_memory import LongTermMemoryProvider
    from flowengine.agents.context.provider import ContextProvider
    from flowengine.agents.context.retrieval import RetrievalProvider
    from flowengine.agents.context.source_code.source_code import SourceCodeProvider
    from flowengine.agents.evaluation import EvaluationAgent
    from flowengine.agents.routing import RoutingAgent
    from flowengine.agents.skills.skill_store import SkillStore
    from flowengine.agents.standalone import DirectGateway
    from flowengine.agents.tools.function_tool import tool
    from flowengine.agents.tools.mcp.server_settings import McpServer
    from flowengine.agents.tools.tool import Tool, ToolResult
    from flowengine.agents.tools.toolset import ToolSet
    from flowengine.agents.typed_contexts.manager import ContextManager
    from flowengine.agents.typed_contexts.rag import RetrievalContext
    from flowengine.agents.typed_contexts.typed import ToolCallResult, TypedContext
    from flowengine.builder import FlowBuilder
    from flowengine.core.budget import Budget
    from flowengine.core.context import Context, EvaluationResult, Fragment, LLMResult, NodeResult, RoutingResult
    from flowengine.core.file_values import FileValue
    from flowengine.core.records import Gateway
    from flowengine.engine.events import (
        ErrorInfo,
        Event,
        NodeCancelled,
        NodeFailed,
        NodeFinished,
        NodeRecorded,
        NodeSkipped,
        NodeStarted,
        RunFinished,
        RunResumed,
        RunStarted,
        TokenStreamed,
    )
    from flowengine.engine.merging import StateKey
    from flowengine.errors import (
        DefinitionError,
        FlowEngineError,
        FlowError,
        ModelError,
        PermanentModelError,
        RunError,
        TransientModelError,
    )
    from flowengine.flow import Flow
    from flowengine.models.messages import Message, ToolRequest
    from flowengine.models.model import Model, Reply, Request, TokenUsage
    from flowengine.models.open import get_llm
    from flowengine.nodes.agent import AgentNode
    from flowengine.nodes.approval import ApprovalNode
    from flowengine.nodes.condition import ConditionNode
    from flowengine.nodes.evaluation_node import EvaluationNode
    from flowengine.nodes.function import FunctionNode
    from flowengine.nodes.gateway import gateway_of
    from flowengine.nodes.loop import LoopNode
    from flowengine.nodes.map import MapNode
    from flowengine.nodes.node import FlowNode, NodeLimits, NodeSettings, RetryPolicy, RunLimits
    from flowengine.nodes.routing_node import RoutingNode
    from flowengine.nodes.run_inputs import InputField
    from flowengine.nodes.subflow import SubflowNode
    from flowengine.runs import Question, RunRecord, Runs
    from flowengine.runtime.local.row_runs import RowResult
    from flowengine.runtime.run import Run
    from flowengine.version import __version__ as __version__

PUBLIC_GROUPS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "Flows and their nodes": {
        "flowengine.flow": ("Flow",),
        "flowengine.builder": ("FlowBuilder",),
        "flowengine.nodes.node": (
            "FlowNode",
            "NodeSettings",
            "RunLimits",
            "NodeLimits",
            "RetryPolicy",
        ),
        "flowengine.core.budget": ("Budget",),
        "flowengine.nodes.run_inputs": ("InputField",),
        "flowengine.engine.merging": ("StateKey",),
        "flowengine.nodes.function": ("FunctionNode",),
        "flowengine.nodes.condition": ("ConditionNode",),
        "flowengine.nodes.agent": ("AgentNode",),
        "flowengine.nodes.routing_node": ("RoutingNode",),
        "flowengine.nodes.evaluation_node": ("EvaluationNode",),
        "flowengine.nodes.loop": ("LoopNode",),
        "flowengine.nodes.map": ("MapNode",),
        "flowengine.nodes.subflow": ("SubflowNode",),
        "flowengine.nodes.approval": ("ApprovalNode",),
    },
    "Agents": {
        "flowengine.agents.agent": ("Agent",),
        "flowengine.agents.routing": ("RoutingAgent",),
        "flowengine.agents.evaluation": ("EvaluationAgent",),
    },
    "Models": {
        "flowengine.models.open": ("get_llm",),
        "flowengine.models.model": (
            "Model",
            "Request",
            "Reply",
            "TokenUsage",
        ),
        "flowengine.models.messages": (
            "Message",
            "ToolRequest",
        ),
        "flowengine.core.file_values": ("FileValue",),
    },
    "Tools": {
        "flowengine.agents.tools.function_tool": ("tool",),
        "flowengine.agents.tools.tool": (
            "Tool",
            "ToolResult",
        ),
        "flowengine.agents.tools.toolset": ("ToolSet",),
        "flowengine.agents.tools.mcp.server_settings": ("McpServer",),
    },
    "What enters a prompt": {
        "flowengine.core.context": ("Fragment",),
        "flowengine.agents.context.provider": ("ContextProvider",),
        "flowengine.agents.context.factory": ("ContextProviderFactory",),
        "flowengine.agents.context.conversation": ("ConversationHistoryProvider",),
        "flowengine.agents.context.fixed_file": ("FixedFileProvider",),
        "flowengine.agents.context.source_code.source_code": ("SourceCodeProvider",),
        "flowengine.agents.context.compressor.compressor": ("ContextCompressorProvider",),
        "flowengine.agents.context.filter": ("ContextFilterProvider",),
        "flowengine.agents.context.long_term_memory": ("LongTermMemoryProvider",),
        "flowengine.agents.context.custom_data": ("CustomDataProvider",),
        "flowengine.agents.context.retrieval": ("RetrievalProvider",),
        "flowengine.agents.typed_contexts.typed": (
            "TypedContext",
            "ToolCallResult",
        ),
        "flowengine.agents.typed_contexts.manager": ("ContextManager",),
        "flowengine.agents.typed_contexts.rag": ("RetrievalContext",),
        "flowengine.agents.skills.skill_store": ("SkillStore",),
    },
    "What a node sees and what it hands back": {
        "flowengine.core.context": (
            "Context",
            "NodeResult",
            "LLMResult",
            "RoutingResult",
            "EvaluationResult",
        ),
        "flowengine.core.records": ("Gateway",),
        "flowengine.nodes.gateway": ("gateway_of",),
        "flowengine.agents.standalone": ("DirectGateway",),
    },
    "Runs": {
        "flowengine.runtime.local.row_runs": ("RowResult",),
        "flowengine.runtime.run": ("Run",),
        "flowengine.runs": (
            "Runs",
            "RunRecord",
            "Question",
        ),
    },
    "Events of a run": {
        "flowengine.engine.events": (
            "RunStarted",
            "RunResumed",
            "NodeStarted",
            "NodeRecorded",
            "NodeFinished",
            "NodeFailed",
            "NodeSkipped",
            "NodeCancelled",
            "RunFinished",
            "TokenStreamed",
            "ErrorInfo",
            "Event",
        ),
    },
    "What can go wrong": {
        "flowengine.errors": (
            "FlowEngineError",
            "DefinitionError",
            "FlowError",
            "RunError",
            "ModelError",
            "TransientModelError",
            "PermanentModelError",
        ),
    },
}
"""Heading in the list of public names → module → its names."""

_PUBLIC: Final = {
    name: module for modules in PUBLIC_GROUPS.values() for module, names in modules.items() for name in names
} | {"__version__": "flowengine.version"}

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
    "DefinitionError",
    "DirectGateway",
    "ErrorInfo",
    "EvaluationAgent",
    "EvaluationNode",
    "EvaluationResult",
    "Event",
    "FileValue",
    "FixedFileProvider",
    "Flow",
    "FlowBuilder",
    "FlowEngineError",
    "FlowError",
    "FlowNode",
    "Fragment",
    "FunctionNode",
    "Gateway",
    "InputField",
    "LLMResult",
    "LongTermMemoryProvider",
    "LoopNode",
    "MapNode",
    "McpServer",
    "Message",
    "Model",
    "ModelError",
    "NodeCancelled",
    "NodeFailed",
    "NodeFinished",
    "NodeLimits",
    "NodeRecorded",
    "NodeResult",
    "NodeSettings",
    "NodeSkipped",
    "NodeStarted",
    "PermanentModelError",
    "Question",
    "Reply",
    "Request",
    "RetrievalContext",
    "RetrievalProvider",
    "RetryPolicy",
    "RoutingAgent",
    "RoutingNode",
    "RoutingResult",
    "RowResult",
    "Run",
    "RunError",
    "RunFinished",
    "RunLimits",
    "RunRecord",
    "RunResumed",
    "RunStarted",
    "Runs",
    "SkillStore",
    "SourceCodeProvider",
    "StateKey",
    "SubflowNode",
    "TokenStreamed",
    "TokenUsage",
    "Tool",
    "ToolCallResult",
    "ToolRequest",
    "ToolResult",
    "ToolSet",
    "TransientModelError",
    "TypedContext",
    "gateway_of",
    "get_llm",
    "tool",
]


sys.meta_path.insert(0, MovedModuleFinder())


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise _refuse_name(name)
    from importlib import import_module  # As above.

    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def _refuse_name(name: str) -> Exception:
    from flowengine.foreign_names import find_foreign_class  # Only a name that is not there needs it.

    answer = None if name.startswith("_") else find_foreign_class(name, _PUBLIC)
    if answer is None:
        return AttributeError(f"module 'flowengine' has no attribute {name!r}")
    # Of an AttributeError `from flowengine import …` would show nothing.
    return ImportError(f"cannot import name {name!r} from 'flowengine': {answer}", name=name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
