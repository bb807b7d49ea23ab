"""Lists the vendors by name: where their keys are, how litellm calls them, and which model to take.

Facts only. In which order a vendor is looked for is decided in `detect`. Other packages bring further vendors under the
entry point group `flowengine.models`: the name before the slash of `vendor/model` → what makes its models. They are
looked for only when a name is none of ours; where their keys and addresses are is their own matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Final, NamedTuple

from flowengine.core import find_entry_points

__all__ = [
    "ALIASES",
    "BATCH_PRICE",
    "BATCH_VENDORS",
    "OTHERS",
    "VENDORS",
    "ProviderSettings",
    "RateLimits",
    "Vendor",
    "first_set",
    "is_packaged",
    "is_stand_in",
    "is_vendor",
    "key_of",
    "needs_key",
    "packaged_vendors",
    "vendor_named",
    "vendor_names",
]

BATCH_VENDORS: Final = frozenset({"openai", "anthropic"})
"""Vendors whose models are asked in batches."""
BATCH_PRICE: Final = 0.5
"""The share of a call's price that it costs in a batch of theirs."""

# --- What a user says of a vendor


@dataclass(frozen=True, slots=True)
class RateLimits:
    """A vendor's rate limits; None means unlimited."""

    requests_per_minute: int | None = None
    """Requests that begin in any minute."""
    tokens_per_minute: int | None = None
    """Tokens of prompts and answers together."""
    max_parallel: int | None = None
    """Requests under way at once."""

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "max_parallel"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")


class ProviderSettings(NamedTuple):
    """One vendor's."""

    base_url: str | None = None
    """Its address; None leaves it to the environment."""
    limits: RateLimits | None = None
    is_foreign: bool = False
    """Whether the address is one that somebody else named: no key of this machine is sent there."""
    adapter: str | None = None
    """`litellm`: it is asked through litellm although there is a client for it here."""
    structured_output: str | None = None
    """How its models take the shape of an answer; None: as is known of them."""
    key_env: str | None = None
    """The environment variable that holds its key, instead of the usual ones."""
    key_command: tuple[str, ...] | None = None
    """The command that prints its key."""


class Vendor(NamedTuple):
    """The data needed to call a vendor."""

    name: str
    prefix: str
    """litellm's word for it."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key, the first that is set counts; none: no key is needed."""
    base_variables: tuple[str, ...] = ()
    """Environment variables that may hold its address."""
    default_base: str | None = None
    """Its address where no variable names one; None leaves that to litellm."""
    default_model: str | None = None
    """A cheap, general model; None where the models are the user's own."""
    name_starts: tuple[str, ...] = ()
    """How the names of its models begin."""
    model_prefix: str = ""
    """Stands before names without a slash where the vendor is asked."""
    placeholder_key: str | None = None
    """Sent where no key is set and none may be needed, but the client library wants one or would take another's."""
    needs_address: bool = False
    """Whether its address has to be given: without one, some client libraries go to another vendor."""
    backend: str = "flowengine.models.litellm.model:make_model"
    """The function that makes its models, `module:function`: called with the vendor, the model's name and the
    settings of every call; imported when a model of it is wanted."""
    is_stand_in: bool = False
    """Whether it sends no request: it costs nothing, and needs neither key nor limits nor retries."""


VENDORS: Final = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            "openai",
            "openai",
            ("OPENAI_API_KEY",),
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            default_model="gpt-4o-mini",
            name_starts=("gpt", "o3", "o4"),
        ),
        Vendor(
            "anthropic",
            "anthropic",
            ("ANTHROPIC_API_KEY",),
            ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
            default_model="claude-haiku-4-5",
            name_starts=("claude",),
        ),
        Vendor(
            "google",
            "gemini",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            ("GEMINI_API_BASE",),
            default_model="gemini-2.5-flash",
            name_starts=("gemini",),
        ),
        Vendor(
            "openrouter",
            "openrouter",
            ("OPENROUTER_API_KEY",),
            ("OPENROUTER_BASE_URL", "OPENROUTER_API_BASE"),
            default_model="openai/gpt-4o-mini",
        ),
        Vendor("groq", "groq", ("GROQ_API_KEY",), ("GROQ_API_BASE",), default_model="openai/gpt-oss-20b"),
        Vendor(
            "azure",
            "azure",
            ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
            ("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE"),
            needs_address=True,
        ),
        Vendor(
            "ollama",
            "ollama_chat",
            (),
            ("OLLAMA_BASE_URL", "OLLAMA_API_BASE", "OLLAMA_HOST"),
            "http://localhost:11434",
        ),
        Vendor(
            "lmstudio",
            "lm_studio",
            (),
            ("LM_STUDIO_BASE_URL", "LM_STUDIO_API_BASE"),
            "http://localhost:1234/v1",
            placeholder_key="lm-studio",
        ),
        Vendor(
            "offline",
            "offline",
            default_model="offline",
            backend="flowengine.models.offline.model:make_model",
            is_stand_in=True,
        ),
    )
}
"""In the order in which their keys decide what the default model is."""

OTHERS: Final = {
    vendor.name: vendor
    for vendor in (
        Vendor("azure_ai", "azure_ai", ("AZURE_AI_API_KEY",), ("AZURE_AI_API_BASE",), needs_address=True),
        Vendor("bedrock", "bedrock"),
        Vendor("cerebras", "cerebras", ("CEREBRAS_API_KEY",), ("CEREBRAS_API_BASE",)),
        Vendor("cohere", "cohere_chat", ("COHERE_API_KEY",)),
        Vendor("dashscope", "dashscope", ("DASHSCOPE_API_KEY",)),
        Vendor("databricks", "databricks", ("DATABRICKS_API_KEY",), ("DATABRICKS_API_BASE",), needs_address=True),
        Vendor("deepinfra", "deepinfra", ("DEEPINFRA_API_KEY",)),
        Vendor("deepseek", "deepseek", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_API_BASE",)),
        Vendor(
            "fireworks_ai",
            "fireworks_ai",
            ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
            ("FIREWORKS_AI_API_BASE", "FIREWORKS_API_BASE"),
            model_prefix="accounts/fireworks/models/",
        ),
        Vendor("github_copilot", "github_copilot"),
        Vendor(
            "hosted_vllm",
            "hosted_vllm",
            ("HOSTED_VLLM_API_KEY",),
            ("HOSTED_VLLM_API_BASE",),
            placeholder_key="none",
            needs_address=True,
        ),
        Vendor(
            "llamacpp",
            "hosted_vllm",
            ("LLAMACPP_API_KEY",),
            ("LLAMACPP_BASE_URL", "LLAMACPP_API_BASE"),
            "http://localhost:8080",
            placeholder_key="none",
        ),
        Vendor("huggingface", "huggingface", ("HF_TOKEN", "HUGGINGFACE_API_KEY")),
        Vendor(
            "litellm_proxy",
            "litellm_proxy",
            ("LITELLM_PROXY_API_KEY",),
            ("LITELLM_PROXY_API_BASE",),
            placeholder_key="none",
            needs_address=True,
        ),
        Vendor("mistral", "mistral", ("MISTRAL_API_KEY",), ("MISTRAL_API_BASE",)),
        Vendor("moonshot", "moonshot", ("MOONSHOT_API_KEY",)),
        Vendor("nvidia_nim", "nvidia_nim", ("NVIDIA_NIM_API_KEY",)),
        Vendor("perplexity", "perplexity", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), ("PERPLEXITY_API_BASE",)),
        Vendor("replicate", "replicate", ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN")),
        Vendor("sagemaker", "sagemaker"),
        Vendor("sambanova", "sambanova", ("SAMBANOVA_API_KEY",)),
        Vendor("together_ai", "together_ai", ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"), ("TOGETHER_AI_API_BASE",)),
        Vendor("vertex_ai", "vertex_ai"),
        Vendor("watsonx", "watsonx", (), ("WATSONX_URL", "WATSONX_API_BASE"), needs_address=True),
        Vendor("xai", "xai", ("XAI_API_KEY",), ("XAI_API_BASE",)),
        Vendor("zai", "zai", ("ZAI_API_KEY",)),
    )
}
"""Vendors that only `vendor/model` and an explicit provider lead to: `mistral:7b` is a model of ollama."""

ALIASES: Final = {
    "fireworks": "fireworks_ai",
    "gemini": "google",
    "llama.cpp": "llamacpp",
    "llama_cpp": "llamacpp",
    "lm_studio": "lmstudio",
    "ollama_chat": "ollama",
    "together": "together_ai",
    "vertex": "vertex_ai",
    "vllm": "hosted_vllm",
}
"""Other spellings, most of them litellm's."""


def needs_key(provider: str) -> bool:
    """Tells whether a key goes with each call, from a variable or from where a vendor's own library finds it.

    >>> needs_key("ollama"), needs_key("openai"), needs_key("bedrock")
    (False, True, True)
    """
    vendor = VENDORS.get(provider)
    return vendor is None or bool(vendor.key_variables)


def vendor_named(provider: str) -> Vendor:
    """The vendor of a provider's own name."""
    vendor = VENDORS.get(provider) or OTHERS.get(provider)
    if vendor is None and is_packaged(provider):
        return Vendor(provider, provider)
    return vendor or OTHERS[provider]


def is_stand_in(provider: str) -> bool:
    """Tells whether a vendor sends no request, and so costs nothing.

    >>> is_stand_in("offline"), is_stand_in("openai")
    (True, False)
    """
    return provider in VENDORS and VENDORS[provider].is_stand_in


def packaged_vendors() -> Mapping[str, EntryPoint]:
    """The vendors that installed packages bring. None of them takes the name of one of ours."""
    points = find_entry_points("flowengine.models").items()
    return {name: point for name, point in points if name not in VENDORS and name not in OTHERS and name not in ALIASES}


def is_packaged(provider: str) -> bool:
    """Tells whether an installed package brings the vendor. For ours no package is looked at."""
    return provider not in VENDORS and provider not in OTHERS and provider in packaged_vendors()


def is_vendor(provider: str) -> bool:
    """Tells whether this is a vendor's own name, be it one that a package brings."""
    return provider in VENDORS or provider in OTHERS or provider in packaged_vendors()


def vendor_names() -> list[str]:
    """Every vendor's name, in each spelling."""
    return [*VENDORS, *OTHERS, *ALIASES, *packaged_vendors()]


def key_of(vendor: Vendor, environ: Mapping[str, str]) -> str | None:
    """Its key, as the environment has it."""
    return first_set(vendor.key_variables, environ)


def first_set(variables: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    """The value of the first of these variables that is set and not empty."""
    return next((value for name in variables if (value := environ.get(name))), None)
