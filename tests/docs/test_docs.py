"""The documentation is true: the reference is that of the models, and every block of the tutorial runs."""

from __future__ import annotations

import ast
import re
import tomllib
from inspect import isclass, signature
from pathlib import Path
from shutil import copytree
from types import FunctionType

import pytest

import flowengine
from flowengine.agents.agent import Agent
from flowengine.agents.context.factory import OURS, provider_class
from flowengine.cli.main import main
from flowengine.cli.page_texts import list_commands
from flowengine.core.records import RECORDS
from flowengine.core.templating.filters import FILTERS, TESTS
from flowengine.docs.public_names import MODULES, api_page, names_of
from flowengine.docs.reference_pages import PAGES, PATTERNS, TABLES
from flowengine.engine.events import EVENTS
from flowengine.evals.eval_file import EvalSpec, ScorerSpec
from flowengine.flow import Flow
from flowengine.flowfile.analysis.flow_nodes import nodes_of
from flowengine.flowfile.checks.codes import CODES
from flowengine.flowfile.compile.scope import DESCRIBED, RESERVED, WORDS
from flowengine.flowfile.loader import check_file, load_flow
from flowengine.flowfile.project import (
    file_table,
    masking_table,
    notify_table,
    schedule_table,
    vendor_tables,
    webhook_tables,
)
from flowengine.flowfile.project.model_tables import MODEL_KEYS
from flowengine.flowfile.project.project import _EXPECTED
from flowengine.flowfile.schema.reference import providers_section, reference
from flowengine.models.call_options import OPTIONS
from flowengine.models.vendors import OTHERS, VENDORS
from flowengine.testing.flowtest import ApprovalAnswer, ExpectSpec, FakesSpec, FlowCaseSpec, FlowTestSpec
from flowengine.web.api.api import OPERATIONS
from tests.support.doc_blocks import BLOCK, DOCS, forget_models, run_blocks
from tests.support.postgres import empty_database

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_that_of_the_code(name: str):
    assert (DOCS / name).read_text("utf-8") == PAGES[name](), "run python -m flowengine.docs.reference_pages"


def test_the_page_of_the_project_file_has_every_key_with_a_description():
    page = PAGES["project.md"]()
    tables = {title: text for title, _, text in (each.partition("\n") for each in page.split("\n## ")[1:])}
    read = {
        "providers": vendor_tables._PROVIDER_KEYS,
        "models": MODEL_KEYS,
        "prices": vendor_tables._KEYS,
        "files": file_table._KEYS,
        "masking": masking_table._KEYS,
        "notify": notify_table._KEYS,
        "notify.mail": notify_table._MAIL_KEYS,
        "schedules": schedule_table._KEYS,
        "webhooks": webhook_tables._KEYS,
    }
    assert read.keys() == TABLES.keys()
    for name, keys in read.items():
        rows = re.findall(r"^\| `(\w+)` \| .+? \| (.+) \|$", tables[TABLES[name].title], re.MULTILINE)
        assert {key for key, _ in rows} == set(keys), name
    top = re.findall(r"^\| `(\w+)` \| .+? \| .+ \|$", page.partition("\n## ")[0], re.MULTILINE)
    assert set(top) == set(_EXPECTED)


def test_every_sample_flow_has_a_test_and_is_on_the_page_of_samples_with_its_picture():
    """The flows on samples.md are those files: the page is made from them, and tests/flows runs them."""
    flows = sorted(file for file in (ROOT / "flows").rglob("*.yaml") if "tests" not in file.parts)
    flows = [file for file in flows if not file.name.endswith(".floweval.yaml")]
    listed = [ROOT / "flows" / f"{name}.yaml" for names in PATTERNS.values() for name in names]
    assert sorted(listed) == flows
    assert len(flows) >= 30
    for file in flows:
        assert (file.parent / "tests" / f"{file.stem}.flowtest.yaml").is_file()
        picture = (DOCS / "images" / "flows" / f"{file.stem}.svg").read_text("utf-8")
        nodes = {path[-1] for path, _ in nodes_of(load_flow(file))}
        assert [each for each in nodes if f">{each}<" not in picture] == [], file.stem
        assert len(picture) < 16_000


def test_the_page_of_flow_tests_and_evals_has_every_key_that_they_take():
    page = PAGES["test-files.md"]()
    for spec in (FlowTestSpec, FlowCaseSpec, ExpectSpec, FakesSpec, ApprovalAnswer, EvalSpec, ScorerSpec):
        rows = re.findall(r"^\| `(\w+)` \| .+? \| .+ \|$", page, re.MULTILINE)
        assert set(spec.model_fields) <= set(rows), spec


def test_the_pages_name_every_filter_vendor_event_code_and_route():
    for name, found in {
        "filters.md": [*FILTERS, *TESTS],
        "providers.md": [*VENDORS, *OTHERS, *OURS],
        "events.md": [*EVENTS, *RECORDS],
        "errors.md": [f"{code}: {each.title}" for code, each in CODES.items()],
        "http.md": [f"{each.method} {each.path.replace(':path', '')}" for each in OPERATIONS],
        "commands.md": [f"flowengine {name}" for name, _ in list_commands()],
    }.items():
        page = (DOCS / name).read_text("utf-8")
        assert [each for each in found if not re.search(rf"[`# ]{re.escape(each)}(?!\w)", page)] == [], name


def test_generated_pages_describe_every_parameter_and_have_one_title():
    assert (
        re.findall(
            r"^\| `[\w-]+` \| (?:path|query|header) \| *\|$", (DOCS / "http.md").read_text("utf-8"), re.MULTILINE
        )
        == []
    )
    for name in PAGES:
        text = BLOCK.sub("", (DOCS / name).read_text("utf-8"))
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, name


def test_every_exported_name_is_on_the_page_of_public_names():
    page = api_page().partition("\n## `flowengine.errors`")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(flowengine.__all__)
    assert set(names_of("flowengine.errors")) >= {name for name in flowengine.__all__ if name.endswith("Error")}


def test_every_public_method_and_property_says_what_it_does():
    """With words of its own, or those of what it overrides."""
    silent = [
        f"{name}.{attribute}"
        for name in flowengine.__all__
        if isclass(made := getattr(flowengine, name))
        for attribute, value in vars(made).items()
        if not attribute.startswith("_") and isinstance(value, FunctionType | property | classmethod | staticmethod)
        if not any(vars(base)[attribute].__doc__ for base in made.__mro__ if attribute in vars(base))
    ]
    assert silent == []


def test_flows_and_documents_import_public_names_only():
    files = [
        *(ROOT / "flows").rglob("*.py"),
        ROOT / "README.md",
        DOCS / "tutorial.md",
        DOCS / "queue.md",
        DOCS / "files.md",
    ]
    found = 0
    for file in files:
        text = file.read_text("utf-8")
        blocks = [text] if file.suffix == ".py" else [code for kind, code in BLOCK.findall(text) if kind == "python"]
        for node in (each for block in blocks for each in ast.walk(ast.parse(block))):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if isinstance(node, ast.ImportFrom) and module.partition(".")[0] == "flowengine":
                found += 1
                assert module == "flowengine" or module in MODULES, (file, module)
                assert {each.name for each in node.names} <= set(names_of(module)), (file, module)
    assert found >= 5


def test_every_node_type_and_key_is_in_the_reference_with_a_description():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if not row.rstrip("|").rpartition("|")[2].strip()] == []


def test_the_reference_describes_every_name_that_texts_know():
    described = {re.split(r"[.,]", name)[0] for name in DESCRIBED}
    assert described == RESERVED - set(WORDS) | {"item", "results"}


def test_the_reference_has_every_setting_of_every_context_provider():
    for name in OURS:
        part = providers_section().partition(f"### `{name}`\n")[2].partition("\n#")[0]
        settings = re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
        taken = list(signature(provider_class(name).__init__).parameters)[1:]
        assert settings == [each for each in taken if each in settings]
        assert settings


def test_the_reference_has_the_defaults_that_hold():
    text = reference()
    defaults = {name: each.default for name, each in signature(Agent).parameters.items()}
    assert f"| `temperature` | number, 0 to 2 | `{defaults['temperature']}` |" in text
    assert f"| `max_tool_rounds` | whole number, 1 to 1000 | `{defaults['max_tool_rounds']}` |" in text
    assert "| `initial` | text | `1s` |" in text


def test_every_rule_that_the_code_cites_is_on_the_page_of_the_rules():
    page = (DOCS / "flow-format.md").read_text("utf-8")
    numbers = [int(each) for each in re.findall(r"^(\d+)\. \*\*", page, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    code = "\n".join(file.read_text("utf-8") for file in DOCS.parent.rglob("*.py"))
    cited = {int(each) for each in re.findall(r"\b[Rr]ule (\d+)\b", code)}
    assert len(cited) > 8
    assert cited <= set(numbers)


ARCHITECTURE = [DOCS / "architecture.md", *sorted((DOCS / "decisions").glob("*.md"))]


@pytest.mark.parametrize("page", ARCHITECTURE, ids=lambda page: page.stem)
def test_files_and_links_of_the_pages_on_architecture_exist(page: Path):
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:flowengine|visualize|tests|flows)(?:/[\w./]*)?|pyproject\.toml)`", text)
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []
    assert [each for each in links if not (page.parent / each).exists()] == []


def test_the_code_cites_files_of_this_repository_alone():
    cited = re.compile(r"`((?:flowengine|visualize)/[\w./-]+\.\w+)|\brows? [A-Z]\d+\b|\bof the requirements\b")
    absent = [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for folder in ("flowengine", "visualize")
        for file in (ROOT / folder).rglob("*.py")
        for found in cited.finditer(file.read_text("utf-8"))
        if not found[1] or not (ROOT / found[1]).exists()
    ]
    assert absent == []


def test_the_engine_can_be_read_in_an_hour():
    _, _, rest = (DOCS / "architecture.md").read_text("utf-8").partition("## The engine in an hour\n")
    files = re.findall(r"^\| `([\w/]+\.py)` \| \S.* \|$", rest.partition("\n## ")[0], re.MULTILINE)
    texts = [(ROOT / file).read_text("utf-8") for file in files]
    assert 8 <= len(files) <= 12
    assert sum(text.count("\n") for text in texts) <= 2_500
    assert [file for file, text in zip(files, texts, strict=True) if not text.startswith('"""')] == []


def test_every_decision_is_listed_and_every_layer_is_described():
    text = (DOCS / "architecture.md").read_text("utf-8")
    assert len(ARCHITECTURE) > 8
    assert [page.name for page in ARCHITECTURE[1:] if f"(decisions/{page.name})" not in text] == []
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = re.findall(r"[\w.]+", " ".join(contracts[0]["layers"]))
    described = re.findall(r"`(flowengine/\w+|visualize)(?:\.py)?`", text)
    missing = {f"flowengine/{each}" for each in layers} - set(described)
    assert missing == {"flowengine/__main__", "flowengine/docs"}


def test_the_tutorial_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_blocks("tutorial.md", monkeypatch, capfd) >= 24


def test_the_page_of_the_queue_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FLOWENGINE_STORE", empty_database())
    monkeypatch.chdir(tmp_path)
    assert run_blocks("queue.md", monkeypatch, capfd) >= 7


def test_the_page_of_models_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_blocks("models.md", monkeypatch, capfd) >= 6


def test_the_page_of_models_names_every_option_and_every_key_of_a_name():
    page = (DOCS / "models.md").read_text("utf-8")
    for name in (*OPTIONS, "model_options", *MODEL_KEYS):
        assert f"`{name}`" in page, name


def test_the_page_of_files_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_blocks("files.md", monkeypatch, capfd) >= 8


@pytest.mark.long
def test_the_page_of_experiments_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_blocks("experiments.md", monkeypatch, capfd) >= 14


def test_the_page_of_schedules_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("FLOWENGINE_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_blocks("schedules.md", monkeypatch, capfd) >= 3


def test_the_page_of_approvals_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run_blocks("approvals.md", monkeypatch, capfd) >= 1


def test_the_page_of_pictures_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    forget_models(monkeypatch)
    copytree(ROOT / "flows", tmp_path / "flows")
    monkeypatch.chdir(tmp_path)
    assert run_blocks("pictures.md", monkeypatch, capfd) == 3


def test_the_page_on_untrusted_text_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run_blocks("risks.md", monkeypatch, capfd) == 7
    page = " ".join((DOCS / "risks.md").read_text("utf-8").split())
    assert main(["validate", "reply.yaml"]) == 0
    warned = capfd.readouterr().out.splitlines()[-1]
    assert warned in page


def test_the_flows_of_the_page_on_steps_are_right_under_its_project_file(tmp_path: Path):
    blocks = BLOCK.findall((DOCS / "steps.md").read_text("utf-8"))
    [project] = [text for kind, text in blocks if kind == "toml"]
    allowed = 'allow_calls = ["tool_agent_tools"]\nallow_mcp = ["python -m mcp_server_time"]\n'
    (tmp_path / "flowengine.toml").write_text(f"{allowed}{project}")
    (tmp_path / "tool_agent_tools.py").write_text((ROOT / "flows" / "tool_agent_tools.py").read_text("utf-8"))
    flows = [text for kind, text in blocks if kind == "yaml"]
    assert len(flows) == 3
    for text in flows:
        (tmp_path / "flow.yaml").write_text(text, "utf-8")
        assert [str(each) for each in check_file(tmp_path / "flow.yaml")] == []
        Flow.from_yaml(tmp_path / "flow.yaml")
