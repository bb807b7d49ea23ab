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
from flowengine.experiments.eval_file import load_eval
from flowengine.experiments.eval_run import EvalRun
from flowengine.experiments.eval_sets import EvalSet
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
