from __future__ import annotations

from typing import Any

import pytest

from flowengine.errors import ModelConfigError
from flowengine.models.http.native_model import NativeModel
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.offline.model import OfflineModel
from flowengine.models.open import default_model, get_llm
from flowengine.models.vendor_choice import VendorQuestion, choose
from flowengine.models.vendors import OTHERS, VENDORS
from flowengine.models.wrappers.retrying import RetryingModel
from tests.support.vendor_names import detect

EVERYTHING = {
    "OLLAMA_BASE_URL": "http://o",
    "LM_STUDIO_BASE_URL": "http://l",
    "OPENROUTER_API_KEY": "r",
    "GROQ_API_KEY": "g",
    "ANTHROPIC_API_KEY": "a",
    "AZURE_OPENAI_ENDPOINT": "http://z",
}
LOCAL = {"OLLAMA_HOST": "127.0.0.1:11434"}


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
        ("llama3.2:3b", None, LOCAL, ("ollama", "llama3.2:3b")),
        ("mistral:7b", None, LOCAL, ("ollama", "mistral:7b")),
        ("meta-llama/llama-3-70b", None, LOCAL, ("ollama", "meta-llama/llama-3-70b")),
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
        ("offline", None, EVERYTHING, ("offline", "offline")),
        # the table of models
        ("o1", None, {}, ("openai", "o1")),
        ("text-embedding-3-small", None, LOCAL, ("openai", "text-embedding-3-small")),
        ("deepseek-chat", None, {}, ("deepseek", "deepseek-chat")),
        ("ft:gpt-3.5-turbo:mine", None, {}, ("openai", "ft:gpt-3.5-turbo:mine")),
        # a key draws only names that its vendor has
        ("qwen/qwen3.8-27b", None, {"GROQ_API_KEY": "g"}, ("groq", "qwen/qwen3.8-27b")),
        ("whisper-large-v3-turbo", None, {"GROQ_API_KEY": "g"}, ("groq", "whisper-large-v3-turbo")),
        # the default vendor, for names that no table knows
        ("qwen3", None, LOCAL, ("ollama", "qwen3")),
        ("qwen3", None, {"OLLAMA_API_BASE": "http://o"}, ("ollama", "qwen3")),
        ("qwen3", None, {"OLLAMA_BASE_URL": "http://o"}, ("ollama", "qwen3")),
        ("qwen3", None, {"OPENAI_BASE_URL": "http://v"}, ("openai", "qwen3")),
        ("Qwen/Qwen3-8B", None, {"OPENAI_BASE_URL": "http://v"}, ("openai", "Qwen/Qwen3-8B")),
        ("my-deployment", None, {"AZURE_OPENAI_ENDPOINT": "http://z"}, ("azure", "my-deployment")),
        ("qwen3", None, {"GROQ_API_KEY": "g", "ANTHROPIC_API_KEY": "a", **LOCAL}, ("ollama", "qwen3")),
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
    ("model", "message"),
    [
        ("gtp-4o-mini", r"no vendor is known to have a model 'gtp-4o-mini'.*did you mean 'gpt-4o-mini'"),
        ("qwen2.5-7b", r"write whose it is, as in ollama/qwen2\.5-7b"),
        ("llama3.2:3b", r"OLLAMA_HOST or OPENAI_BASE_URL in the environment, `default_provider` in the project file"),
        (
            "mistralai/Mistral-7B",
            r"did you mean 'mistral'\? For a model of that name write .* openai/mistralai/Mistral-7B",
        ),
        ("vllms/foo", r"unknown provider 'vllms' in model 'vllms/foo'.*did you mean 'vllm'"),
        ("meta-llama/llama-3-70b", r"unknown provider 'meta-llama'"),
    ],
)
@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": "k"}, {"GROQ_API_KEY": "g", "ANTHROPIC_API_KEY": "a"}])
def test_a_name_that_no_table_knows_is_an_error_unless_there_is_a_default_vendor(
    model: str, message: str, environ: dict[str, str]
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        detect(model, environ=environ)


def test_the_project_names_the_vendor_of_names_that_no_table_knows() -> None:
    environ = {"OLLAMA_BASE_URL": "http://o", "OPENAI_API_KEY": "k"}
    assert detect("qwen3", environ=environ, default_provider="hosted_vllm") == ("hosted_vllm", "qwen3")
    assert detect("gpt-4o", environ=environ, default_provider="hosted_vllm") == ("openai", "gpt-4o")
    assert detect("groq/qwen3", environ=environ, default_provider="hosted_vllm") == ("groq", "qwen3")


@pytest.mark.parametrize(
    ("model", "environ", "variable"),
    [
        ("gpt-4o", {"ANTHROPIC_API_KEY": "a"}, "ANTHROPIC_API_KEY"),
        ("qwen3", LOCAL, "OLLAMA_HOST"),
        ("qwen3", {"OPENAI_BASE_URL": "http://v"}, "OPENAI_BASE_URL"),
    ],
)
def test_where_the_environment_decided_there_is_a_notice(model: str, environ: dict[str, str], variable: str) -> None:
    choice = choose(VendorQuestion(model, None, environ))
    assert choice.notice == (
        f"model '{model}' goes to {choice.provider}, since {variable} is set; "
        f"write {choice.provider}/{model} to fix that in the file"
    )
    for fixed in (f"{choice.provider}/{model}", "gpt-4o-mini", "offline"):
        assert choose(VendorQuestion(fixed, None, {**environ, "OPENAI_API_KEY": "k"})).notice is None


ADDRESSED = ["azure", "azure_ai", "databricks", "hosted_vllm", "litellm_proxy", "watsonx"]


@pytest.mark.parametrize("provider", ADDRESSED)
def test_a_vendor_without_an_address_of_its_own_needs_one(provider: str) -> None:
    vendor = {**VENDORS, **OTHERS}[provider]
    keys = dict.fromkeys(vendor.key_variables, "k")
    with pytest.raises(
        ModelConfigError, match=rf"needs an address: set {vendor.base_variables[0]}.*providers\.{provider}"
    ):
        get_llm(f"{provider}/m", environ=keys)
    assert get_llm(f"{provider}/m", environ={**keys, vendor.base_variables[0]: "http://mine"}).name == "m"
    assert get_llm(f"{provider}/m", environ=keys, api_base="http://mine").name == "m"


def test_every_vendor_that_is_no_fixed_place_is_one_that_needs_an_address() -> None:
    """What litellm does without an address was looked at vendor by vendor: these go astray, or ask for one."""
    every = {**VENDORS, **OTHERS}
    assert [name for name, vendor in every.items() if vendor.needs_address] == ADDRESSED
    assert all(every[name].default_base is None and every[name].base_variables for name in ADDRESSED)


def test_a_server_of_ones_own_gets_no_key_of_another_vendor() -> None:
    """litellm would send OPENAI_API_KEY to it."""
    environ = {"LITELLM_PROXY_API_BASE": "http://mine", "HOSTED_VLLM_API_BASE": "http://mine", "OPENAI_API_KEY": "k"}
    for name in ("litellm_proxy/m", "hosted_vllm/m"):
        through = inside(get_llm(name, environ=environ, adapter="litellm"))
        assert through._settings == {"api_key": "none", "api_base": "http://mine"}
    assert connection_of("hosted_vllm/m", environ) == {"api_key": "none", "api_base": "http://mine/v1"}


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
    azure = {"AZURE_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "http://z"}
    assert connection_of("azure/mine", azure) == {"api_key": "k", "api_base": "http://z"}
    assert connection_of("ollama/qwen3", {}) == {"api_base": "http://localhost:11434/v1"}
    assert connection_of("qwen3", {"OLLAMA_HOST": "gpu:1"}) == {"api_base": "http://gpu:1/v1"}
    given = connection_of("openai/x", {"OPENAI_API_KEY": "k"}, api_base="http://mine/api")
    assert given == {"api_key": "k", "api_base": "http://mine/api"}
    through = inside(get_llm("ollama/qwen3", environ={}, adapter="litellm"))
    assert through._settings == {"api_base": "http://localhost:11434"}


def connection_of(name: str, environ: dict[str, str], **settings: Any) -> dict[str, Any]:
    model = get_llm(name, environ=environ, max_retries=0, **settings)
    assert isinstance(model, NativeModel)
    return dict(model._endpoint.settings)


def test_a_provider_alone_means_its_default_model_if_it_has_one() -> None:
    assert get_llm(provider="groq", environ={"GROQ_API_KEY": "k"}).name == "openai/gpt-oss-20b"
    with pytest.raises(ModelConfigError, match="ollama has no default model"):
        get_llm(provider="ollama", environ={})


def test_no_retries_means_no_wrapper() -> None:
    assert isinstance(get_llm("ollama/qwen3", environ={}, max_retries=0), NativeModel)


@pytest.mark.parametrize("address", ["http://[::1", "http://me:pa/ss@host", "127.0.0.1:port"])
@pytest.mark.parametrize("model", ["openai/gpt-4o", "cohere/command"])
def test_an_address_that_cannot_be_one_is_an_error_without_its_text(model: str, address: str) -> None:
    with pytest.raises(ModelConfigError, match=r"the address of \w+ is none") as caught:
        get_llm(model, environ={"OPENAI_API_KEY": "k", "COHERE_API_KEY": "k"}, api_base=address)
    assert address not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("opnai:gpt-4o", r"did you mean 'openai:gpt-4o'\?"),
        ("OPENAI:gpt-4o", r"did you mean 'openai:gpt-4o'\?"),
        ("OpenAI/gpt-4o", r"unknown provider 'OpenAI' in model 'OpenAI/gpt-4o'; did you mean 'openai'\?"),
        ("GPT-4o", r"did you mean 'gpt-4o'\?"),
        ("Offline", r"did you mean 'offline'\?"),
        ("openai/", "'openai/' names a provider and no model"),
        ("openai:", "'openai:' names a provider and no model"),
        ("mistral:7b", r"as in ollama/mistral:7b$"),
    ],
)
def test_a_slip_in_a_models_name_gets_the_nearest_one(model: str, message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        detect(model, environ={})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 5}, "a model is named by text, not int"),
        ({"provider": 5}, "a provider is named by text, not int"),
        ({"provder": "openai"}, r"unknown argument 'provder'; did you mean 'provider'\?"),
        ({"temprature": 0.1}, r"unknown argument 'temprature'; did you mean 'temperature'\?"),
        ({"api_bas": "http://127.0.0.1"}, r"unknown argument 'api_bas'; did you mean 'api_base'\?"),
        ({"api_base": 5}, "api_base is text, not int"),
        ({"timeout": 30}, "'timeout' is given to an agent, or with each Request"),
        ({"max_retries": "3"}, "max_retries must be a whole number of at least 0, not '3'"),
        ({"limits": {"requests_per_minute": 3}}, "limits are RateLimits, not dict"),
        ({"adapter": "litelm"}, "adapter is native or litellm, not 'litelm'"),
        ({"structured_output": "jsn"}, "structured_output is one of json_schema, .*not 'jsn'"),
    ],
)
def test_a_wrong_argument_is_refused_before_a_vendor_sees_it(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        get_llm(**{"model": "gpt-4o", "environ": {"OPENAI_API_KEY": "k"}, **arguments})
