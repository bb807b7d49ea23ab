"""Where the way over HTTP differs from litellm's on purpose, each with its reason. Patterns as of `fnmatch`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, NamedTuple

__all__ = ["DIFFERENCES", "Difference", "reason_for"]


class Difference(NamedTuple):
    case: str
    place: str
    reason: str


DIFFERENCES: Final = (
    # --- OpenAI
    Difference(
        "openai-schema and tools",
        "body.response_format",
        "OpenAI takes a schema beside tools; through litellm it is left out, since other vendors do not",
    ),
    Difference("openai-answer: refusal-stream", "error", "a refusal is one in a stream too; litellm drops its text"),
    Difference("openai-answer: refusal-stream", "said", "see above"),
    Difference("*-answer: cached tokens*", "reply.usage.reasoning_tokens", "read here only"),
    Difference("*-answer: cached tokens*", "reply.usage.cache_write_tokens", "read here only"),
    # --- Anthropic: what is sent
    Difference("anthropic-two systems", "body.system", "the API has one place for the system's messages: all go there"),
    Difference("anthropic-two systems", "body.messages.0.content", "see above; litellm makes a user's remark of it"),
    Difference(
        "anthropic-empty *", "body.messages.?.content.0.text", "a placeholder that says nothing a model could obey"
    ),
    Difference("anthropic-*", "body.tools.?.type", "`custom` is the type that the API takes where none is given"),
    Difference("anthropic-*result", "body.messages.1.content", "a request for tools needs no text: none is made up"),
    Difference("anthropic-no tools any more", "body.messages.1.content", "see above"),
    Difference(
        "anthropic-no tools any more",
        "body.tools.0.*",
        "the tools that the chat called are named, instead of one that nobody knows",
    ),
    Difference("anthropic-no tools any more", "body.tool_choice", "and none of them may be called any more"),
    Difference("anthropic-*", "body.output_format", "the field of the beta, which is `output_config.format` now"),
    Difference("anthropic-*", "body.output_config", "see above; references stay, and bounds are told with fewer words"),
    Difference(
        "anthropic-free schema",
        "body.tool*",
        "an object of free keys cannot be a format: litellm closes it, so that only {} would fit",
    ),
    Difference("anthropic-list schema", "body.tool*", "a format is an object: any other value is a tool's argument"),
    Difference(
        "anthropic-claude-opus-4-5 reasoning_effort",
        "body.thinking",
        "the model knows effort, so none of it is turned into a budget",
    ),
    Difference(
        "anthropic-claude-*-4-? reasoning_effort",
        "body.thinking.display",
        "a summary of the thinking would be made and paid for, and is shown nowhere",
    ),
    Difference(
        "anthropic-thinking, no bound", "body.max_tokens", "an answer without a bound may have the model's longest"
    ),
    *(
        Difference(f"anthropic-{option}", place, f"{reason}; litellm refuses the whole request")
        for option, reason in {
            "seed": "the API has no such option and is not sent it",
            "presence_penalty": "the API has no such option and is not sent it",
            "frequency_penalty": "the API has no such option and is not sent it",
            "service_tier": "the API has this option",
        }.items()
        for place in ("body", "error", "headers", "path", "reply", "sent")
    ),
    # --- Anthropic: what comes back
    Difference("anthropic-*", "reply.usage.cached_tokens", "what the server does not tell is unknown, not 0"),
    Difference("anthropic-*", "reply.usage.prompt_tokens", "the recording server counts what was sent, which differs"),
    Difference("anthropic-*", "reply.cost_usd", "see above"),
    Difference("anthropic-answer: no usage", "error", "an answer counts without its tokens; litellm's reader breaks"),
    Difference("anthropic-answer: no usage", "reply", "see above"),
)


def reason_for(case: str, place: str) -> Difference | None:
    """The entry that explains a divergence; None where there is none."""
    return next((each for each in DIFFERENCES if fnmatchcase(case, each.case) and fnmatchcase(place, each.place)), None)
