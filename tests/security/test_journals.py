"""Attempts by journals that somebody has changed: whatever reads one says that the record is damaged, and no more."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from flowengine.cli.main import main
from flowengine.engine.events import Event
from flowengine.journal.codec import encode
from flowengine.journal.stores import open_store
from flowengine.web.app import make_app
from tests.support.sample_run import mapped_run, research_run
from tests.support.ui_server import served

MUTANTS: Final = 640
READERS: Final = (
    ["runs", "list", "--json"],
    ["runs", "show", "r"],
    ["runs", "show", "r", "--json"],
    ["runs", "show", "r", "--node", "draft"],
    ["runs", "show", "r", "--time"],
    ["graph", "r", "--format", "mermaid"],
    ["graph", "r", "--format", "dot"],
    ["graph", "r", "--format", "svg"],
    ["graph", "r", "--format", "json"],
    ["export", "r", "-o", "out.html"],
    ["telemetry", "r", "--content", "-o", "out.jsonl"],
    ["runs", "export", "r", "-o", "out.run", "--masked"],
    ["diff", "r", "r"],
    ["record", "r", "-o", "out.yaml"],
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1e300, 10**18, "", "x", "a.b[0]", "\u2028", [], {}, [[]], ["x"], {"x": 1}, [None, 1]),
    *(
        {"$text": "YQ=="},
        {"$tuple": []},
        {"$NodeResult": []},
        {"$decimal": "NaN"},
        {"$date": "2026-01-01"},
        "A" * 5_000,
    ),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a tree of JSON."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(lines: list[Any], chance: random.Random) -> list[Any]:
    """One to three changes: another value, none, one twice, two in each other's place; or so with whole events."""
    events = json.loads(json.dumps(lines))
    for _ in range(chance.choice((1, 1, 2, 3))):
        *above, last = chance.choice(list(places(events)))
        at: Any = events
        for key in above:
            at = at[key]
        deed = chance.choice(("set", "set", "set", "delete", "double", "swap"))
        if deed == "set":
            at[last] = chance.choice(VALUES)
        elif deed == "delete":
            del at[last]
        elif deed == "double" and isinstance(at, list):
            at.insert(last, at[last])
        elif deed == "swap":
            other = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at[last], at[other] = at[other], at[last]
        if not events:
            break
    return events


def parcel(events: list[Any], run_id: str) -> str:
    head = json.dumps({"flowengine_run": 1, "run_id": run_id, "events": len(events)})
    return "\n".join([head, *(json.dumps(each) for each in events), ""])


def seeds() -> list[list[Any]]:
    runs: list[list[Event]] = [list(research_run()), list(mapped_run(3))]
    return [[json.loads(encode(each)) for each in run] for run in runs]


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in range(2, 8))])
def test_a_changed_journal_is_imported_and_read_or_refused_with_an_error_of_our_own(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_STORE", "runs.db")
    chance, sources = random.Random(f"journals {part}"), seeds()
    told: dict[str, str] = {}
    imported = 0
    for number in range(MUTANTS // 8):
        Path("run.jsonl").write_text(parcel(mutated(chance.choice(sources), chance), "r"))
        if main(["runs", "import", "run.jsonl", "--as", "r"]) == 0:
            imported += 1
            for words in chance.sample(READERS, 4) if number % 4 else READERS:
                main(list(words))
                said = capsys.readouterr().err
                if "a bug in FlowEngine" in said or "\nTraceback" in f"\n{said}":
                    told.setdefault(said.splitlines()[-1], f"{words} of mutant {number}")
            main(["runs", "rm", "r", "--force"])
        said = capsys.readouterr().err
        if "a bug in FlowEngine" in said or "\nTraceback" in f"\n{said}":
            told.setdefault(said, f"import of mutant {number}")
    assert told == {}, "\n".join(f"{a} {b}" for a, b in told.items())
    assert imported > 5


def test_a_page_of_a_changed_journal_is_shown_or_told_to_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_STORE", "runs.db")
    chance, sources = random.Random("pages"), seeds()
    for number in range(60):
        Path("run.jsonl").write_text(parcel(mutated(chance.choice(sources), chance), "r"))
        main(["runs", "import", "run.jsonl", "--as", f"r{number}"])
    with served(make_app("sqlite:///runs.db", [], durability="process")) as server:
        runs = [each["run_id"] for each in server.get("/api/runs")["runs"]]
        assert len(runs) > 5
        assert server.client.get("/").status_code == 200
        for run_id in runs:
            for path in (f"/runs/{run_id}", f"/runs/{run_id}/nodes/draft", f"/api/runs/{run_id}"):
                assert server.client.get(path).status_code in (200, 404, 422), path


def test_a_run_whose_text_holds_other_ends_of_lines_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_STORE", "runs.db")
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\r\nh"
    flow = "flowengine: v1\nname: t\ninputs: {text: {type: string}}\nnodes: {a: {prompt: x, model: offline}}\n"
    Path("flow.yaml").write_text(flow)
    assert main(["run", "flow.yaml", "-i", f"text={odd}"]) == 0
    assert main(["runs", "export", "@last", "-o", "run.jsonl"]) == 0
    assert main(["runs", "import", "run.jsonl", "--as", "copy"]) == 0
    with closing(open_store("runs.db")) as store:
        started: Any = store.events("copy")[0]
    assert started.inputs["text"] == odd
