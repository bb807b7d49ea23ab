"""The keys of a flow file, as `FlowBuilder` takes them: checkers see a mistyped one, and so does the builder.

A test holds them to the schema of the format, which says what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = [
    "AgentKeywords",
    "ApprovalKeywords",
    "ConditionKeywords",
    "EvaluationKeywords",
    "FlowKeywords",
    "FunctionKeywords",
    "LoopKeywords",
    "MapKeywords",
    "RoutingKeywords",
    "SubflowKeywords",
]


class FlowKeywords(TypedDict, total=False):
    description: str
    inputs: Mapping[str, Any]
    shared_state: Mapping[str, Any]
    agents: Mapping[str, Any]
    defaults: Mapping[str, Any]
    limits: Mapping[str, Any]


class _Node(TypedDict, total=False):
    description: str
    needs: str | Sequence[str]
    when: str | bool
    join: Literal["some", "all", "always"]
    set: Mapping[str, Any]
    on_error: str | Mapping[str, Any]


class _Bounded(_Node, total=False):
    timeout: str | float
    effect: Literal["none", "idempotent", "external"]
    cache: bool
    limits: Mapping[str, Any]


class _Work(_Bounded, total=False):
    retry: int | Mapping[str, Any]


class _Model(TypedDict, total=False):
    model: str
    temperature: float
    max_tokens: int
    max_retries: int
    fallbacks: str | Sequence[str]
    locale: Literal["en", "ja", "zh"]


class AgentKeywords(_Work, _Model, total=False):
    agent: str | Mapping[str, Any]
    prompt: str
    instructions: str
    system_message: str
    output: Any
    tools: Any
    mcp_servers: Sequence[Mapping[str, Any]]
    max_tool_rounds: int
    context: Any
    contexts: Any
    memory: str | Mapping[str, Any]
    skills: str | Sequence[str]
    context_budget: int
    guardrails: Mapping[str, Any]
    history_size: int
    improve: Mapping[str, Any]
    evaluate: Mapping[str, Any]
    routing: Mapping[str, Any]


class RoutingKeywords(_Work, _Model, total=False):
    min_confidence: float
    fallback: str
    target: str
    agent: str | Mapping[str, Any]


class ConditionKeywords(_Work, total=False):
    if_: str | bool
    then: Any
    else_: Any
    cases: Sequence[Mapping[str, Any]]
    call: Any
    routes: Mapping[str, Any]


class EvaluationKeywords(_Work, _Model, total=False):
    instructions: str
    criteria: Mapping[str, str]
    threshold: float
    target: str
    routes: Mapping[str, Any]
    call: Any
    agent: str | Mapping[str, Any]


class FunctionKeywords(_Work, total=False):
    with_: Mapping[str, Any]


class SubflowKeywords(_Bounded, total=False):
    with_: Mapping[str, Any]


class ApprovalKeywords(_Node, total=False):
    form: Mapping[str, Any]
    expires: str | float
    on_expire: str


class LoopKeywords(_Bounded, total=False):
    initial: Mapping[str, Any]
    until: str
    carry: Mapping[str, Any]
    on_exhausted: Literal["fail", "continue"]
    best_by: str


class MapKeywords(_Bounded, total=False):
    as_: str
    concurrency: int
    on_item_error: Literal["fail", "collect", "skip"]
    result: Any
