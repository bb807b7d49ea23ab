"""Rows of experiments: what a flow over many rows takes beside the bare runs."""

from __future__ import annotations

from tests.bench.measure import Row
from tests.bench.processes import printed

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


ROWS = (experiments_data_memory,)
