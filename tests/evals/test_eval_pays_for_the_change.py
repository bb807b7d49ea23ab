"""After an edit of one prompt in the middle of a flow, exactly the calls that depend on it are made."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow
from flowengine.evals.eval_file import load_eval
from flowengine.evals.eval_run import EvalRun
from flowengine.evals.eval_sets import EvalSet
from flowengine.journal.memory import MemoryStore
from tests.support.model_server import ModelServer

NEEDS = {"a": "", "b": "a", "c": "a", "d": "b", "e": "c", "f": "e", "g": "d", "h": "f g"}
"""Node → whose answers it reads; `e` is edited."""
JUDGE = '{judge: {model: openai/judge, target: "{{ outputs.h }}", criteria: {good: It is good}}}'


def write(folder: Path, rows: int, edit: str = "") -> Path:
    lines = ["flowengine: v1", "name: eight", "inputs: {n: {type: integer}}", "nodes:"]
    for node, needs in NEEDS.items():
        reads = " ".join(f"{{{{ nodes.{each}.output }}}}" for each in needs.split())
        prompt = f"node={node} row={{{{ inputs.n }}}} {edit if node == 'e' else ''} {reads}"
        lines.append(f"  {node}: {{model: openai/m, temperature: 0, prompt: {json.dumps(prompt)}}}")
    lines += ["outputs: {h: '{{ nodes.h.output }}', f: '{{ nodes.f.output }}'}"]
    (folder / "eight.yaml").write_text("\n".join(lines))
    (folder / "rows.jsonl").write_text("".join(f'{{"n": {n}, "side": "{n % 2}"}}\n' for n in range(rows)))
    path = folder / "eight.floweval.yaml"
    scorers = f"scorers: {{long: {{outputs: {{h: {{matches: '.'}}}}}}, good: {JUDGE}}}\n"
    path.write_text(f"flow: eight.yaml\ndata: rows.jsonl\nslices: side\n{scorers}")
    return path


def answer(body: dict[str, Any]) -> Any:
    """The same answer to the same question; `e` only sees its edit in odd rows."""
    asked = body["messages"][-1]["content"]
    if "judge" in body["model"]:
        return {"score": 0.8, "criteria_scores": {"good": 0.8}, "feedback": "fine"}
    found = re.search(r"node=(\w) row=(\d+)", asked)
    assert found is not None
    node, row = found[1], int(found[2])
    if node == "e" and row % 2 == 0:
        return f"e of {row}"
    return hashlib.sha256(asked.encode()).hexdigest()[:12]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        monkeypatch.setenv("OPENAI_BASE_URL", made.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield made


def calls(server: ModelServer) -> Counter[str]:
    """Node → how often it asked."""
    found = Counter[str]()
    for each in server.requests:
        node = re.search(r"node=(\w)", each.body["messages"][-1]["content"])
        found["judge" if "judge" in each.body["model"] else node[1] if node else "?"] += 1
    server.requests.clear()
    return found


async def score(path: Path, store: MemoryStore, **options: Any) -> EvalSet:
    return await EvalRun(file=load_eval(path), store=store, concurrency=40, **options).run()


@pytest.mark.parametrize("rows", [10, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_exactly_the_calls_that_depend_on_an_edit_are_made(
    server: ModelServer, tmp_path: Path, anyio_backend: str, rows: int
) -> None:
    store = MemoryStore()
    first = await score(write(tmp_path, rows), store)
    assert calls(server) == {**dict.fromkeys(NEEDS, rows), "judge": rows}
    assert first.finished
    assert sum(each.paid_calls for each in first.rows) == sum(each.calls for each in first.rows) == 9 * rows

    edited = await score(write(tmp_path, rows, "with more care"), store)
    odd = rows // 2  # Where the edit changed the answer; elsewhere nothing behind it is asked.
    assert calls(server) == {"e": rows, "f": odd, "h": odd, "judge": odd}
    assert sum(each.paid_calls for each in edited.rows) == rows + 3 * odd
    assert sum(each.calls for each in edited.rows) == 9 * rows

    back = await score(write(tmp_path, rows), store)  # To what the first set asked.
    assert calls(server) == {}
    assert [each.scores for each in back.rows] == [each.scores for each in first.rows]

    judged = write(tmp_path, rows)
    judged.write_text(judged.read_text().replace("It is good", "It is very good"))
    await score(judged, store)
    assert calls(server) == {"judge": rows}

    renamed = Flow.from_yaml(tmp_path / "eight.yaml")
    await score(judged, store, flow=renamed, fresh=True, first_rows=3)
    assert calls(server) == {**dict.fromkeys(NEEDS, 3), "judge": 3}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_row_looks_through_all_sets_for_what_was_paid(
    server: ModelServer, tmp_path: Path, anyio_backend: str
) -> None:
    store = MemoryStore()
    path, rows = write(tmp_path, 4), tmp_path / "rows.jsonl"
    await score(path, store)
    assert calls(server).total() == 36

    assert len((await score(path, store, first_rows=1)).rows) == 1  # The newest set has one row now.
    await score(path, store)
    assert calls(server) == {}

    plain = rows.read_text()
    rows.write_text(plain.replace('"n": 3', '"n": 7'))
    await score(path, store)
    assert calls(server).total() == 9
    rows.write_text(plain)
    await score(path, store)
    assert calls(server) == {}

    judged = path.read_text()
    path.write_text(judged.replace("It is good", "It is very good"))
    await score(path, store)
    assert calls(server) == {"judge": 4}
    path.write_text(judged)
    await score(path, store)
    assert calls(server) == {}


INNER = """flowengine: v1
name: inner
inputs: {n: {type: integer}}
nodes:
  each:
    type: map
    over: "[1, 2, 3]"
    nodes: {ask: {model: openai/gpt-4o-mini, prompt: "node=a row={{ inputs.n }} {{ item }}"}}
    result: "{{ nodes.ask.output }}"
  twice:
    type: loop
    initial: {text: ""}
    max_iterations: 2
    nodes: {say: {model: openai/gpt-4o-mini, prompt: "node=b row={{ inputs.n }} {{ round.text }}"}}
    carry: {text: "{{ nodes.say.output }}"}
    until: "false"
    on_exhausted: continue
  thanks: {model: openai/gpt-4o-mini, prompt: "node=c row={{ inputs.n }} EDIT {{ nodes.each.output | length }}"}
outputs: {h: "{{ nodes.thanks.output }}", all: "{{ nodes.each.output }}", last: "{{ nodes.twice.output.text }}"}
"""
CLAIMS = """flow: inner.yaml
data: rows.jsonl
scorers:
  calls: {model_calls: 6}
  cheap: {cost_usd_at_most: 0.000001}
  dear: {cost_usd_at_most: 0.001}
  short: {tokens_at_most: 5}
  asked: {prompts: {each.ask: {contains: "node=a row={{ row.n }} 3"}, thanks: {contains: "row={{ row.n }}"}}}
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_row_counts_the_calls_that_it_needs_whoever_paid_for_them(
    server: ModelServer, tmp_path: Path, anyio_backend: str
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    path = tmp_path / "inner.floweval.yaml"
    path.write_text(CLAIMS)
    store, told = MemoryStore(), list[EvalSet]()
    for text in (INNER, INNER, INNER.replace("EDIT", "with care"), INNER.replace("EDIT", "with care"), INNER):
        (tmp_path / "inner.yaml").write_text(text)
        told.append(await score(path, store))
    assert [sum(row.paid_calls for row in each.rows) for each in told] == [12, 0, 2, 0, 0]
    assert {row.calls for each in told for row in each.rows} == {6}
    assert {name: {row.scores[name].value for each in told for row in each.rows} for name in told[0].scorers} == {
        "calls": {1.0}, "cheap": {0.0}, "dear": {1.0}, "short": {0.0}, "asked": {1.0}
    }  # fmt: skip
    first, edited = told[0].rows[0], told[2].rows[0]
    assert first.cost_usd < edited.cost_usd < first.cost_usd * 1.2  # A longer prompt.
    assert told[1].rows[0].cost_usd == told[4].rows[0].cost_usd == first.cost_usd
    assert told[1].rows[0].paid_usd == 0
