"""An eval has no effect outside that nobody asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine import Flow, FunctionNode
from flowengine.errors import InputError
from flowengine.evals.eval_file import EvalFileError, load_eval
from flowengine.evals.eval_run import EvalRun
from flowengine.evals.eval_sets import EvalSet
from flowengine.journal.memory import MemoryStore

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

STEPS = """
def note(what):
    with open(FILE, "a") as file:
        file.write(what + "\\n")
    return what

def look(text):
    return note("looked " + text)

def send(text):
    return note("sent " + text)

def mail(to: str) -> str:
    return note("mailed " + to)
"""
FLOW = """flowengine: v1
name: letters
inputs: {text: {type: string}}
nodes:
  look: {type: function, call: "steps:look", with: {text: "{{ inputs.text }}"}, effect: idempotent}
  send: {type: function, call: "steps:send", with: {text: "{{ inputs.text }}"}, effect: external}
  post: {type: http, method: POST, url: "https://example.com/{{ inputs.text }}", needs: [send]}
  mail: {type: tool, tool: "steps:mail", with: {to: "{{ inputs.text }}"}, effect: external, needs: [post]}
outputs: {sent: "{{ nodes.send.output }}", posted: "{{ nodes.post.output.body }}", mailed: "{{ nodes.mail.output }}"}
"""
FAKES = """fakes:
  functions: {send: {each: [done]}}
  http: {post: {body: fine}}
  tools: {mail: gone}
"""
EVAL = """flow: letters.yaml
data: rows.jsonl
scorers: {fine: {outputs: {sent: {matches: "."}}}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "flowengine.toml").write_text('allow_calls = ["steps"]\nallow_http = ["https://example.com"]\n')
    (tmp_path / "steps.py").write_text(f"FILE = {str(tmp_path / 'did.txt')!r}\n{STEPS}")
    (tmp_path / "letters.yaml").write_text(FLOW)
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps({'text': each})}\n" for each in "ab"))
    return tmp_path


async def score(folder: Path, more: str, store: MemoryStore | None = None) -> tuple[EvalSet, list[dict[str, str]]]:
    path = folder / "letters.floweval.yaml"
    path.write_text(EVAL + more)
    store = store or MemoryStore()
    made = await EvalRun(file=load_eval(path), store=store).run()
    return made, [store.events(str(row.run_id))[-1].outputs for row in made.rows]  # type: ignore[union-attr,misc]


async def test_what_is_not_faked_is_told_before_anything_runs(project: Path, anyio_backend: str) -> None:
    with pytest.raises(EvalFileError) as told:
        await score(project, "")
    said = str(told.value)
    assert "letters.floweval.yaml:1:1" in said
    assert "effects outside: node 'send', node 'post', node 'mail'." in said
    assert "`fakes: {functions: {send: …}; http: {post: …}; tools: {mail: …}}`" in said
    assert "`effects: run`" in said
    with pytest.raises(EvalFileError, match="no function 'sent'; did you mean 'send'"):
        await score(project, FAKES.replace("send:", "sent:"))
    assert not (project / "did.txt").exists()


async def test_fakes_stand_in_and_the_rest_runs(project: Path, anyio_backend: str) -> None:
    """Each run has its own values, and what may be done twice is done."""
    store = MemoryStore()
    _, found = await score(project, FAKES, store)
    assert found == [{"sent": "done", "posted": "fine", "mailed": "gone"}] * 2
    assert sorted((project / "did.txt").read_text().splitlines()) == ["looked a", "looked b"]
    _, found = await score(project, FAKES.replace("gone", "lost"), store)
    assert [each["mailed"] for each in found] == ["lost"] * 2  # What the other fake gave does not hold.


async def test_real_ones_and_all_of_them_are_had_where_that_is_said(project: Path, anyio_backend: str) -> None:
    (project / "letters.yaml").write_text(FLOW.replace("  post: {type: http, method: POST, ", "  post: {type: http, "))
    real = "fakes: {functions: {send: done}, http: {post: {body: fine}}, real: [mail]}\n"
    _, found = await score(project, real)
    assert [each["mailed"] for each in found] == ["mailed a", "mailed b"]
    _, found = await score(project, "effects: run\nfakes: {http: {post: {body: fine}}}\n")
    assert [each["sent"] for each in found] == ["sent a", "sent b"]


async def test_another_version_with_an_effect_of_its_own_is_refused(project: Path, anyio_backend: str) -> None:
    path = project / "letters.floweval.yaml"
    path.write_text(EVAL + FAKES)
    other = Flow("letters", {"shout": FunctionNode(print, effect="external")})
    with pytest.raises(InputError, match="git:1: rows would have effects outside: node 'shout'"):
        EvalRun(file=load_eval(path), store=MemoryStore(), flow=other, version="git:1")
