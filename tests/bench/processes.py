"""Rows of whole processes: memory, import and the command line."""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.bench.measure import Row

__all__ = ["ROWS"]

ROOT = Path(__file__).parents[2]

LARGE = """
import asyncio
from flowengine import Flow, FunctionNode
async def value(context): return 1
nodes = {
    f"n{i}": FunctionNode(value, needs=[f"n{(i // 10 - 1) * 10 + (i + k) % 10}" for k in range(3)] if i >= 10 else [])
    for i in range(100_000)
}
flow = Flow("large", nodes)
asyncio.run(flow.run())
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""


def cpu_of(
    *command: str, rounds: int = 5, cwd: Path = ROOT, environ: dict[str, str] | None = None
) -> tuple[float, float, float]:
    """Median, smallest and largest CPU seconds (user and system) of a process that succeeds."""
    times: list[float] = []
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        finished = subprocess.run(command, cwd=cwd, env=environ or environment(), capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert finished.returncode == 0, finished.stderr
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    counted = times[1:]
    return statistics.median(counted), min(counted), max(counted)


def environment() -> dict[str, str]:
    keys = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**keys, "FLOWENGINE_STORE": f"sqlite:///{_folder()}/runs.db"}


@cache
def _folder() -> str:
    """Gone at the end, so that no earlier store is in the way."""
    folder = tempfile.mkdtemp(prefix="flowengine-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def printed(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return finished.stdout.strip()


def large_graph() -> Row:
    return Row("resident memory, 100,000 nodes", float(printed(LARGE)) / 1024, 400, "MB")


def import_flow() -> Row:
    median, low, high = cpu_of(sys.executable, "-c", "from flowengine import Flow")
    bare, _, _ = cpu_of(sys.executable, "-c", "pass")
    spread = ((low - bare) * 1000, (high - bare) * 1000)
    return Row("from flowengine import Flow", (median - bare) * 1000, 400, "ms CPU", spread)


def import_memory() -> Row:
    # Not getrusage: its peak begins at that of the process which started this one.
    peak = "[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0]"
    code = f"from flowengine import Flow; print({peak})"
    heavy = "import sys; from flowengine import Flow; print('litellm' in sys.modules or 'networkx' in sys.modules)"
    assert printed(heavy) == "False"
    return Row("from flowengine import Flow", float(printed(code)) / 1024, 45, "MB")


def import_bare() -> Row:
    median, low, high = cpu_of(sys.executable, "-c", "import flowengine")
    return Row("import flowengine, whole process", median * 1000, 100, "ms CPU", (low * 1e3, high * 1e3))


def cold_count() -> Row:
    """The first count of a process, from its start to its end; a network that is asked for would be seen.

    Beyond what a process takes that counts nothing, in turn with it. A round is the quickest of three: what others
    do on the machine only ever adds.
    """
    code = "; ".join(
        [
            "import socket",
            "socket.socket.connect = socket.getaddrinfo = lambda *given, **named: 1 / 0",
            "from flowengine.models.tokens import count_tokens",
            "assert count_tokens('Tea 茶 ' * 100) > 100",
        ]
    )
    times: list[float] = []
    for _ in range(7):
        bare = cpu_of(sys.executable, "-c", "import socket", rounds=3)[1]
        times.append(cpu_of(sys.executable, "-c", code, rounds=3)[1] - bare)
    return Row("token count from cold", statistics.median(times), 0.3, "s CPU", (min(times), max(times)))


def hello() -> Row:
    value = cpu_of(sys.executable, "-m", "flowengine", "run", "flows/hello.yaml", "--quiet")
    return Row("flowengine run flows/hello.yaml", value[0], 1.5, "s CPU", value[1:])


_TRIAGE = ("run", "flows/support_triage.yaml", "-i", "message=I was charged twice")


def triage() -> Row:
    """Three models' answers without a network, from the start of the process to its end, bytecode compiled before."""
    value = cpu_of(sys.executable, "-m", "flowengine", *_TRIAGE, "--quiet")
    return Row("flowengine run flows/support_triage.yaml", value[0], 0.5, "s CPU", value[1:])


def triage_memory() -> Row:
    peak = "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    code = f"from flowengine.cli.main import main; main({[*_TRIAGE, '--quiet']}); {peak}"
    return Row("flowengine run flows/support_triage.yaml", float(printed(code).split()[-1]) / 1024, 52, "MB")


def validate() -> Row:
    """1,000 nodes with three templates and expressions each."""
    lines = ["flowengine: v1", "name: large", "inputs: {topic: {type: string}}", "nodes:"]
    for i in range(1000):
        lines += _three_texts(i, i - 1, "  ")
    return Row("flowengine validate, 1,000 nodes", *_validating(lines, 1.5))


def validate_nested() -> Row:
    """1,000 nodes in 100 loops and maps that follow each other, with 3,000 templates and expressions."""
    lines = ["flowengine: v1", "name: nested", "inputs: {topic: {type: string}, list: {type: array}}", "nodes:"]
    for start in range(0, 1000, 10):
        lines += [f"  c{start}:"] + ([f"    needs: [c{start - 10}]"] if start else [])
        if start % 20:
            lines += ["    type: map", "    over: inputs.list", "    nodes:"]
        else:
            lines += [
                "    type: loop",
                "    max_iterations: 3",
                f"    until: nodes.n{start}.output == 'x'",
                "    nodes:",
            ]
        for i in range(start, start + 9):
            lines += _three_texts(i, i - 1 if i > start else None, "      ")
    return Row("flowengine validate, 1,000 nodes in 100 bodies", *_validating(lines, 3.0))


def reuse() -> Row:
    """`run --reuse` of 1,000 functions in a chain where nothing has changed."""
    lines = ["flowengine: v1", "name: long", "inputs: {topic: {type: string}}", "nodes:"]
    for i in range(1000):
        said = "{{ inputs.topic }}" if i == 0 else f"{{{{ nodes.n{i - 1}.output }}}}"
        lines += [f"  n{i}:", "    type: function", "    call: work_of_bench:keep", f'    with: {{text: "{said}"}}']
    with tempfile.TemporaryDirectory() as folder:
        flow, store = Path(folder, "long.yaml"), str(Path(folder, "runs.db"))
        flow.write_text("\n".join(lines) + "\n")
        Path(folder, "work_of_bench.py").write_text("async def keep(text):\n    return text\n")
        run = [sys.executable, "-m", "flowengine", "run", str(flow), "-i", "topic=tea", "-q", "--store", store]
        subprocess.run(run, cwd=ROOT, capture_output=True, check=True)
        median, low, high = cpu_of(*run, "--reuse", "@last")
    return Row("flowengine run --reuse, 1,000 nodes", median, 2.0, "s CPU", (low, high))


def _three_texts(number: int, before: int | None, indent: str) -> list[str]:
    first = before is None or before < 0
    said = "{{ inputs.topic }}" if first else f"{{{{ nodes.n{before}.output }}}} and {{{{ inputs.topic }}}}"
    return [
        f"{indent}n{number}:",
        f'{indent}  instructions: "Write about {{{{ inputs.topic }}}}, part {number}."',
        f'{indent}  prompt: "{said}"',
        f"{indent}  when: inputs.topic != 'stop{number}'",
    ]


def _validating(lines: list[str], most: float) -> tuple[float, float, str, tuple[float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.yaml")
        path.write_text("\n".join(lines) + "\n")
        median, low, high = cpu_of(sys.executable, "-m", "flowengine", "validate", str(path))
    return median, most, "s CPU", (low, high)


ROWS = (
    large_graph,
    import_flow,
    import_memory,
    import_bare,
    hello,
    triage,
    triage_memory,
    cold_count,
    validate,
    validate_nested,
    reuse,
)
