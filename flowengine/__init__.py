"""FlowEngine: LLM workflows as plain YAML graphs.

The public names are here, grouped, and nothing else; each is imported at its first use. `flowengine/docs/api.md` lists
them, with the modules that are public beside this one.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""As that of `typing`, whose import is most of the time in which Ctrl-C at the start of a command is not heard yet."""

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

    from flowengine.agents.agent import Agent
    from flowengine.agents.evaluation import EvaluationAgent
    from flowengine.agents.routing import RoutingAgent
    from flowengine.agents.standalone import DirectGateway
    from flowengine.builder import FlowBuilder
    from flowengine.context_providers.compressor.compressor import ContextCompressorProvider
    from flowengine.context_providers.conversation import ConversationHistoryProvider
    from flowengine.context_providers.custom_data import CustomDataProvider
    from flowengine.context_providers.factory import ContextProviderFactory
    from flowengine.context_providers.filter import ContextFilterProvider
    from flowengine.context_providers.fixed_file import FixedFileProvider
    from flowengine.context_providers.long_term_memory import LongTermMemoryProvider
    from flowengine.context_providers.provider import ContextProvider
    from flowengine.context_providers.retrieval import RetrievalProvider
    from flowengine.context_providers.source_code.source_code import SourceCodeProvider
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
    from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode
    from flowengine.nodes.approval import ApprovalNode
    from flowengine.nodes.condition import ConditionNode
    from flowengine.nodes.function import FunctionNode
    from flowengine.nodes.gateway import gateway_of
    from flowengine.nodes.loop import LoopNode
    from flowengine.nodes.map import MapNode
    from flowengine.nodes.node import FlowNode, NodeLimits, NodeSettings, RetryPolicy, RunLimits
    from flowengine.nodes.run_inputs import InputField
    from flowengine.nodes.subflow import SubflowNode
    from flowengine.runners.row_runs import RowResult
    from flowengine.runners.run import Run
    from flowengine.runs import Question, RunRecord, Runs
    from flowengine.skills.skill_store import SkillStore
    from flowengine.tools.function_tool import tool
    from flowengine.tools.mcp.server_settings import McpServer
    from flowengine.tools.tool import Tool, ToolResult
    from flowengine.tools.toolset import ToolSet
    from flowengine.typed_contexts.manager import ContextManager
    from flowengine.typed_contexts.rag import RetrievalContext
    from flowengine.typed_contexts.typed import ToolCallResult, TypedContext
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
        "flowengine.nodes.agent": (
            "AgentNode",
            "RoutingNode",
            "EvaluationNode",
        ),
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
        "flowengine.tools.function_tool": ("tool",),
        "flowengine.tools.tool": (
            "Tool",
            "ToolResult",
        ),
        "flowengine.tools.toolset": ("ToolSet",),
        "flowengine.tools.mcp.server_settings": ("McpServer",),
    },
    "What enters a prompt": {
        "flowengine.core.context": ("Fragment",),
        "flowengine.context_providers.provider": ("ContextProvider",),
        "flowengine.context_providers.factory": ("ContextProviderFactory",),
        "flowengine.context_providers.conversation": ("ConversationHistoryProvider",),
        "flowengine.context_providers.fixed_file": ("FixedFileProvider",),
        "flowengine.context_providers.source_code.source_code": ("SourceCodeProvider",),
        "flowengine.context_providers.compressor.compressor": ("ContextCompressorProvider",),
        "flowengine.context_providers.filter": ("ContextFilterProvider",),
        "flowengine.context_providers.long_term_memory": ("LongTermMemoryProvider",),
        "flowengine.context_providers.custom_data": ("CustomDataProvider",),
        "flowengine.context_providers.retrieval": ("RetrievalProvider",),
        "flowengine.typed_contexts.typed": (
            "TypedContext",
            "ToolCallResult",
        ),
        "flowengine.typed_contexts.manager": ("ContextManager",),
        "flowengine.typed_contexts.rag": ("RetrievalContext",),
        "flowengine.skills.skill_store": ("SkillStore",),
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
        "flowengine.runners.row_runs": ("RowResult",),
        "flowengine.runners.run": ("Run",),
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
