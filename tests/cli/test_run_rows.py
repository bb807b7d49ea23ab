"""`flowengine run --data` on the command line."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine.cli.run_rows import RowMeter
from flowengine.journal.stores import open_store
from tests.cli.conftest import Command

ROWS = '{"n": 1}\n{"n": "x"}\n{"n": 3, "note": "three"}\n'


def test_results_are_written_in_their_places(flowengine: Command, folder: Path) -> None:
    (folder / "rows.jsonl").write_text(ROWS)
    said = flowengine("run", "typed.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")
    assert said.code == 1
    assert "notice: no input takes the column note" in said.err
    assert "3 rows: 2 succeeded, 1 refused" in said.err
    assert "invalid: rows.jsonl:2: input 'n': expected integer, found str 'x'" in said.err.splitlines()[1]
    assert "  first refused: row 2: rows.jsonl:2: input 'n': expected integer, found str 'x'" in said.err
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [(each["row"], each["status"]) for each in found] == [(1, "succeeded"), (2, "refused"), (3, "succeeded")]
    assert found[2]["outputs"]["total"] == 6
    assert found[2]["data"] == {"n": 3, "note": "three"}
    assert "rows.jsonl:2: input 'n': expected integer, found str 'x'" in found[1]["error"]["message"]
    listed = json.loads(flowengine("runs", "list", "--json", "--label", "data=rows.jsonl").out)
    assert sorted(each["labels"]["row"] for each in listed) == ["1", "3"]
    again = flowengine("run", "typed.yaml", "--data", "rows.jsonl")
    assert "2 were done before" in again.err
    assert [json.loads(line)["status"] for line in again.out.splitlines()] == ["succeeded", "refused", "succeeded"]


def test_a_table_comes_back_as_a_table_that_computes_nothing(flowengine: Command, folder: Path) -> None:
    (folder / "rows.csv").write_text("body,loud\n=1+1,a\nhello,b\n")
    said = flowengine("run", "shout.yaml", "--data", "rows.csv", "-o", "out.csv", "--map", "body=text", "-q")
    assert (said.code, said.err) == (0, "a print of the flow's code\n" * 2)
    first, second = csv.DictReader((folder / "out.csv").read_text().splitlines())
    assert (first["output.loud"], second["output.loud"]) == ("'=1+1", "HELLO")
    assert (first["body"], first["loud"], first["status"]) == ("'=1+1", "a", "succeeded")


def test_rows_and_results_that_another_process_is_at_work_on_are_left_alone(flowengine: Command, folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"n": 1}\n')
    command = ("run", "typed.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")
    flowengine(*command)
    results = (folder / "out.jsonl").read_text()
    with closing(open_store(f"sqlite:///{folder / '.flowengine' / 'runs.db'}")) as store:
        parent = {"host": socket.gethostname(), "process": os.getppid(), "born": "", "at": 0.0}
        set_id = store.list()[0].labels["set"]
        store.revise("rows.held", set_id, lambda before: parent)
    said = flowengine(*command)
    assert (said.code, f"set {set_id} are being run by process {os.getppid()} on " in said.err) == (2, True)
    assert (folder / "out.jsonl").read_text() == results


def test_the_hint_after_a_fresh_set_was_cut_short_pays_for_nothing_again(flowengine: Command, folder: Path) -> None:
    (folder / "rows.jsonl").write_text("".join(f'{{"text": "{each}"}}\n' for each in "abc"))
    (folder / "asks.yaml").write_text(
        "flowengine: v1\nname: asks\ninputs: {text: {type: string}}\n"
        'nodes: {one: {model: offline, prompt: "{{ inputs.text }}"}}\n'
    )
    command = ("run", "asks.yaml", "--data", "rows.jsonl", "--concurrency", "1")
    cut = flowengine(*command, "--fresh", "--max-calls", "2")
    assert (cut.code, "the same command without --fresh goes on where it was" in cut.err) == (4, True), cut.err
    asked = flowengine(*command)
    assert (asked.code, "3 succeeded, 2 were done before" in asked.err) == (0, True), asked.err


def test_an_edited_flow_is_told_with_the_two_ways_on(flowengine: Command, folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"text": "a"}\n')
    flow = folder / "shout.yaml"
    flowengine("run", "shout.yaml", "--data", "rows.jsonl")
    flow.write_text(flow.read_text().replace("inputs.text", "inputs.text + '!'"))
    said = flowengine("run", "shout.yaml", "--data", "rows.jsonl")
    assert said.code == 5
    assert "--allow-changed goes on with what is here now; --fresh runs all rows anew" in said.err
    fresh = flowengine("run", "shout.yaml", "--data", "rows.jsonl", "--fresh")
    assert json.loads(fresh.out)["outputs"] == {"loud": "A!"}


def test_a_continuation_that_stops_early_writes_the_rows_that_had_ended_before(
    flowengine: Command, folder: Path
) -> None:
    (folder / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(1, 5)))
    (folder / "halves.py").write_text(
        "import os, time\n"
        "def half(n):\n"
        "    time.sleep(0.01)\n"
        "    if n < 3 and not os.path.exists('mended'): raise ValueError('odd')\n"
    )
    (folder / "halves.yaml").write_text(
        "flowengine: v1\nname: halves\ninputs: {n: {type: integer}}\nnodes:\n"
        "  a: {type: function, call: 'halves:half', with: {n: '{{ inputs.n }}'}}\n"
        "  b: {model: offline, needs: [a], prompt: 'say {{ inputs.n }}'}\n"
    )
    command = ("run", "halves.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--concurrency", "1")

    def results() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]

    said = flowengine(*command)
    assert said.code == 1, said.err
    before = results()
    assert [each["status"] for each in before] == ["failed", "failed", "succeeded", "succeeded"]
    (folder / "mended").touch()
    flowengine(*command, "--retry-failed", "--max-calls", "1")
    after = results()
    assert [each["status"] for each in after] == ["succeeded", "paused", "succeeded", "succeeded"]
    assert after[2:] == [each | {"seconds": after[at]["seconds"]} for at, each in enumerate(before[2:], 2)]
    assert all(each["seconds"] >= 0.01 for each in after)


def test_rows_that_keep_results_of_an_earlier_flow_are_told(flowengine: Command, folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"text": "a"}\n')
    flow = folder / "shout.yaml"
    flowengine("run", "shout.yaml", "--data", "rows.jsonl")
    flow.write_text(flow.read_text().replace("inputs.text", "inputs.text + '!'"))
    said = flowengine("run", "shout.yaml", "--data", "rows.jsonl", "--allow-changed")
    assert "notice: the flow was edited since; 1 finished rows keep their results (--fresh: anew)" in said.err
    assert "was edited" not in flowengine("run", "shout.yaml", "--data", "rows.jsonl").err


@pytest.mark.parametrize(
    ("is_batched", "said"), [(False, r"1 of 9 rows · .* rows/.* · about .* left"), (True, "1 of 9 rows")]
)
def test_rows_that_wait_for_batches_tell_no_rate_and_no_time_left(is_batched: bool, said: str) -> None:
    meter = RowMeter(9, quiet=True, is_batched=is_batched)
    meter.statuses["succeeded"] += 1
    assert re.fullmatch(said, meter.line())


def test_options_that_do_not_go_together_are_refused(flowengine: Command, folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"text": "a"}\n')
    for options, says in (
        (["-o", "out.jsonl"], "-o goes with --data"),
        (["--fresh"], "--fresh goes with --data"),
        (["--data", "rows.jsonl", "--session", "s"], "--session does not go with --data"),
        (["--data", "rows.jsonl", "--events"], "--events does not go with --data"),
        (["--data", "rows.jsonl", "-o", "rows.jsonl"], "that is the file with the data"),
        (["--data", "rows.jsonl", "-o", "none/out.jsonl"], "there is no folder for such a file"),
    ):
        said = flowengine("run", "shout.yaml", *options)
        assert (said.code, says in said.err) == (2, True), said.err


def test_a_killed_process_is_gone_on_with_and_does_nothing_twice(folder: Path) -> None:
    (folder / "marks.py").write_text(
        "import os, signal\n"
        "def mark(n):\n"
        "    with open('marks', 'a') as file: file.write(f'{n}\\n')\n"
        "    if n == 12 and not os.path.exists('killed'):\n"
        "        open('killed', 'w').close()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return n\n"
    )
    (folder / "mark.yaml").write_text(
        "flowengine: v1\nname: mark\ninputs: {n: {type: integer}}\n"
        "nodes:\n  mark: {type: function, call: 'marks:mark', with: {n: '{{ inputs.n }}'}}\n"
    )
    (folder / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    command = [sys.executable, "-m", "flowengine", "run", "mark.yaml", "--data", "rows.jsonl", "-o", "out.jsonl"]
    command += ["--concurrency", "1", "--json"]
    killed = subprocess.run(command, capture_output=True, cwd=folder)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "out.jsonl").exists()
    done = subprocess.run(command, capture_output=True, cwd=folder, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done_before"] == 12
    marks = [int(line) for line in (folder / "marks").read_text().split()]
    assert sorted(marks) == sorted([*range(20), 12])  # The call whose end nobody saw is made again.
    assert [json.loads(line)["row"] for line in (folder / "out.jsonl").read_text().splitlines()] == list(range(1, 21))
