"""Names the keys of Dify's files that an import leaves out without a word.

They say where things stand on a screen, what a plugin is called, or what is said elsewhere in the file or the report.
"""

from __future__ import annotations

from typing import Final

KNOWN_OF_NODE: Final = frozenset(
    {
        *("type", "title", "desc", "selected", "height", "width", "version", "startNodeType"),
        *("isInIteration", "iteration_id", "isInLoop", "isLoopStart", "loop_id"),
        *("output_type", "var_type", "item_var_type", "iterator_input_type", "is_array_input", "is_array_file"),
        *("model.mode", "reasoning_mode", "prompt_template.id", "prompt_template.role", "default_value"),
        *("retrieval_mode", "single_retrieval_config", "multiple_retrieval_config", "retrieval_model"),
        *("variables.value_type", "variables.required", "items.write_mode", "items.input_type"),
        *("body.data.id", "body.data.type", "timeout.max_connect_timeout", "timeout.max_write_timeout"),
        *("timeout.connect", "timeout.write", "retry_config.retry_interval"),
        # Older files have one case, and newer ones repeat the first one so.
        *("conditions", "conditions.id", "logical_operator", "cases.id", "cases.conditions.id"),
        *("cases.conditions.numberVarType", "break_conditions.id", "break_conditions.numberVarType"),
        *(f"cases.conditions.sub_variable_condition.{each}" for each in ("case_id", "logical_operator")),
        *(f"cases.conditions.sub_variable_condition.conditions.{each}" for each in ("id", "varType")),
        *("agent_strategy_label", "agent_strategy_provider_name", "plugin_unique_identifier"),
        *(f"agent_parameters.{each}.type" for each in ("instruction", "maximum_iterations", "model", "query")),
        "agent_parameters.tools",  # The ledger has an element for each.
        *("provider_name", "provider_type", "tool_label", "tool_description", "tool_node_version"),
        *("paramSchemas", "is_team_authorization"),
    }
)
KNOWN_OF_APP: Final = frozenset(
    {
        *("kind", "version", "dependencies", "app.icon", "app.icon_type", "app.icon_background"),
        *("app.use_icon_as_answer_icon", "workflow.features.retriever_resource", "model_config.retriever_resource"),
        *("workflow.conversation_variables", "workflow.environment_variables", "workflow.graph.edges"),
        *("workflow.graph.viewport", "workflow.graph.nodes"),
        *("model_config.model.mode", "model_config.dataset_configs", "model_config.text_to_speech"),
        *(
            "model_config.dataset_query_variable",
            "model_config.prompt_type",
            "model_config.agent_mode.strategy",
            "model_config.agent_mode.tools",
        ),
    }
)
