"""What a run takes along to another machine, and what that machine makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.model_environment import open_model
from flowengine.agents.settings import CallSettings, Surroundings
from flowengine.errors import DefinitionError, FlowError, ModelConfigError
from flowengine.flowfile.compile.compiler import load_plan
from flowengine.flowfile.project.project import Project, find_project
from flowengine.flowfile.run_bundle import unpack_bundle
from flowengine.models.definitions import innermost_models
from flowengine.models.http.native_model import NativeModel
from flowengine.models.vendors import OTHERS, VENDORS, ProviderSettings, RateLimits, is_stand_in, needs_key

LEAF = """\
flowengine: v1
name: leaf
nodes: {a: {prompt: 'Say {{ env.TONE }}', model: offline}}
outputs: {x: '{{ nodes.a.output }}'}
"""
INNER = """\
flowengine: v1
name: inner
nodes: {s: {type: subflow, flow: ../leaf.yaml}}
outputs: {x: '{{ nodes.s.output.x }}'}
"""
MAIN = """\
flowengine: v1
name: main
nodes: {s: {type: subflow, flow: ../parts/inner.yaml}}
outputs: {x: '{{ nodes.s.output.x }}'}
"""
PROJECT = """
allow_calls = ["shutil"]
allow_env = ["TONE"]
allow_mcp = ["python"]
[providers.openai]
base_url = "https://models.example/v1"
requests_per_minute = 60
[providers.anthropic]
base_url = "https://ann:secret@models.example/v1"
[prices."local/model"]
input = 1
output = 2
[memory]
store = "elsewhere/memory.db"
limit = 7
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the run comes from."""
    home = tmp_path / "home"
    for name, text in {
        "flows/main.yaml": MAIN,
        "parts/inner.yaml": INNER,
        "leaf.yaml": LEAF,
        "flowengine.toml": PROJECT,
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """A folder of another machine, where nothing is."""
    away = tmp_path / "away"
    away.mkdir()
    return away


def packed(home: Path) -> Any:
    """The baggage as a journal gives it back."""
    return json.loads(json.dumps(load_plan(home / "flows" / "main.yaml", environ={"TONE": "hush"}).baggage))


def test_files_of_flows_inside_flows_go_along_by_their_paths_from_the_root(home: Path) -> None:
    bag = packed(home)
    assert bag["path"] == "flows/main.yaml"
    assert bag["files"] == {"parts/inner.yaml": INNER, "leaf.yaml": LEAF}


def test_a_flow_is_packed_as_it_was_named_wherever_the_process_goes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    plan = load_plan(Path("flows") / "main.yaml", environ={"TONE": "hush"})
    monkeypatch.chdir(tmp_path)
    assert plan.baggage == packed(home)


def test_neither_a_secret_nor_what_may_be_called_goes_along(home: Path) -> None:
    bag = packed(home)
    assert bag["project"] == {
        "allow_env": ["TONE"],
        "providers": {
            "openai": {"base_url": "https://models.example/v1", "requests_per_minute": 60},
            "anthropic": {},
        },
        "prices": {"local/model": {"input": 1, "output": 2, "per_call": 0}},
        "memory": {"limit": 7},
    }
    assert "secret" not in json.dumps(bag)
    assert "hush" not in json.dumps(bag)


def test_a_folder_with_nothing_in_it_builds_the_flow(home: Path, away: Path) -> None:
    path, project, files = unpack_bundle(packed(home), away / "main.yaml", find_project(away))
    there = load_plan(path, text=MAIN, project=project, files=files)
    here = load_plan(home / "flows" / "main.yaml")
    assert there.fingerprints == here.fingerprints
    assert there.skeleton == here.skeleton


def test_a_file_of_the_same_name_on_the_other_machine_is_not_looked_at(home: Path, away: Path) -> None:
    (away / "leaf.yaml").write_text("flowengine: v1\nname: another\nnodes: {b: {prompt: Other.}}\n")
    path, project, files = unpack_bundle(packed(home), away / "main.yaml", find_project(away))
    assert "s.s.a" in load_plan(path, text=MAIN, project=project, files=files).fingerprints


def test_a_file_that_was_not_brought_is_a_problem_of_its_node(home: Path, away: Path) -> None:
    bag = packed(home)
    del bag["files"]["leaf.yaml"]
    path, project, files = unpack_bundle(bag, away / "main.yaml", find_project(away))
    with pytest.raises(FlowError, match=r"FE225 node 's': the run has brought no file 'leaf\.yaml'"):
        load_plan(path, text=MAIN, project=project, files=files)


def test_a_file_that_is_too_large_is_not_read(home: Path, away: Path) -> None:
    bag = packed(home)
    bag["files"]["leaf.yaml"] = "#" * 10_000_000
    path, project, files = unpack_bundle(bag, away / "main.yaml", find_project(away))
    with pytest.raises(FlowError, match="FE102"):
        load_plan(path, text=MAIN, project=project, files=files)


def test_what_may_do_harm_is_the_machines_own(home: Path, away: Path) -> None:
    own = find_project(away)
    project = unpack_bundle(packed(home), away / "main.yaml", own).project
    assert (project.root, project.file) == (away, None)
    assert (project.allow_calls, project.allow_mcp, project.pythonpath) == ((), (), ())
    (away / "flowengine.toml").write_text('allow_calls = ["json"]\nallow_mcp = ["uvx"]\n')
    project = unpack_bundle(packed(home), away / "main.yaml", find_project(away)).project
    assert (project.allow_calls, project.allow_mcp) == (("json",), ("uvx",))
    assert project.problem_with("shutil:rmtree") is not None


def test_prices_limits_and_memory_are_the_runs(home: Path, away: Path) -> None:
    project = unpack_bundle(packed(home), away / "main.yaml", find_project(away)).project
    assert project.allow_env == ("TONE",)
    assert project.prices["local/model"].output == 2
    assert project.providers["openai"].limits == RateLimits(60)
    assert project.memory == {"limit": 7}


def test_this_machines_own_limits_and_addresses_go_first(home: Path, away: Path) -> None:
    (away / "flowengine.toml").write_text(
        '[providers.openai]\nbase_url = "http://proxy:1"\nmax_parallel = 2\n[memory]\nstore = "mine.db"\nlimit = 1\n'
    )
    project = unpack_bundle(packed(home), away / "main.yaml", find_project(away)).project
    assert project.providers["openai"] == ProviderSettings("http://proxy:1", RateLimits(max_parallel=2))
    assert project.memory == {"store": "mine.db", "limit": 7}


@pytest.mark.parametrize("model", ["gpt-4o-mini", "anthropic/claude-haiku-4-5", "bedrock/some.model"])
def test_no_key_is_sent_to_an_address_that_only_the_run_names(model: str) -> None:
    foreign = ProviderSettings("http://evil.example", is_foreign=True)
    around = Surroundings(
        {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"},
        dict.fromkeys(["openai", "anthropic", "bedrock"], foreign),
    )
    with pytest.raises(ModelConfigError, match="keys go only to addresses that are named here"):
        open_model(CallSettings(model, surroundings=around))


def test_an_address_to_which_no_key_goes_is_the_runs() -> None:
    around = Surroundings({}, {"ollama": ProviderSettings("http://models.example:1", is_foreign=True)})
    model, _ = open_model(CallSettings("ollama/qwen3", surroundings=around))
    assert model.provider == "ollama"


@pytest.mark.parametrize("said", [{}, {"adapter": "litellm"}], ids=["as usual", "litellm"])
@pytest.mark.parametrize("vendor", [each for each in (*VENDORS, *OTHERS) if not is_stand_in(each)])
def test_no_vendor_is_sent_a_key_at_an_address_of_the_run_however_it_is_asked(
    vendor: str, said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is asked is asked without a key, and by our own client: litellm reads variables of its own besides."""
    of_litellm = ("OLLAMA_API_KEY", "LM_STUDIO_API_KEY", "OPENAI_LIKE_API_KEY")
    for name in (*of_litellm, *(each for one in (VENDORS | OTHERS).values() for each in one.key_variables)):
        monkeypatch.setenv(name, "sk-secret-1234567890")
    brought = {"project": {"providers": {vendor: {"base_url": "http://evil.example/v1", **said}}}}
    project = unpack_bundle(brought, tmp_path / "f.yaml", Project(tmp_path)).project
    around = Surroundings(dict(os.environ), project.providers)
    settings = CallSettings(f"{vendor}/some-model", surroundings=around)
    if needs_key(vendor):
        with pytest.raises(ModelConfigError, match="keys go only to addresses that are named here"):
            open_model(settings)
    else:
        [model] = innermost_models(open_model(settings)[0])
        assert isinstance(model, NativeModel)
        assert "sk-secret" not in str(vars(model))


def test_a_run_without_baggage_is_loaded_as_before(home: Path) -> None:
    own = find_project(home)
    path = home / "flows" / "main.yaml"
    for bag in (None, "nothing", []):
        found = unpack_bundle(bag, path, own)
        assert (found.path, found.project) == (path, own)
        assert load_plan(found.path, text=MAIN, project=found.project, files=found.files).name == "main"


@pytest.mark.parametrize("name", ["../x.yaml", "/etc/x.yaml", "a/../../x.yaml", "", "a\0b", 7, None])
def test_no_path_of_a_run_leads_out_of_the_project(name: object, tmp_path: Path) -> None:
    fallback = tmp_path / "flow.yaml"
    assert unpack_bundle({"path": name}, fallback, Project(tmp_path)).path == fallback


def test_settings_that_are_none_are_refused(tmp_path: Path) -> None:
    bag = {"project": {"providers": {"nobody": {}}, "prices": {"m": {"input": -1}}}}
    with pytest.raises(DefinitionError, match="unknown provider 'nobody'"):
        unpack_bundle(bag, tmp_path / "f.yaml", Project(tmp_path))


PLAIN = st.none() | st.booleans() | st.integers() | st.text()
FLAT = PLAIN | st.lists(PLAIN) | st.dictionaries(st.text(), PLAIN)
JSON = FLAT | st.lists(FLAT) | st.dictionaries(st.text(), FLAT)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "path": JSON,
            "files": JSON,
            "project": JSON
            | st.fixed_dictionaries(
                {}, optional=dict.fromkeys(("allow_env", "providers", "prices", "memory", "allow_calls"), JSON)
            ),
        },
    )
)
def test_whatever_a_run_says_it_is_taken_or_refused(bag: Any) -> None:
    own = Project(Path("/project"), allow_calls=("json",))
    try:
        found = unpack_bundle(bag, Path("/project/f.yaml"), own)
    except DefinitionError:
        return
    assert (found.project.root, found.project.allow_calls) == (own.root, own.allow_calls)
    assert found.path.is_relative_to("/project")


def test_where_requests_may_go_and_which_servers_there_are_is_said_by_this_machine(tmp_path: Path) -> None:
    own = Project(tmp_path, allow_http=("https://api.example.com/",), mcp_servers={"crm": {"command": "crm"}})
    foreign = {"allow_http": ["https://evil.example.com/ KEY"], "mcp_servers": {"crm": {"command": "evil"}}}
    project = unpack_bundle({"project": foreign}, tmp_path / "flow.yaml", own).project
    assert (project.allow_http, project.mcp_servers) == (own.allow_http, own.mcp_servers)
