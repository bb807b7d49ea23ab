"""The names of spans, attributes and metrics, in one place.

Source: the OpenTelemetry semantic conventions for generative AI, as they stood in 2026; what they do not
name is `flowengine.*`. When the conventions change, this file does.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

WORKFLOW_NAME: Final = "gen_ai.workflow.name"
AGENT_NAME: Final = "gen_ai.agent.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"
TOKEN_TYPE: Final = "gen_ai.token.type"

EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

RUN_ID: Final = "flowengine.run.id"
RUN_STATUS: Final = "flowengine.run.status"
RUN_OUTPUTS: Final = "flowengine.run.outputs"
NODE: Final = "flowengine.node.path"
NODE_KIND: Final = "flowengine.node.kind"
NODE_STATUS: Final = "flowengine.node.status"
NODE_ROUTE: Final = "flowengine.node.route"
NODE_CAUSE: Final = "flowengine.node.skip_cause"
NODE_OUTPUT: Final = "flowengine.node.output"
PURPOSE: Final = "flowengine.call.purpose"
ATTEMPTS: Final = "flowengine.call.attempts"
COST: Final = "flowengine.cost_usd"
COSTS: Final = (COST, "gen_ai.usage.cost", "llm.cost.total")
"""Where the cost of a call stands, in dollars: our name, the one that Langfuse reads, and OpenInference's. The
convention has no name for it."""
EFFECT: Final = "flowengine.tool.effect"
SKILL: Final = "flowengine.skill.id"
SKILL_LEVEL: Final = "flowengine.skill.level"
SKILL_TOKENS: Final = "flowengine.skill.tokens"
SKILL_MEMORY: Final = "flowengine.skill.memory_bytes"
PROVIDER: Final = "flowengine.context_provider"
FRAGMENTS_KEPT: Final = "flowengine.context.fragments_kept"
FRAGMENTS_DROPPED: Final = "flowengine.context.fragments_dropped"
CONTEXT_TOKENS: Final = "flowengine.context.tokens"

TOKEN_USAGE_METRIC: Final = "gen_ai.client.token.usage"
DURATION_METRIC: Final = "gen_ai.client.operation.duration"
COST_METRIC: Final = "flowengine.run.cost"
NODE_DURATION_METRIC: Final = "flowengine.node.duration"
