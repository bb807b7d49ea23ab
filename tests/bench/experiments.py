"""Rows of experiments: what a flow over many rows takes beside the bare runs."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio
from playwright.sync_api import sync_playwright

from flowengine import Flow
from flowengine.evals.eval_file import load_eval
from flowengine.evals.eval_report import make_report
from flowengine.evals.eval_run import EvalRun
from flowengine.evals.eval_sets import EvalRow, EvalSet
from flowengine.evals.report_page import report_page
from flowengine.evals.scoring import Score
from flowengine.journal.stores import open_store
from tests.bench.measure import Row, ratio
from tests.bench.processes import printed
from tests.support.batch_server import BatchServer
from tests.support.browser import ARGUMENTS, CHROMIUM

__all__ = ["ROWS"]

DATA_ROWS = 10_000

MEMORY = f"""
import asyncio, json, tempfile
from pathlib import Path
from flowengine.cli.main import main
with tempfile.TemporaryDirectory() as folder:
    place = Path(folder)
    (place / "flowengine.toml").touch()
    (place / "flow.yaml").write_text("flowengine: v1\\nname: bench\\ninputs: {{text: {{type: string}}}}\\nnodes:\\n"
        "  one: {{model: offline, prompt: '{{{{ inputs.text }}}}'}}\\n")
    with (place / "rows.jsonl").open("w") as file:
        for number in range({DATA_ROWS}):
            file.write(json.dumps({{"text": f"row {{number}} " + "word " * 200}}) + "\\n")
    out, store = str(place / "out.jsonl"), str(place / "runs.db")
    command = ["run", str(place / "flow.yaml"), "--data", str(place / "rows.jsonl"), "-o", out, "--store", store, "-q"]
    assert main(command) == 0
    assert sum(1 for line in open(out)) == {DATA_ROWS}
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


def experiments_data_memory() -> Row:
    return Row("run --data over 10,000 rows, resident memory", float(printed(MEMORY)) / 1024, 500, "MB")


BATCHED = MEMORY.replace("model: offline", "model: openai/gpt-4o-mini").replace(
    '"-q"]', '"-q", "--batch", "--durability", "process"]'
)


def experiments_batch_memory() -> Row:
    """All rows are put aside at once, and go on when the batch has ended."""
    with BatchServer(lambda body: "An answer of some words. " * 40, looks=0) as server:
        os.environ |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-bench"}
        kilobytes = float(printed(BATCHED))
        assert (len(server.batches), server.posted.total(), server.live) == (1, DATA_ROWS, 0)
    return Row("run --data --batch over 10,000 rows, resident memory", kilobytes / 1024, 500, "MB")


EVAL_ROWS = 2_000
FLOW = """flowengine: v1
name: bench
inputs: {text: {type: string}}
nodes:
""" + "".join(
    f"  n{at}: {{model: offline, prompt: '{{{{ inputs.text }}}} {f'{{{{ nodes.n{at - 1}.output }}}}' * bool(at)}'}}\n"
    for at in range(5)
)
EVAL = """flow: flow.yaml
data: rows.jsonl
slices: [kind]
scorers:
  any: {outputs: {n4: {matches: "."}}}
  fast: {seconds_at_most: 100}
"""


def eval_project(folder: Path) -> Path:
    """An eval of 2,000 rows of a flow of five offline nodes."""
    (folder / "flowengine.toml").touch()
    (folder / "flow.yaml").write_text(FLOW)
    rows = [{"text": f"The row number {number} is short.", "kind": number % 3} for number in range(EVAL_ROWS)]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "bench.floweval.yaml").write_text(EVAL)
    return folder / "bench.floweval.yaml"


async def experiments_eval_cpu() -> Row:
    """Both with a store in a file, 20 rows at once."""
    with TemporaryDirectory() as folder:
        path = eval_project(Path(folder))
        flow, fields = Flow.from_yaml(path.with_name("flow.yaml")), load_eval(path)
        rows = [json.loads(line)["text"] for line in path.with_name("rows.jsonl").read_text().splitlines()]
        names = count()

        async def bare() -> None:
            store, waiting = open_store(f"{folder}/bare{next(names)}.db", "process"), iter(rows)

            async def work() -> None:
                for text in waiting:
                    run = await flow.run({"text": text}, store=store, labels={"row": "1"})
                    assert run.status == "succeeded"

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(work)
            store.close()

        async def scored() -> None:
            store = open_store(f"{folder}/eval{next(names)}.db", "process")
            made = await EvalRun(file=fields, store=store).run()
            report = make_report(made)
            assert [each.estimate.mean for each in report.scorers] == [1.0, 1.0]
            assert "All rows" in report_page(report)
            store.close()

        return await ratio("eval of 2,000 rows of 5 nodes, against the bare runs", 1.3, scored, bare, rounds=3)


def experiments_report_opens() -> Row:
    """Seconds until Chromium has laid out the page of 2,000 rows."""
    rows = [
        EvalRow(
            f"{number:x}", number, 1, f"3f9a-{number}", None, "succeeded", "",
            {name: Score(number % 7 / 6, "a reason") for name in ("team", "polite", "exact")},
            {"kind": str(number % 3)}, 8, 2, 0.01, 0.001, 1.5, "What the flow gave, in some words. " * 6,
        )
        for number in range(EVAL_ROWS)
    ]  # fmt: skip
    made = EvalSet("a1", "bench", "bench", 0.0, "", {}, finished=True, rows=rows)
    made.passes_from = {"team": 1.0, "polite": 0.7, "exact": 0.5}
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        path.write_text(report_page(make_report(made)))
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)).new_page()
        begun = perf_counter()
        page.goto(path.as_uri())
        assert page.locator("tr[id]").count() == EVAL_ROWS
        seconds = perf_counter() - begun
    return Row("report of 2,000 rows, until it is open", seconds, 2.0, "s")


ROWS = (experiments_data_memory, experiments_batch_memory, experiments_eval_cpu, experiments_report_opens)
