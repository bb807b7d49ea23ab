from __future__ import annotations

from typing import Any

import pytest

from flowengine.errors import ModelConfigError
from flowengine.llm.detect import default_model, detect, get_llm
from flowengine.llm.litellm_model import LiteLLMModel
from flowengine.llm.offline import OfflineModel
from flowengine.llm.retrying import RetryingModel

EVERYTHING = {
    "OLLAMA_BASE_URL": "http://o",
    "LM_STUDIO_BASE_URL": "http://l",
    "OPENROUTER_API_KEY": "r",
    "GROQ_API_KEY": "g",
    "ANTHROPIC_API_KEY": "a",
    "AZURE_OPENAI_ENDPOINT": "http://z",
}


def without(*names: str) -> dict[str, str]:
    """The environment in which all variables that decide are set, but for these."""
    return {name: value for name, value in EVERYTHING.items() if name not in names}


@pytest.mark.parametrize(
    ("model", "provider", "environ", "found"),
    [
        # an explicit provider, before everything
        ("gpt-4o", "groq", EVERYTHING, ("groq", "gpt-4o")),
        ("openai/gpt-4o", "openai", {}, ("openai", "gpt-4o")),
        ("openai/gpt-4o", "openrouter", {}, ("openrouter", "openai/gpt-4o")),
        ("gemini-2.5-flash", "gemini", {}, ("google", "gemini-2.5-flash")),
        # a prefix that is a known provider
        ("openai/gpt-4o", None, EVERYTHING, ("openai", "gpt-4o")),
        ("ollama:llama3.2:3b", None, EVERYTHING, ("ollama", "llama3.2:3b")),
        ("openrouter/anthropic/claude-3.5-haiku", None, {}, ("openrouter", "anthropic/claude-3.5-haiku")),
        ("gemini/gemini-2.5-pro", None, {}, ("google", "gemini-2.5-pro")),
        ("mistral/mistral-small", None, EVERYTHING, ("mistral", "mistral-small")),
        ("ollama/hf.co/user/model:Q4", None, {}, ("ollama", "hf.co/user/model:Q4")),
        # prefixes that are none
        ("llama3.2:3b", None, {}, ("ollama", "llama3.2:3b")),
        ("mistral:7b", None, {}, ("ollama", "mistral:7b")),
        ("meta-llama/llama-3-70b", None, {"GROQ_API_KEY": "g"}, ("groq", "meta-llama/llama-3-70b")),
        # the name's own vendor, where its key is set
        ("gpt-4o-mini", None, {**EVERYTHING, "OPENAI_API_KEY": "k"}, ("openai", "gpt-4o-mini")),
        ("claude-haiku-4-5", None, EVERYTHING, ("anthropic", "claude-haiku-4-5")),
        ("gemini-2.5-flash", None, {**EVERYTHING, "GOOGLE_API_KEY": "k"}, ("google", "gemini-2.5-flash")),
        # the environment, in its order
        ("gpt-4o", None, EVERYTHING, ("ollama", "gpt-4o")),
        ("gpt-4o", None, without("OLLAMA_BASE_URL"), ("lmstudio", "gpt-4o")),
        ("gpt-4o", None, without("OLLAMA_BASE_URL", "LM_STUDIO_BASE_URL"), ("openrouter", "gpt-4o")),
        ("gpt-4o", None, {"GROQ_API_KEY": "g", "ANTHROPIC_API_KEY": "a"}, ("groq", "gpt-4o")),
        ("gpt-4o", None, {"ANTHROPIC_API_KEY": "a", "AZURE_OPENAI_ENDPOINT": "z"}, ("anthropic", "gpt-4o")),
        ("gpt-4o", None, {"AZURE_OPENAI_ENDPOINT": "z"}, ("azure", "gpt-4o")),
        ("gpt-4o", None, {"GROQ_API_KEY": ""}, ("openai", "gpt-4o")),
        # the name
        ("gpt-4o", None, {}, ("openai", "gpt-4o")),
        ("o3-mini", None, {}, ("openai", "o3-mini")),
        ("o4-mini", None, {}, ("openai", "o4-mini")),
        ("gemini-2.5-flash", None, {}, ("google", "gemini-2.5-flash")),
        ("claude-haiku-4-5", None, {}, ("anthropic", "claude-haiku-4-5")),
        ("qwen3", None, {}, ("ollama", "qwen3")),
        ("offline", None, EVERYTHING, ("offline", "offline")),
    ],
)
def test_the_order_in_which_a_provider_is_found(
    model: str, provider: str | None, environ: dict[str, str], found: tuple[str, str]
) -> None:
    assert detect(model, provider, environ) == found


@pytest.mark.parametrize(
    ("model", "provider", "message"),
    [
        ("gpt-4o", "opnai", "unknown provider 'opnai'; did you mean 'openai'"),
        ("gpt-4o", "xyz", "unknown provider 'xyz'; known are openai, "),
        ("opnai/gpt-4o", None, "unknown provider 'opnai' in model 'opnai/gpt-4o'; did you mean 'openai'"),
        (" ", None, "empty"),
    ],
)
def test_a_provider_that_is_named_but_unknown_is_an_error(model: str, provider: str | None, message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        detect(model, provider, EVERYTHING)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"FLOWENGINE_DEFAULT_MODEL": "qwen3", "OPENAI_API_KEY": "k"}, "qwen3"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "openai/gpt-4o-mini"),
        ({"GROQ_API_KEY": "k"}, "groq/openai/gpt-oss-20b"),
        ({"OLLAMA_BASE_URL": "http://o"}, "offline"),
        ({}, "offline"),
    ],
)
def test_the_default_model(environ: dict[str, str], name: str) -> None:
    found = default_model(environ)
    assert found.name == name
    assert (found.notice is not None) == (name == "offline")


@pytest.mark.parametrize(
    ("model", "environ", "provider"),
    [("openai/gpt-4o", {}, "OPENAI_API_KEY"), ("gemini-2.5-pro", {}, "GEMINI_API_KEY or GOOGLE_API_KEY")],
)
def test_a_missing_key_is_named_at_once(model: str, environ: dict[str, str], provider: str) -> None:
    with pytest.raises(ModelConfigError, match=f"set {provider}"):
        get_llm(model, environ=environ)
    assert get_llm(model, environ=environ, require_key=False).name


def test_without_any_setting_the_stand_in_is_taken() -> None:
    assert isinstance(get_llm(environ={}), OfflineModel)


def inside(model: Any) -> LiteLLMModel:
    assert isinstance(model, RetryingModel)
    assert isinstance(model._model, LiteLLMModel)
    return model._model


def test_keys_and_addresses_come_from_the_given_environment() -> None:
    azure = inside(get_llm("azure/mine", environ={"AZURE_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "http://z"}))
    assert azure._settings == {"api_key": "k", "api_base": "http://z"}
    assert inside(get_llm("qwen3", environ={}))._settings == {"api_base": "http://localhost:11434"}
    given = inside(get_llm("openai/x", environ={"OPENAI_API_KEY": "k"}, api_base="http://mine"))
    assert given._settings == {"api_key": "k", "api_base": "http://mine"}


def test_a_provider_alone_means_its_default_model_if_it_has_one() -> None:
    assert get_llm(provider="groq", environ={"GROQ_API_KEY": "k"}).name == "openai/gpt-oss-20b"
    with pytest.raises(ModelConfigError, match="ollama has no default model"):
        get_llm(provider="ollama", environ={})


def test_no_retries_means_no_wrapper() -> None:
    assert isinstance(get_llm("qwen3", environ={}, max_retries=0), LiteLLMModel)
