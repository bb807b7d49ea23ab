"""Answers names that other libraries, and older texts, have for what FlowEngine calls otherwise.

It knows names only, and loads nothing: it is asked where an import or an argument has failed already.
`flowengine/docs/howto/from-refinire.md` has the same table for readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

_SEQUENCE: Final = "Flow('name', steps={...}), or Flow.sequential({...})"

_CLASSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RefinireAgent", "LLMAgent", "SimpleAgent", "HistoryAwareAgent", "LLMPipeline"), "Agent"),
    "ConditionStep": "ConditionNode",
    **dict.fromkeys(("FunctionStep", "DebugStep", "UserInputStep"), "FunctionNode"),
    "RoutingStep": "RoutingNode",
    "EvaluationStep": "EvaluationNode",
    **dict.fromkeys(("ParallelStep", "Step"), "FlowNode"),
    **dict.fromkeys(("AgentPipeline", "create_simple_flow", "SequentialFlow", "Pipeline"), _SEQUENCE),
    "create_simple_gen_agent": "Agent",
    "create_evaluated_gen_agent": "Agent(..., orchestration_mode=True)",
    "FlowExecutionError": "RunError",
    "Workflow": "Flow",
    "StateGraph": "Flow",
    "AgenticScope": "Flow",
    "FunctionTool": "tool",
    "function_tool": "tool",
    "MCPServer": "McpServer",
    "IContext": "TypedContext",
    "IRAGEnabledContext": "RetrievalContext",
    "RAGEnabledContext": "RetrievalContext",
    "ContextHelper": "ContextManager",
    "GenerateMemoryUseCase": "flowengine.agents.memory.MemoryKeeper",
    "MemoryGenerator": "flowengine.agents.memory.MemoryGenerator",
    "ResponseGenerator": "flowengine.agents.memory.MemoryGenerator",
    "LiteLLMResponseGenerator": "flowengine.agents.memory.MemoryGenerator",
    "AutonomousResponseUseCase": "flowengine.agents.memory.judge",
    "JudgeResponse": "flowengine.agents.memory.judge",
    "MemoryRepository": "flowengine.agents.memory.MemoryRepository",
    "ChannelMemory": "flowengine.agents.memory.ChannelMemory",
    "SkillResource": "SkillStore",
    "SkillMetadata": "SkillStore",
    "ConversationHistory": "ConversationHistoryProvider",
    "OpenAIModel": "get_llm",
    "ChatOpenAI": "get_llm",
    "ScriptedModel": "flowengine.models.scripted.ScriptedModel",
    "MemoryStore": "flowengine.journal.memory.MemoryStore",
    "open_store": "flowengine.journal.stores.open_store",
}
"""Foreign class or function → ours; with dots where it is imported from a module of its own."""

_ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Flow": {
        "start": "the first of `steps` is where a flow begins",
        "context": "a run begins with `inputs`: flow.run({...})",
        "max_steps": "a graph has no circles; a loop has its own bound: LoopNode(..., max_iterations=5)",
        "conditions": "a ConditionNode leads to the nodes that it names",
    },
    "ConditionNode": {
        "condition": "the function is the first value: ConditionNode(is_ready, 'publish', 'improve')",
        "if_true": "did you mean 'then'?",
        "if_false": "did you mean 'otherwise'?",
        "routes": "they are the second value: ConditionNode(choose, {'x': 'left', 'y': 'right'})",
        "name": "a node's name is its key in the flow: Flow('f', {'route': ConditionNode(...)})",
    },
    "FunctionNode": {
        "name": "a node's name is its key in the flow: Flow('f', {'load': FunctionNode(load)})",
        "next_step": "the next node names what it follows: needs=['load']",
    },
    "Agent": {
        "lang": "the language of prompts is locale='ja'",
        "persona": "did you mean 'system_message'?",
        "context_manager": "did you mean 'contexts'? It takes a list: manager.context_list",
        "session": "a run of a flow has one: flow.run(..., session='ann'); an agent alone has session_history",
        "memory_config": "did you mean 'memory'?",
        "namespace": "settings of a place of its own: FLOWENGINE_ENV names the .env file that is read",
        "provider": "a model's name says it: model='openai/gpt-4o-mini'",
        "storage_path": "did you mean 'memory'?",
        "evaluation_model_name": "did you mean 'evaluation_model'?",
        "next_step": "routes lead on: routes={'billing': 'questions about money'}, with routing_instruction",
        "tracing": "every run has a trace; flow.run(..., store='runs.db') keeps it",
    },
    "TypedContext": {
        "data": "get_data() gives a copy of the data",
        "dataSchema": "did you mean 'data_schema'?",
        "schema": "did you mean 'data_schema'?",
    },
    "ContextManager": {"contexts": "did you mean 'context_list'?"},
    "Memory": {"content": "did you mean 'text'?"},
    "TypedContext.create": {"schema": "did you mean 'data_schema'?", "name": "did you mean 'id'?"},
    "ChannelMemory": {
        "long_term_memory": "did you mean 'long_term'?",
        "short_term_memory": "did you mean 'short_term'?",
    },
}
"""What takes the argument, or has the attribute → its foreign name → what is written here."""


def find_foreign_class(name: str, known: Iterable[str]) -> str | None:
    """What to write for a name that `flowengine` does not have, as a sentence; None where nothing is near.

    >>> find_foreign_class("RefinireAgent", ["Agent", "Flow"])
    'write Agent'
    >>> find_foreign_class("MemoryRepository", ["Agent", "Flow"])
    'write from flowengine.agents.memory import MemoryRepository'
    >>> find_foreign_class("FlowBilder", ["FlowBuilder"])
    "did you mean 'FlowBuilder'?"
    """
    if name in _CLASSES:
        ours = _CLASSES[name]
        module, dot, own = ours.rpartition(".")
        is_import = bool(dot) and "(" not in ours
        return f"write from {module} import {own}" if is_import else f"write {ours}"
    near = get_close_matches(name, list(known), 1, 0.8) if name[:1].isupper() else []
    return f"did you mean '{near[0]}'?" if near else None


def find_foreign_argument(owner: str, name: str, known: Iterable[str]) -> str | None:
    """What to write instead of an argument that a class or a function does not take, or of an attribute that it does
    not have; None where no table knows it.

    >>> find_foreign_argument("ConditionNode", "if_true", ["then"])
    "did you mean 'then'?"
    >>> find_foreign_argument("TypedContext.create", "dataSchema", ["data_schema"])
    "did you mean 'data_schema'?"
    """
    answer = _ARGUMENTS.get(owner, {}).get(name)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if answer is None and snake != name and snake in set(known):
        return f"did you mean '{snake}'?"
    return answer
