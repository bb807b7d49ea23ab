"""Schemathesis makes thousands of requests of the OpenAPI documents of `serve` and of `ui`, and finds nothing.

It looks for crashes, for answers that are not described, for valid requests that are refused, and for others that are
taken. The seed is fixed, so a finding comes back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from flowengine.journal.stores import open_store
from flowengine.web.app import make_app
from flowengine.web.gate.api_keys import KeyRing
from flowengine.web.serving_app import make_serving_app
from tests.support.require import missing
from tests.support.ui_server import served

ROOT = Path(__file__).parents[2]
SAMPLES = ["content_route", "extract_fields", "hello", "release_approval"]
"""They ask no server, and do not fail over what they are given."""
EVERY_INPUT = """
flowengine: v1
name: every_input
inputs:
  document: {type: file}
  pages: {type: integer, default: 1}
  words: {type: array, default: []}
  options: {type: object, default: {}}
  size: {type: string, enum: [small, large], default: small}
  person:
    schema: {type: object, properties: {name: {type: string, minLength: 1}}, required: [name]}
    default: {name: Ann}
nodes:
  size: {type: condition, if: inputs.pages > 1}
outputs:
  pages: "{{ inputs.pages }}"
"""
SETTINGS = """
# Which inputs a flow takes is described by `GET /api/flows/NAME`, and by no schema of the document.
[[operations]]
include-name = "POST /api/runs"
checks.positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 422]
"""
HOOKS = """
import schemathesis

@schemathesis.hook
def filter_case(ctx, case):
    # Its generator of headers knows letters and digits alone, and sends `0` where a pattern asks for a `=`.
    label = dict(case.headers or {}).get("Flowengine-Label", "=")
    return "=" in label or case.meta is None or case.meta.generation.mode.is_negative
"""

pytestmark = pytest.mark.long


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if find_spec("schemathesis") is None:
        missing("`schemathesis` is not installed (it comes with the extra `dev`)")
    for name in SAMPLES:
        shutil.copy(ROOT / "flows" / f"{name}.yaml", tmp_path)
    (tmp_path / "every_input.yaml").write_text(EVERY_INPUT)
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "offline")
    return tmp_path


def schemathesis(document: str, token: str | None, *options: str) -> str:
    """What it says of a document."""
    header = [] if token is None else ["--header", f"Authorization: Bearer {token}"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", document, *header, *options]
    done = subprocess.run(
        [*command, "--seed=1", "--continue-on-failure", "--no-color", "--warnings=off"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "SCHEMATHESIS_HOOKS": "hooks"},
    )
    assert done.returncode == 0, f"{done.stdout[-8_000:]}\n{done.stderr}"
    return done.stdout


def test_serve_does_what_its_description_says(folder: Path) -> None:
    with closing(open_store("sqlite:///runs.db")) as store:
        key = KeyRing(store).add("ann")
        app = make_serving_app(store, [folder], grace=0)
        with served(app, token=key, end=app.state.serving.service.drain) as server:
            said = schemathesis(f"{server.url}/openapi.json", key, "--max-examples=8")
    assert "No issues found" in said


def test_serve_without_keys_does_what_its_description_says(folder: Path) -> None:
    app = make_serving_app("sqlite:///runs.db", [folder / "hello.yaml"], needs_key=False, grace=0)
    with served(app, token="none", end=app.state.serving.service.drain) as server:
        said = schemathesis(f"{server.url}/openapi.json", None, "--phases=coverage")
    assert "No issues found" in said


def test_ui_does_what_its_description_says(folder: Path) -> None:
    with served(make_app("sqlite:///runs.db", ["."], durability="process")) as server:
        said = schemathesis(f"{server.url}/api/openapi.json", server.token, "--max-examples=10")
    assert "No issues found" in said
