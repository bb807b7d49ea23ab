"""Knows what becomes of the settings of CrewAI's agents, tasks and crews, and reads how a crew names its model."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from flowengine.importers.crew_ai.crew_classes import CrewClass
from flowengine.importers.form import Outcome
from flowengine.importers.option_values import fits_option
from flowengine.importers.python_code import call_name, last_name, literal_of
from flowengine.models import ALIASES, OTHERS, VENDORS, is_known_name

Note = tuple[Outcome, str]
_RECORDED: Final[Note] = ("mapped", "every run is recorded")
_NO_CODE: Final[Note] = ("lost", "no code is called while an agent works")

_EVERYWHERE: Final[Mapping[str, Note]] = {
    "verbose": _RECORDED,
    "name": ("mapped", ""),
}
_OF_AGENTS: Final[Mapping[str, Note]] = {
    **_EVERYWHERE,
    "cache": ("changed", "`cache: true` on a node does it"),
    "max_rpm": ("changed", "the project file bounds a vendor's requests: `[providers]`"),
    "embedder": ("changed", "memory finds what is near by words"),
    "function_calling_llm": ("changed", "the agent's own model asks for tools"),
    "step_callback": _NO_CODE,
}
"""Notes on the settings of an agent, or of all agents of a crew."""
AGENT_NOTES: Final[Mapping[str, Note]] = {
    **_OF_AGENTS,
    "allow_delegation": ("mapped", ""),
    "max_retry_limit": ("changed", "`max_retries` of an agent: 3"),
    "respect_context_window": ("mapped", "a prompt is packed into the model's window"),
    "use_system_prompt": ("mapped", ""),
    "inject_date": ("lost", "no date is put into prompts"),
    "date_format": ("lost", "no date is put into prompts"),
    "callbacks": _NO_CODE,
    "multimodal": ("changed", "`attach` of a node gives a model files"),
    "config": ("mapped", ""),
    "max_tokens": ("changed", "`max_tokens` of the agent"),
}
TASK_NOTES: Final[Mapping[str, Note]] = {
    **_EVERYWHERE,
    "create_directory": ("mapped", ""),
    "callback": _NO_CODE,
    "max_retries": ("changed", "`max_retries` of an agent: 3"),
    "guardrail_max_retries": ("changed", "`max_retries` of an agent: 3"),
    "inputs": ("mapped", "the placeholders of its texts are the inputs"),
    "output_type": ("mapped", ""),
}
CREW_NOTES: Final[Mapping[str, Note]] = {
    **_OF_AGENTS,
    "agents": ("mapped", ""),
    "tasks": ("mapped", ""),
    "output_log_file": ("changed", "every run is recorded in the store"),
    "share_crew": ("mapped", "nothing is shared"),
    "full_output": ("mapped", "every node's output is recorded"),
    "tracing": _RECORDED,
    "language": ("changed", "`locale` of an agent"),
    "task_callback": _NO_CODE,
    "chat_llm": ("changed", "a chat is asked by the agents' own models"),
    "manager_llm": ("lost", "there is no manager"),
    "manager_agent": ("lost", "there is no manager"),
}
"""Setting → what becomes of it and why, where it says more than false or none."""
OWN_FIELDS: Final = frozenset(
    {
        *("role", "goal", "backstory", "llm", "tools", "knowledge", "knowledge_sources", "knowledge_config", "mcps"),
        *("guardrail", "guardrails", "allow_code_execution", "code_execution_mode", "system_template", "apps"),
        *("prompt_template", "response_template", "reasoning", "max_reasoning_attempts", "planning", "planning_config"),
        *("from_repository", "executor_class", "agent_executor", "security_config", "crew", "i18n", "prompt_file"),
        *("callback", "converter_cls", "output", "allow_crewai_trigger_context", "input_files", "checkpoint"),
        *("a2a", "skills", "condition"),
    }
)
"""Fields of CrewAI's agents and tasks that have no counterpart here; of YAML it leaves out keys that are no field."""
_OPENAI: Final = frozenset({"ChatOpenAI", "OpenAI", "ChatLiteLLM", "OpenAIChat"})
_PREFIXES: Final[Mapping[str, str]] = {
    "ChatGroq": "groq/",
    "ChatAnthropic": "anthropic/",
    "ChatGoogleGenerativeAI": "gemini/",
    "GoogleGenerativeAI": "gemini/",
    "ChatOllama": "ollama/",
    "Ollama": "ollama/",
    "OllamaLLM": "ollama/",
    "AzureChatOpenAI": "azure/",
    "ChatMistralAI": "mistral/",
    "ChatCohere": "cohere/",
    "ChatDeepSeek": "deepseek/",
    "ChatNVIDIA": "nvidia_nim/",
}
"""Class of a model in code → the prefix of its vendor."""
_OPTIONS: Final[Mapping[str, str]] = {
    **{each: each for each in ("temperature", "max_tokens", "top_p", "seed", "stop")},
    **{each: each for each in ("presence_penalty", "frequency_penalty")},
    "max_completion_tokens": "max_tokens",
}
"""Argument of a model's class → our option."""
_NAMES: Final = ("model", "model_name", "azure_deployment", "deployment_name")
_ADDRESSES: Final = ("base_url", "api_base", "openai_api_base")
_KNOWN: Final = frozenset({*_NAMES, *_ADDRESSES, "api_key", "verbose"})
"""Arguments that are read elsewhere; keys are the environment's."""
_MADE: Final = object()
"""A value that code makes."""


_VENDORS: Final = frozenset({*VENDORS, *OTHERS, *ALIASES})


def model_name(name: str, *, is_openai: bool = False) -> str | None:
    """A model as we call it; None for one that would go to no vendor.

    >>> [model_name(each) for each in ("gpt-4o", "groq/llama-3.1-70b", "my-own", "no/such")]
    ['gpt-4o', 'groq/llama-3.1-70b', None, None]
    """
    name = name.strip().removeprefix("models/")
    if not re.fullmatch(r"[\w.:/@+-]+", name):
        return None
    vendor = name.partition("/")[0] if "/" in name else ""
    if vendor in _VENDORS or (not vendor and is_known_name(name)):
        return name
    return f"openai/{name}" if is_openai else None


class ModelFound(NamedTuple):
    """A model as the new flow names it, and what is to be said of that."""

    model: str | None
    keys: dict[str, Any]
    outcome: Outcome
    note: str
    by_hand: str = ""


def read_model(value: Any, crew: CrewClass | None) -> ModelFound:
    """A model of a text or of code."""
    if isinstance(value, str):
        return _find_named(value, {})
    node = value if isinstance(value, ast.expr) else None
    expression = crew.resolve(node) if crew is not None else node
    if expression is None:
        return ModelFound(None, {}, "changed", "the default model is asked")
    text = literal_of(expression)
    if isinstance(text, str):
        return _find_named(text, {})
    if text is None and isinstance(expression, ast.Constant):
        return ModelFound(None, {}, "mapped", "the default model is asked")
    if isinstance(expression, ast.Call) and crew is not None:
        return _model_of_call(expression, crew, 0)
    if isinstance(expression, ast.BoolOp | ast.IfExp):
        choices = [one for one in ast.walk(expression) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        for each in choices:
            choice = _find_named(str(each.value), {})
            if choice.model is not None:
                return choice._replace(
                    outcome="changed", note=f"{choice.model}, one of those that the code chooses from"
                )
    return _by_environment()


def _by_environment() -> ModelFound:
    todo = "set FLOWENGINE_DEFAULT_MODEL, or write `model` into the agent"
    return ModelFound(None, {}, "changed", "code chooses it: the default model is asked", todo)


def _model_of_call(call: ast.Call, crew: CrewClass, depth: int) -> ModelFound:
    name = last_name(call)
    keywords = {each.arg: each.value for each in call.keywords if each.arg}
    if name in ("getenv", "get") or call_name(call).endswith("environ.get"):
        fallback = literal_of(call.args[1]) if len(call.args) > 1 else None
        if isinstance(fallback, str) and (choice := _find_named(fallback, {})).model is not None:
            return choice._replace(outcome="changed", note="the name that the code has where its variable is not set")
        return _by_environment()
    values = {each: literal_of(crew.resolve(value), _MADE) for each, value in keywords.items()}
    keys = {_OPTIONS[each]: value for each, value in values.items() if fits_option(_OPTIONS.get(each, ""), value)}
    node = next((keywords[each] for each in _NAMES if each in keywords), call.args[0] if call.args else None)
    argument = crew.resolve(node)
    text = literal_of(argument)
    if isinstance(argument, ast.Call) and depth < 4:
        choice = _model_of_call(argument, crew, depth + 1)
        choice = choice._replace(keys=keys | choice.keys)
    elif isinstance(text, str):
        has_address = any(each in keywords for each in _ADDRESSES)
        prefix = _PREFIXES.get(name, "")
        if prefix and "/" not in text:
            text = prefix + text.removeprefix("models/")
        choice = _find_named(text, keys, is_openai=name in _OPENAI or has_address)
        if has_address and choice.model is not None:
            todo = "say the model's address in `[models]` of the project file, or by the vendor's variable"
            choice = choice._replace(outcome="changed", note=f"{choice.model}, without its address", by_hand=todo)
    else:
        function = crew.files.function_of(crew.source, call_name(call)) if depth < 4 else None
        returned = [each.value for each in ast.walk(function[0]) if isinstance(each, ast.Return)] if function else []
        inner = crew.resolve(returned[-1]) if returned else None
        if isinstance(inner, ast.Call):
            return _model_of_call(inner, crew, depth + 1)
        choice = _by_environment()._replace(keys=keys)
    unread = [each for each, value in values.items() if each not in _KNOWN and value not in (None, False)]
    unread = [each for each in unread if _OPTIONS.get(each) not in keys]
    if not unread:
        return choice
    outcome: Outcome = "lost" if choice.outcome == "lost" else "changed"
    return choice._replace(outcome=outcome, note=f"{choice.note}; options left out: {', '.join(unread)}")


def _find_named(text: str, keys: dict[str, Any], *, is_openai: bool = False) -> ModelFound:
    model = model_name(text, is_openai=is_openai)
    if model is None:
        todo = "write `model` into the agent"
        return ModelFound(None, keys, "lost", f"no vendor of a model '{text[:80]}' is known", todo)
    return ModelFound(model, keys, "mapped", f"model {model}")
