"""What a project file says of vendors: checked, and kept by every node whose model is given by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.model_environment import open_model
from flowengine.agents.settings import CallSettings, Surroundings
from flowengine.errors import ProjectError
from flowengine.flow import Flow
from flowengine.flowfile.project.project import find_project
from flowengine.models.definitions import innermost_models
from flowengine.models.http.native_model import NativeModel
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.vendors import ProviderSettings, RateLimits
from flowengine.models.wrappers import rate
from tests.support.model_server import ModelServer

HEAD = "flowengine: v1\nname: sample\n"
PARALLEL = "nodes:\n" + "".join(f"  {name}: {{prompt: x, model: openai/gpt-4o-mini}}\n" for name in "abc")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Keys without addresses, so that only the project file leads to the server; limiters of its own."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "FLOWENGINE_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setattr(rate, "_limiters", {})
    with ModelServer() as running:
        yield running


def flow_in(folder: Path, settings: str, nodes: str) -> Flow:
    (folder / "flowengine.toml").write_text(settings)
    (folder / "flow.yaml").write_text(HEAD + nodes)
    return Flow.from_yaml(folder / "flow.yaml")


def project_with(folder: Path, text: str) -> Any:
    (folder / "flowengine.toml").write_text(text)
    return find_project(folder)


# --- what the file says


def test_a_vendors_address_and_limits_are_read(tmp_path: Path) -> None:
    text = (
        "[providers.openai]\nrequests_per_minute = 60\ntokens_per_minute = 9000\nmax_parallel = 4\n"
        "[providers.gemini]\nbase_url = 'https://example.org/v1'\n[providers.groq]\n"
    )
    assert project_with(tmp_path, text).providers == {
        "openai": ProviderSettings(None, RateLimits(60, 9000, 4)),
        "google": ProviderSettings("https://example.org/v1", None),
        "groq": ProviderSettings(None, None),
    }


def test_who_asks_a_vendor_and_how_it_takes_shapes_is_read(tmp_path: Path) -> None:
    text = "[providers.groq]\nadapter = 'litellm'\n[providers.vllm]\nstructured_output = 'tool'\n"
    assert project_with(tmp_path, text).providers == {
        "groq": ProviderSettings(adapter="litellm"),
        "hosted_vllm": ProviderSettings(structured_output="tool"),
    }


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (ProviderSettings(), NativeModel),
        (ProviderSettings(adapter="native"), NativeModel),
        (ProviderSettings(adapter="litellm"), LiteLLMModel),
    ],
)
def test_the_project_says_who_asks_a_vendor(settings: ProviderSettings, kind: type) -> None:
    around = Surroundings({"OPENAI_API_KEY": "k"}, {"openai": settings})
    model, _ = open_model(CallSettings("openai/gpt-4o", surroundings=around))
    (innermost,) = innermost_models(model)
    assert type(innermost) is kind


def test_the_project_says_how_a_vendor_takes_shapes() -> None:
    around = Surroundings({"OPENAI_API_KEY": "k"}, {"openai": ProviderSettings(structured_output="prompt")})
    (model,) = innermost_models(open_model(CallSettings("openai/gpt-4o", surroundings=around))[0])
    assert isinstance(model, NativeModel)
    assert model.traits.structured_output == "prompt"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[providers.opnai]", "FE502 unknown provider 'opnai' in `providers`; did you mean 'openai'?"),
        ("[providers.offline]", "FE502 unknown provider 'offline' in `providers`"),
        ("[providers]\nopenai = 3", "FE502 'openai' in `providers` is a table"),
        ("[providers.google]\n[providers.gemini]", "'gemini' in `providers` is 'google' in another spelling"),
        ("[providers.openai]\nmax_paralel = 1", "unknown key 'max_paralel' of provider 'openai'; did you mean 'max_p"),
        ("[providers.openai]\nzzz = 1", "unknown key 'zzz' of provider 'openai'; it takes base_url, requests_per_"),
        ("[providers.openai]\nmax_parallel = 0", "'max_parallel' of provider 'openai' is a whole number of at least"),
        ("[providers.openai]\nmax_parallel = true", "'max_parallel' of provider 'openai' is a whole number"),
        ("[providers.openai]\ntokens_per_minute = 1.5", "'tokens_per_minute' of provider 'openai' is a whole number"),
        ("[providers.openai]\nbase_url = 'example.org'", "'base_url' of provider 'openai' is an address that starts"),
        (
            "[providers.openai]\nadapter = 'http'",
            "'adapter' of provider 'openai' is one of native, litellm, not 'http'",
        ),
        ("[providers.bedrock]\nadapter = 'native'", "'adapter' of provider 'bedrock' cannot be native"),
        ("[providers.openai]\nstructured_output = 3", "is one of json_schema, json_object, tool, prompt, not 3"),
    ],
)
def test_what_is_wrong_with_a_provider_is_told(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        project_with(tmp_path, text)
    assert expected in str(caught.value)


# --- what becomes of it


def test_nodes_in_parallel_never_overlap_where_one_call_at_once_is_allowed(tmp_path: Path, server: ModelServer) -> None:
    server.latency = 0.05
    flow = flow_in(tmp_path, f"[providers.openai]\nmax_parallel = 1\nbase_url = '{server.url}'", PARALLEL)
    flow.run_sync().raise_for_status()
    spans = sorted((each.arrived, each.answered or 0.0) for each in server.requests)
    assert len(spans) == 3
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


@pytest.mark.long
def test_without_a_limit_they_do_overlap(tmp_path: Path, server: ModelServer) -> None:
    server.latency = 2.0
    flow = flow_in(tmp_path, f"[providers.openai]\nbase_url = '{server.url}'", PARALLEL)
    flow.run_sync().raise_for_status()
    spans = sorted((each.arrived, each.answered or 0.0) for each in server.requests)
    assert spans[1][0] < spans[0][1]


def test_requests_a_minute_are_counted_over_nodes_and_runs(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rate.RateLimiter.__init__.__kwdefaults__, "minute", 0.5)
    settings = f"[providers.openai]\nrequests_per_minute = 2\nbase_url = '{server.url}'"
    flow = flow_in(tmp_path, settings, PARALLEL)
    began = time.monotonic()
    flow.run_sync().raise_for_status()
    flow.run_sync().raise_for_status()
    assert time.monotonic() - began >= 1.0, "six requests, two in any half second"
    assert len(server.requests) == 6


def test_judges_routers_and_fallbacks_keep_to_the_same_limits(tmp_path: Path) -> None:
    nodes = (
        "nodes:\n  a: {prompt: x, model: groq/m, fallbacks: [openai/gpt-4o], improve: {model: openai/o3-mini}}\n"
        "  j: {type: evaluation, needs: [a], model: openai/gpt-4o-mini}\n"
        "  r: {type: routing, needs: [a], model: openai/gpt-4o-mini, instruction: i, routes: {x: b}}\n"
        "  b: {prompt: 'x'}\n"
    )
    nodes_of = flow_in(tmp_path, "[providers.openai]\nmax_parallel = 3", nodes).plan.definitions
    agents: list[Any] = [nodes_of["a"], nodes_of["j"], nodes_of["r"]]
    found = [agents[0].agent, agents[0].agent.evaluator, agents[1].judge, agents[2].agent]
    said = {"openai": ProviderSettings(None, RateLimits(max_parallel=3))}
    assert [each.settings.surroundings.providers for each in found] == [said] * 4


def test_one_limiter_serves_every_model_of_a_vendor(tmp_path: Path, server: ModelServer) -> None:
    nodes = "nodes: {a: {prompt: x, model: openai/gpt-4o}, b: {prompt: y, model: gpt-4o-mini}}"
    definitions = flow_in(tmp_path, "[providers.openai]\nmax_parallel = 2", nodes).plan.definitions
    nodes_of: list[Any] = [definitions["a"], definitions["b"]]
    opened: list[Any] = [open_model(each.agent.settings)[0] for each in nodes_of]
    first, second = (each._model._limiter for each in opened)
    assert first is second
    assert first.limits == RateLimits(max_parallel=2)


def test_a_change_of_the_limits_is_no_change_of_the_flow(tmp_path: Path) -> None:
    before = flow_in(tmp_path, "", PARALLEL).plan.fingerprints
    assert flow_in(tmp_path, "[providers.openai]\nmax_parallel = 2", PARALLEL).plan.fingerprints == before
