"""`flowengine doctor` and `flowengine schema`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowengine.version import EXTRAS

Command = Callable[..., Any]


def test_keys_are_named_and_never_shown(flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-one")
    (folder / ".env").write_text("MISTRAL_API_KEY=secret-two\n")
    said = flowengine("doctor")
    assert said.code == 0
    assert "OPENAI_API_KEY is set" in said.out
    assert "MISTRAL_API_KEY is set" in said.out
    assert "secret" not in said.out + said.err


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        ("production", ".env.production is read"),
        ("prod", "there is no .env.prod; did you mean '.env.production'?"),
        ("nested/one", "there is no .env.nested/one"),
        ("", "there is no .env"),
    ],
)
def test_it_says_which_file_of_variables_is_read(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, line: str
) -> None:
    monkeypatch.setenv("FLOWENGINE_ENV", chosen)
    (folder / ".env.production").write_text("OPENAI_API_KEY=secret\n")
    (folder / ".envrc").touch()  # Of direnv.
    (folder / ".env.nested").mkdir()
    (folder / ".env.nested/one").touch()
    said = flowengine("doctor")
    mark = "-   " if line.startswith("there is no") else "ok  "
    assert any(each.startswith(f"{mark}variables' file") and each.endswith(line) for each in said.out.splitlines())


def test_what_is_absent_is_not_told_as_ok(flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line says `ok` only of what is there; what not everybody needs has `-`, and the exit code is 0."""
    for name in ("FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))  # Neither dot nor bwrap.
    monkeypatch.setitem(EXTRAS, "png", ("no_such_module",))
    said = flowengine("doctor")
    marks = {line[4:].split("  ")[0]: line[:4].strip() for line in said.out.splitlines()}
    assert said.code == 0
    assert [marks[each] for each in ("dot", "sandbox", "extra png", "default model", "extra serve")] == [
        "-", "-", "-", "-", "ok",
    ]  # fmt: skip


def test_every_extra_that_users_install_is_told_of() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() == declared["optional-dependencies"].keys() - {"browser", "checks", "dev", "docs", "test"}


def test_it_says_who_asks_which_vendor(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text('[providers.groq]\nadapter = "litellm"\n')
    lines = {line.split("  ")[1].strip(): line for line in flowengine("doctor").out.splitlines() if "  asked " in line}
    assert "openai, anthropic, " in lines["asked over HTTP"]
    assert "groq" not in lines["asked over HTTP"]
    assert "bedrock" in lines["asked through litellm"]
    assert "of these groq since the project file says so" in lines["asked through litellm"]


def test_it_looks_and_leaves_nothing_behind(flowengine: Command, folder: Path) -> None:
    before = set(folder.iterdir())
    said = flowengine("doctor")
    assert said.code == 0
    assert ".flowengine/runs.db (0 runs)" in said.out
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("store", ["shout.yaml", "nosuch:x", "/proc/none/runs.db", "~nobody-of-that-name/runs.db"])
def test_a_store_that_cannot_be_used_is_missing(flowengine: Command, store: str) -> None:
    said = flowengine("doctor", "--store", store)
    assert said.code == 1
    assert said.out.splitlines()[-1].startswith("MISSING  store")


def test_a_broken_project_file_is_told(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text("allow_call = 1\n")
    said = flowengine("doctor")
    assert said.code == 1
    assert any(line.startswith("MISSING  project") and "allow_call" in line for line in said.out.splitlines())


def test_the_schema_accepts_a_flow_and_refuses_a_wrong_one(flowengine: Command) -> None:
    schema = json.loads(flowengine("schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    flow = {"flowengine": "v1", "name": "x", "nodes": {"a": {"prompt": "hi"}}}
    validator = jsonschema.Draft202012Validator(schema)
    assert list(validator.iter_errors(flow)) == []
    assert list(validator.iter_errors(flow | {"nodez": {}})) != []
