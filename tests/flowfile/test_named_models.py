"""Names of the project's own for models: what they say, where they may stand, and what is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.model_environment import NamedModels, open_model
from flowengine.agents.prompt.prompt_parts import find_token_budget
from flowengine.agents.settings import CallSettings, Surroundings
from flowengine.agents.standalone import run_sync
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import ModelConfigError, ProjectError
from flowengine.flow import Flow
from flowengine.flowfile.checks.agent_sources import check_models
from flowengine.flowfile.compile.compiler import load_plan
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.project.model_tables import MODEL_KEYS, read_models
from flowengine.flowfile.project.project import Project, find_project
from flowengine.flowfile.run_bundle import unpack_bundle
from flowengine.journal.memory import MemoryStore
from flowengine.models import key_command
from flowengine.models.call_options import OPTIONS
from flowengine.models.messages import Message
from flowengine.models.model import Request, TokenUsage
from flowengine.models.pricing import Price
from flowengine.models.worst_case import ModelFacts, worst_cases
from flowengine.runtime.run import Run
from flowengine.testing.cassette import Cassette
from tests.support.model_answers import Completion, Failure, Thinking, ToolCall
from tests.support.model_server import ModelServer

HEAD = "flowengine: v1\nname: sample\n"
KEY = "sk-of-the-project-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY", "FLOWENGINE_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(key_command, "_keys", {})
    with ModelServer() as running:
        yield running


def project_with(folder: Path, text: str) -> Project:
    (folder / "flowengine.toml").write_text(text)
    return find_project(folder)


def flow_in(folder: Path, settings: str, nodes: str, model: str | None = None, **environ: str) -> Flow:
    project_with(folder, settings)
    (folder / "flow.yaml").write_text(HEAD + nodes)
    return Flow.from_yaml(folder / "flow.yaml", model=model, environ=environ)


def around(project: Project, **environ: str) -> Surroundings:
    return Surroundings(
        environ, project.providers, project.prices, default_provider=project.default_provider, models=project.models
    )


def fast_at(server: ModelServer, more: str = "") -> str:
    return f"[models.fast]\nmodel = 'openai/gpt-4o-mini'\nbase_url = '{server.url}'\nkey_env = 'FAST_KEY'\n{more}"


def calls_of(run: Run) -> list[ModelCall]:
    found = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    return [record for record in found if type(record) is ModelCall]


# --- what a name says


def test_a_name_brings_address_key_and_options(tmp_path: Path, server: ModelServer) -> None:
    settings = fast_at(server, "options = {seed = 7, stop = 'END', model_options = {logit_bias = {a = 1}}}")
    flow = flow_in(tmp_path, settings, "nodes: {a: {model: fast, seed: 8, prompt: x}}", FAST_KEY=KEY)
    flow.run_sync().raise_for_status()
    (asked,) = server.requests
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["model"] == "gpt-4o-mini"
    assert {name: asked.body[name] for name in ("seed", "stop", "logit_bias")} == {
        "seed": 8,
        "stop": ["END"],
        "logit_bias": {"a": 1},
    }


@pytest.mark.parametrize(
    ("nodes", "model", "environ"),
    [
        ("nodes: {a: {model: fast, prompt: x}}", None, {}),
        ("nodes: {a: {prompt: x}}", "fast", {}),
        ("nodes: {a: {prompt: x}}", None, {"FLOWENGINE_DEFAULT_MODEL": "fast"}),
        ("nodes: {a: {model: openai/gpt-4o, prompt: x}}", "fast", {}),
        ("defaults: {agent: {model: fast}}\nnodes: {a: {prompt: x}}", None, {}),
    ],
    ids=["node", "option", "variable", "instead", "defaults"],
)
def test_a_name_may_stand_wherever_a_model_is_named(
    nodes: str, model: str | None, environ: dict[str, str], tmp_path: Path, server: ModelServer
) -> None:
    flow = flow_in(tmp_path, fast_at(server), nodes, model, FAST_KEY=KEY, **environ)
    flow.run_sync().raise_for_status()
    assert [each.body["model"] for each in server.requests] == ["gpt-4o-mini"]


def test_a_judge_a_fallback_and_a_compressor_have_names_too(tmp_path: Path, server: ModelServer) -> None:
    nodes = (
        "nodes:\n  a: {model: broken, fallbacks: [fast], max_retries: 0, prompt: x}\n"
        "  j: {type: evaluation, model: fast, target: '{{ nodes.a.output }}'}\n"
    )
    broken = f"[models.broken]\nmodel = 'openai/gpt-4o'\nbase_url = '{server.url}'\nkey_env = 'FAST_KEY'\n"
    server.respond_with(
        [Failure(400), Completion("ok"), Completion('{"score": 1, "criteria_scores": {}, "feedback": ""}')]
    )
    flow = flow_in(tmp_path, broken + "options = {seed = 1, top_p = 0.5}\n" + fast_at(server), nodes, FAST_KEY=KEY)
    flow.run_sync()
    first, second, *_ = server.requests
    assert (first.body["model"], first.body["seed"], first.body["top_p"]) == ("gpt-4o", 1, 0.5)
    assert second.body["model"] == "gpt-4o-mini"
    assert "seed" not in second.body  # What is said of one name is not said of the next.


def test_options_of_a_name_count_in_the_key_of_a_request_and_are_on_record(tmp_path: Path, server: ModelServer) -> None:
    keys: list[str] = []
    for number, options in enumerate(("", "options = {seed = 1}\n", "options = {seed = 2}\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        flow = flow_in(folder, fast_at(server, options), "nodes: {a: {model: fast, prompt: x}}", FAST_KEY=KEY)
        (call,) = calls_of(flow.run_sync())
        keys.append(call.key)
        assert call.request.get("extra") == ({"seed": number} if number else None)
        assert KEY not in repr(call)
    assert len(set(keys)) == 3


def test_a_temperature_that_is_not_said_gives_way_to_the_options_of_a_name(tmp_path: Path, server: ModelServer) -> None:
    settings = fast_at(server, "options = {top_p = 0.5}\n")
    nodes = "nodes: {a: {model: fast, prompt: x}, b: {model: fast, temperature: 0.3, prompt: y}}"
    flow_in(tmp_path, settings, nodes, FAST_KEY=KEY).run_sync().raise_for_status()
    assert sorted(each.body.get("temperature", -1) for each in server.requests) == [-1, 0.3]


def test_what_a_node_adds_to_a_name_is_checked_with_the_options_of_the_name(tmp_path: Path) -> None:
    text = "[models.deep]\nmodel = 'anthropic/claude-haiku-4-5'\noptions = {thinking = 4096}\n"
    project = project_with(tmp_path, text)
    spec = load_flow(text=HEAD + "nodes: {a: {model: deep, temperature: 0.3, max_tokens: 9000, prompt: x}}")
    (told,) = check_models(spec, ModelFacts({}, models=project.models))
    assert str(told).startswith("3:26: FE513 node 'a': model 'anthropic/claude-haiku-4-5' refuses `temperature`")


def test_a_deployment_is_asked_as_the_model_that_a_project_says_it_is(tmp_path: Path, server: ModelServer) -> None:
    settings = (
        f"[models.prod]\nmodel = 'azure/prod'\nbase_url = '{server.root}'\nkey_env = 'FAST_KEY'\n"
        "same_as = 'openai/gpt-5'\n[models.pro]\nmodel = 'azure/pro'\n"
        f"base_url = '{server.root}'\nkey_env = 'FAST_KEY'\napi = 'responses'\nefforts = ['high']\n"
    )
    nodes = "nodes: {a: {model: prod, max_tokens: 50, prompt: x}, b: {model: pro, needs: [a], prompt: y}}"
    flow_in(tmp_path, settings, nodes, FAST_KEY=KEY).run_sync().raise_for_status()
    first, second = server.requests
    assert (first.body.get("max_completion_tokens"), first.body.get("temperature")) == (50, None)
    assert second.path == "/openai/v1/responses"
    nodes = "nodes: {a: {model: prod, temperature: 0.2, prompt: x}, b: {model: pro, reasoning_effort: low, prompt: y}}"
    facts = ModelFacts({}, models=find_project(tmp_path).models)
    told = [str(each).partition("FE513 ")[2] for each in check_models(load_flow(text=HEAD + nodes), facts)]
    assert told == [
        "node 'a': model 'azure/prod' refuses `temperature`: it thinks before it answers, and takes 1 alone",
        "node 'b': model 'azure/pro' refuses `reasoning_effort`: it takes high",
    ]
    assert facts.of("prod").window == ModelFacts({}).of("openai/gpt-5").window


def test_price_window_and_longest_answer_of_a_name_hold(tmp_path: Path) -> None:
    text = (
        "[models.own]\nmodel = 'hosted_vllm/mine'\nbase_url = 'http://127.0.0.1:9'\nwindow = 3000\n"
        "longest_answer = 50\nimages = true\nprice = {input = 1, output = 10}\n"
    )
    project = project_with(tmp_path, text)
    known = ModelFacts({}, models=project.models).of("own")
    assert (known.window, known.longest, known.own_price, known.takes_images) == (3000, 50, Price(1.0, 10.0), True)
    model, _ = open_model(CallSettings("own", surroundings=around(project)))
    assert find_token_budget(model, None) == int((3000 - 50) * 0.8)
    worst = list(worst_cases(model, Request("mine", (Message("user", "hi"),))))
    assert worst[0].request.max_tokens == 50
    assert worst[0].price == Price(1.0, 10.0)


def test_a_run_costs_what_the_name_says(tmp_path: Path, server: ModelServer) -> None:
    server.respond_with([Completion("ok", usage={"prompt_tokens": 1000, "completion_tokens": 100})])
    settings = fast_at(server, "price = {input = 10, output = 100}")
    flow = flow_in(tmp_path, settings, "nodes: {a: {model: fast, prompt: x}}", FAST_KEY=KEY)
    (call,) = calls_of(flow.run_sync())
    assert call.cost_usd == pytest.approx(0.02)
    assert (call.prompt_tokens, call.completion_tokens) == TokenUsage(1000, 100)[:2]


def test_structured_output_of_a_name_decides_how_a_shape_is_asked_for(tmp_path: Path, server: ModelServer) -> None:
    shape = "{type: object, properties: {n: {type: integer}}, required: [n]}"
    nodes = f"nodes: {{a: {{model: own, prompt: x, output: {shape}}}}}"
    server.respond_with([Completion('{"n": 1}')] * 2)
    for number, way in enumerate(("json_object", "json_schema")):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"[models.own]\nmodel = 'hosted_vllm/mine'\nbase_url = '{server.url}'\nstructured_output = '{way}'\n"
        flow_in(folder, text, nodes).run_sync().raise_for_status()
        assert server.requests[-1].body["response_format"]["type"] == way


def test_an_embedder_has_a_name_of_the_projects_own(tmp_path: Path, server: ModelServer) -> None:
    text = (
        f"[models.vectors]\nmodel = 'openai/text-embedding-3-small'\nbase_url = '{server.url}'\nkey_env = 'FAST_KEY'\n"
    )
    project = project_with(tmp_path, text + "price = {input = 1000, output = 0}\n")
    model = NamedModels(around(project, FAST_KEY=KEY)).embedding("vectors")
    assert model is not None
    assert (model.provider, model.name) == ("openai", "text-embedding-3-small")


def test_a_cassette_of_a_name_records_its_options_and_plays_without_a_key(tmp_path: Path, server: ModelServer) -> None:
    nodes = "nodes: {a: {model: fast, prompt: x}}"
    settings = fast_at(server, "options = {seed = 7}\n")
    flow = flow_in(tmp_path, settings, nodes, FAST_KEY=KEY)
    Cassette(tmp_path / "a.cassette.yaml", "all").around(flow).run_sync().raise_for_status()
    assert server.requests[0].body["seed"] == 7
    played = Cassette(tmp_path / "a.cassette.yaml", "none")
    assert dict(played.calls[0].request.extra) == {"seed": 7}
    played.around(flow_in(tmp_path, settings, nodes)).run_sync().raise_for_status()
    assert len(server.requests) == 1
    changed = flow_in(tmp_path, fast_at(server, "options = {seed = 8}\n"), nodes)
    run = Cassette(tmp_path / "a.cassette.yaml", "none").around(changed).run_sync()
    assert "has no answer for this call" in str(run.error)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_records_cassettes_and_reuse_do_not_see_which_interface_was_asked(
    tmp_path: Path, server: ModelServer, api: str
) -> None:
    (tmp_path / "places_looked_at.py").write_text(
        'def look(at: str) -> str:\n    "Look somewhere."\n    return f"{at}: quiet"\n'
    )
    settings = "allow_calls = ['places_looked_at']\n" + fast_at(server, f"api = '{api}'\nthinks = true\n")
    nodes = "nodes: {a: {model: fast, tools: [places_looked_at:look], prompt: Look round}}"
    flow = flow_in(tmp_path, settings, nodes, FAST_KEY=KEY)
    asked = (ToolCall("look", {"at": "a"}, "call_a"), ToolCall("look", {"at": "b"}, "call_b"))
    answers = [Completion("I look.", asked, thinking=(Thinking(signature="secret thought"),)), "All is quiet."]
    server.respond_with([*answers, *answers])
    store = MemoryStore()
    first = run_sync(lambda: flow.run(store=store))
    assert (first.status, len(server.requests)) == ("succeeded", 2)
    assert {each.path for each in server.requests} == {
        "/v1/responses" if api == "responses" else "/v1/chat/completions"
    }
    calls = calls_of(first)
    assert [each.content for each in calls] == ["I look.", "All is quiet."]
    assert len(calls[0].tool_calls) == 2
    again = run_sync(lambda: flow.run(store=store, reuse=first.id))
    assert (again.outputs, len(server.requests)) == (first.outputs, 2)
    Cassette(tmp_path / "a.cassette.yaml", "all").around(flow).run_sync().raise_for_status()
    played = Cassette(tmp_path / "a.cassette.yaml", "none").around(flow).run_sync()
    assert (played.status, played.outputs, len(server.requests)) == ("succeeded", first.outputs, 4)


# --- keys


def test_a_variable_that_is_not_set_is_told_with_its_place_before_the_run(tmp_path: Path, server: ModelServer) -> None:
    flow = flow_in(tmp_path, fast_at(server), "nodes: {a: {model: fast, prompt: x}}", FAST_KEYS=KEY)
    with pytest.raises(ModelConfigError) as caught:
        flow.run_sync()
    told = str(caught.value)
    assert "model 'fast' (flowengine.toml:1:2) takes its key from FAST_KEY, which is not set" in told
    assert "did you mean 'FAST_KEYS'?" in told
    assert KEY not in told
    assert server.requests == []


@pytest.mark.parametrize("under", ["[models.fast]\nmodel = 'openai/gpt-4o-mini'\n", "[providers.openai]\n"])
def test_a_command_gives_the_key_once(under: str, tmp_path: Path, server: ModelServer) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'a').write('x'); print({KEY!r})"
    command = f"key_command = {[sys.executable, '-c', code]!r}\nbase_url = '{server.url}'\n"
    nodes = "nodes: {a: {model: %s, prompt: x}, b: {model: %s, prompt: y}}"
    name = "fast" if "models" in under else "openai/gpt-4o-mini"
    flow = flow_in(tmp_path, under + command, nodes % (name, name), OPENAI_API_KEY="another")
    flow.run_sync().raise_for_status()
    assert {each.headers["authorization"] for each in server.requests} == {f"Bearer {KEY}"}
    assert ran.read_text() == "x"
    assert KEY not in repr(flow.plan)


@pytest.mark.anyio
async def test_the_loop_goes_on_while_a_command_runs(tmp_path: Path, server: ModelServer) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    os.mkfifo(begun)
    code = (
        f"import pathlib, time; open({str(begun)!r}).read()\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        f"print({KEY!r})"
    )
    settings = f"[models.fast]\nmodel = 'openai/gpt-4o-mini'\nbase_url = '{server.url}'\n"
    settings += f"key_command = {[sys.executable, '-c', code]!r}\n"
    flow = flow_in(tmp_path, settings, "nodes: {a: {model: fast, prompt: x}}")

    async def unlock() -> None:
        await anyio.to_thread.run_sync(begun.write_text, "the command reads")
        go.touch()  # By the loop, which is free while the command waits.

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unlock)
        (await flow.run()).raise_for_status()
    assert len(server.requests) == 1


def test_checking_and_looking_up_run_no_command(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = [sys.executable, "-c", f"open({str(ran)!r}, 'w')"]
    project = project_with(tmp_path, f"[models.fast]\nmodel = 'openai/gpt-4o-mini'\nkey_command = {command!r}\n")
    (tmp_path / "flow.yaml").write_text(HEAD + "nodes: {a: {model: fast, prompt: x}}")
    assert check_models(load_flow(tmp_path / "flow.yaml"), ModelFacts({}, models=project.models)) == []
    Flow.from_yaml(tmp_path / "flow.yaml", environ={})
    assert not ran.exists()
    assert "python" not in repr(project.models["fast"])


# --- what is wrong

FAST = "[models.fast]\nmodel = 'openai/gpt-4o-mini'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[models]\nfast = 3", "flowengine.toml:2:1: FE502 'fast' in `models` is a table with the key 'model'"),
        ("models = []", "FE502 'models' is a table"),
        ("[models.openai]\nmodel = 'openai/x'", "flowengine.toml:1:2: FE502 'openai' in `models` is the name of a v"),
        ("[models.gemini]\nmodel = 'openai/x'", "'gemini' in `models` is the name of a vendor"),
        ("[models.offline]\nmodel = 'openai/x'", "'offline' in `models` is the name of a vendor"),
        ("[models.gpt-4o]\nmodel = 'openai/x'", "'gpt-4o' in `models` is the name of a vendor's own model"),
        ("[models.gpt-99]\nmodel = 'openai/x'", "'gpt-99' in `models` is the name of a vendor's own model"),
        ("[models.text-embedding-3-small]\nmodel = 'openai/x'", "is the name of a vendor's own model"),
        ("[models.'a/b']\nmodel = 'openai/x'", "'a/b' in `models` is no name"),
        ("[models.'ollama:x']\nmodel = 'openai/x'", "'ollama:x' in `models` is no name"),
        ("[models.'']\nmodel = 'openai/x'", "is no name"),
        ("[models.fast]\n", "flowengine.toml:1:2: FE502 model 'fast' lacks the key 'model'"),
        ("[models.fast]\nmodel = 3", "flowengine.toml:2:1: FE502 'model' of model 'fast' is a text such as"),
        (
            "[models.fast]\nmodel = 'opnai/x'",
            "flowengine.toml:2:1: FE502 'model' of model 'fast': unknown provider",
        ),
        ("[models.fast]\nmodel = 'http://x/y'", "'http://x/y' is no model's name"),
        (FAST + "[models.slow]\nmodel = 'fast'", "flowengine.toml:4:1: FE502 'model' of model 'slow' is another name"),
        (
            FAST + "base_ur = 'x'",
            "flowengine.toml:3:1: FE502 unknown key 'base_ur' of model 'fast'; did you mean",
        ),
        (FAST + "api_key = 'sk-1'", "unknown key 'api_key' of model 'fast'; did you mean 'key_env'?"),
        (FAST + "zzz = 1", "unknown key 'zzz' of model 'fast'; it takes model, base_url"),
        (FAST + "base_url = 'example.org'", "'base_url' of model 'fast' is an address that starts with http"),
        (FAST + "key_env = 'sk-1-secret'", "'key_env' of model 'fast' is the name of an environment variable, not its"),
        (FAST + "key_command = []", "flowengine.toml:3:1: FE502 'key_command' of model 'fast' is a command"),
        (
            FAST + "key_env = 'A'\nkey_command = 'op'",
            "flowengine.toml:4:1: FE502 the key of model 'fast' comes from",
        ),
        (FAST + "window = 0", "'window' of model 'fast' is a whole number of at least 1"),
        (FAST + "longest_answer = true", "'longest_answer' of model 'fast' is a whole number"),
        (FAST + "images = 'yes'", "'images' of model 'fast' is true or false"),
        (FAST + "structured_output = 'json_schem'", "did you mean 'json_schema'?"),
        (
            FAST + "adapter = 'nativ'",
            "'adapter' of model 'fast' is one of native, litellm, not str 'nativ'",
        ),
        (
            "[models.fast]\nmodel = 'bedrock/x'\nadapter = 'native'",
            "cannot be native: bedrock is reached",
        ),
        (FAST + "price = {input = 1}", "flowengine.toml:3:1: FE502 the price of 'fast' lacks 'output'"),
        (FAST + "price = {input = 1, output = -2}", "'output' of the price of 'fast' is a number of at least 0"),
        (
            FAST + "options = {top_p = 3}",
            "flowengine.toml:3:12: FE502 model 'fast': top_p must be a number",
        ),
        (FAST + "options = {top_pp = 3}", "unknown option 'top_pp' of model 'fast'; did you mean 'top_p'?"),
        (FAST + "options = {temperature = 1}", "unknown option 'temperature' of model 'fast'; the node or the agent"),
        (
            FAST + "options = {model_options = {api_base = 'x'}}",
            "3:29: FE502 model 'fast': 'api_base' may not",
        ),
        (FAST + "options = {reasoning_effort = 'low'}", "3:12: FE502 model 'fast' (openai/gpt-4o-mini) refuses `reas"),
        ("[providers.openai]\nkey_env = 'sk-1-secret'", "'key_env' of provider 'openai' is the name of an environment"),
        ("[providers.openai]\nmax_parallel = 0", "flowengine.toml:2:1: FE502 'max_parallel' of provider 'openai' is"),
        ("[providers.opnai]", "flowengine.toml:1:2: FE502 unknown provider 'opnai' in `providers`; did you mean 'op"),
        ("[prices.'a/b']\ninput = 1\noutptu = 2", "flowengine.toml:3:1: FE502 unknown key 'outptu' of the price"),
        ("allow_env = []\nstor = 'x'", "flowengine.toml:2:1: FE502 unknown key 'stor'; did you mean 'store'?"),
        ("[providers.openai]\nkey_command = 3", "'key_command' of provider 'openai' is a command"),
        (
            "[providers.openai]\nkey_env = 'A'\nkey_command = 'op'",
            "the key of provider 'openai' comes from",
        ),
    ],
)
def test_what_is_wrong_with_a_name_is_told_with_its_place(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        project_with(tmp_path, text)
    assert expected in str(caught.value)
    assert "sk-1" not in str(caught.value)


WORDS = st.text(max_size=8) | st.sampled_from(["low", "fast", "op 'x", "openai/gpt-5", "json_schema", "http://x"])
OPTION_NAMES = st.sampled_from([*OPTIONS, "model_options", "input", "output", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(OPTION_NAMES, inner, max_size=3),
    max_leaves=8,
)
DEFINITIONS = st.fixed_dictionaries({"model": VALUES}, optional=dict.fromkeys([*MODEL_KEYS][1:], VALUES))
TABLES = st.dictionaries(st.sampled_from(["fast", "openai", "a/b", ""]) | WORDS, VALUES | DEFINITIONS, max_size=3)


@settings(deadline=None)
@given(TABLES)
def test_whatever_the_table_holds_is_read_or_told(table: dict[str, Any]) -> None:
    told: list[str] = []

    def tell(message: str, hint: str = "", path: tuple[str, ...] = ()) -> None:
        assert path[0] == "models"
        told.append(message)

    found = read_models(table, tell, lambda path: "flowengine.toml")
    assert told or len(found) == len(table)
    assert all(each.model and not (each.key_env and each.key_command) for each in found.values())


def test_places_are_those_of_a_pyproject_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n\n[tool.flowengine.models.fast]\nmodle = 'x'\n")
    with pytest.raises(ProjectError, match=r"pyproject\.toml:5:1: FE502 unknown key 'modle' .* did you mean 'model'"):
        find_project(tmp_path)


def test_a_misspelt_name_is_told_with_the_nearest_of_the_project(tmp_path: Path) -> None:
    project = project_with(tmp_path, FAST)
    spec = load_flow(text=HEAD + "nodes: {a: {model: fsat, prompt: x}}")
    (told,) = check_models(spec, ModelFacts({}, models=project.models))
    assert str(told) == "3:20: FE511 node 'a': no model 'fsat' is in `models` of the project file; did you mean 'fast'?"


# --- those who bring their own


def test_a_run_from_elsewhere_uses_the_names_of_this_machine(tmp_path: Path, server: ModelServer) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    evil = f"[models.fast]\nmodel = 'openai/gpt-4o'\nbase_url = 'http://evil.example'\n{FAST.replace('fast', 'theirs')}"
    project_with(home, evil)
    (home / "flow.yaml").write_text(HEAD + "nodes: {a: {model: fast, prompt: x}}")
    bag = load_plan(home / "flow.yaml", environ={}).baggage
    assert "evil" not in repr(bag)
    project_with(here, fast_at(server))
    told = {**bag, "project": {"models": {"fast": {"model": "openai/evil"}}}}
    project = unpack_bundle(told, here / "f.yaml", find_project(here)).project
    assert list(project.models) == ["fast"]
    assert project.models["fast"].base_url == server.url


def test_a_run_from_elsewhere_names_neither_commands_nor_variables_for_keys(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    said = {"openai": {"key_command": ["touch", str(ran)], "max_parallel": 2}, "groq": {"key_env": "OPENAI_API_KEY"}}
    own = project_with(tmp_path, "")
    found = unpack_bundle({"project": {"providers": said}}, tmp_path / "f.yaml", own).project.providers
    assert [(each.key_env, each.key_command) for each in found.values()] == [(None, None)] * 2
    assert not ran.exists()


def test_this_machines_keys_go_to_no_address_of_a_run_from_elsewhere(tmp_path: Path) -> None:
    own = project_with(tmp_path, "[models.fast]\nmodel = 'openai/gpt-4o-mini'\nkey_env = 'FAST_KEY'\n")
    bag = {"project": {"providers": {"openai": {"base_url": "http://evil.example"}}}}
    project = unpack_bundle(bag, tmp_path / "f.yaml", own).project
    with pytest.raises(ModelConfigError, match="keys go only to addresses that are named here"):
        open_model(CallSettings("fast", surroundings=around(project, FAST_KEY=KEY)))


def test_a_vendor_that_needs_no_key_is_sent_none_at_an_address_of_a_run_from_elsewhere(
    tmp_path: Path, server: ModelServer
) -> None:
    own = project_with(tmp_path, "[providers.ollama]\nkey_env = 'FAST_KEY'\n")
    bag = {"project": {"providers": {"ollama": {"base_url": server.url}}}}
    foreign = unpack_bundle(bag, tmp_path / "f.yaml", own).project
    for project in (own, foreign):
        there = around(project, FAST_KEY=KEY, OLLAMA_BASE_URL=server.url)
        model = open_model(CallSettings("ollama/x", surroundings=there, max_retries=0))[0]
        anyio.run(model.complete, Request("x", (Message("user", "hi"),), timeout=10))
    assert [each.headers.get("authorization") for each in server.requests] == [f"Bearer {KEY}", None]


def test_a_name_keeps_its_own_address_whatever_a_run_says_of_the_vendor(tmp_path: Path, server: ModelServer) -> None:
    own = project_with(tmp_path, fast_at(server))
    bag = {"project": {"providers": {"openai": {"base_url": "http://evil.example"}}}}
    project = unpack_bundle(bag, tmp_path / "f.yaml", own).project
    assert open_model(CallSettings("fast", surroundings=around(project, FAST_KEY=KEY)))[0].name == "gpt-4o-mini"
