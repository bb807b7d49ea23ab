"""Code as a node: values in and out as JSON, in the real sandbox, which nothing leaves."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from flowengine import Flow
from flowengine.agents.skills.sandbox.sandbox import Verdict, verdict
from flowengine.agents.skills.sandbox.script import Outcome, ScriptLimits
from flowengine.core.records import Notice
from flowengine.engine.events import NodeRecorded
from flowengine.errors import DefinitionError, OutputError
from flowengine.journal.memory import MemoryStore
from flowengine.nodes import code_script
from flowengine.nodes.code_script import CodeNode
from flowengine.runtime.run import Run
from tests.support.odd_server import OddServer
from tests.support.require import missing

pytestmark = pytest.mark.anyio


@pytest.fixture
def sandbox() -> Generator[Path]:
    """A project's folder, where there is a sandbox; on a disk, as a sandbox shows nothing below `/dev` anyway."""
    with TemporaryDirectory(prefix="flowengine-project-", ignore_cleanup_errors=True) as folder:
        if not verdict(Path(folder)).holds:
            missing(f"there is no sandbox: {verdict(Path(folder)).reason}")
        yield Path(folder)


def node(root: Path, code: str, **settings: Any) -> CodeNode:
    known = settings.pop("known", {})
    arguments = {name: (lambda _, value=value: value) for name, value in known.items()}
    return CodeNode(code, arguments=arguments, root=root, **settings)


async def run_of(one: CodeNode, **options: Any) -> Run:
    return await Flow("f", {"a": one}).run(**options)


def message(run: Run) -> str:
    assert run.status == "failed", run.outputs
    assert run.error is not None
    return run.error.message


async def test_values_go_in_and_come_out_as_json(sandbox: Path):
    code = 'import math\nreturn [a, {"é\\n": b["c"]}, math.floor(2.5), None, True, (1, 2)]'
    run = (await run_of(node(sandbox, code, known={"a": "{{ x }}é", "b": {"c": [1.5]}}))).raise_for_status()
    assert run.outputs["a"] == ["{{ x }}é", {"é\n": [1.5]}, 2, None, True, [1, 2]]


async def test_half_a_surrogate_pair_is_refused_and_reaches_no_code_as_another_text(sandbox: Path):
    told = message(await run_of(node(sandbox, "return a", known={"a": ["x\ud800"]})))
    assert told == "a value of `with` holds half a surrogate pair, which is no text"
    assert (await run_of(node(sandbox, 'return "\\ud800"'))).raise_for_status().outputs["a"] == "\ud800"


async def test_keys_that_json_cannot_keep_apart_reach_no_code(sandbox: Path):
    told = message(await run_of(node(sandbox, "return len(a)", known={"a": [{1: "a", "1": "b"}]})))
    assert told == "a value of `with` has keys that are the same in JSON, such as 1 and '1'; make them texts"


async def test_a_text_of_several_lines_and_functions_in_it_stay_as_they_are(sandbox: Path):
    code = 'def twice(x):\n    return x + x if x else twice(1)\ntext = """a\n  b"""\nreturn [twice(0), text]'
    assert (await run_of(node(sandbox, code))).raise_for_status().outputs["a"] == [2, "a\n  b"]


async def test_what_is_printed_stands_in_the_trace_and_not_in_the_output(sandbox: Path):
    run = (await run_of(node(sandbox, 'print("seen")\nreturn 1'))).raise_for_status()
    assert run.outputs["a"] == 1
    notices = [each.record for each in run.events if isinstance(each, NodeRecorded)]
    assert notices == [Notice("the code printed: seen")]


@pytest.mark.parametrize(
    "written",
    [
        'import subprocess\nsubprocess.run(["echo", "seen"])',
        'import os\nos.write(1, b"seen")',
        'import sys\nsys.__stdout__.write("seen")',
        'import os\nif os.fork() == 0:\n    print("seen", flush=True)\n    os._exit(0)\nos.wait()',
    ],
)
async def test_what_is_written_past_pythons_print_is_no_answer_either(sandbox: Path, written: str):
    run = (await run_of(node(sandbox, f"{written}\nreturn 1"))).raise_for_status()
    assert run.outputs["a"] == 1
    assert [each.record for each in run.events if isinstance(each, NodeRecorded)] == [Notice("the code printed: seen")]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os\nos.write(1, b'{\"value\": 42}')\nos._exit(0)", "the code ended with 0 and gave no value"),
        ('return {1: "a", "1": "b"}', "cannot be written as JSON: two keys of an object are the same text"),
        ("x = 1\nreturn 1 / 0", "the code failed: line 2: ZeroDivisionError: division by zero"),
        ("return {1, 2}", "the code failed: TypeError: what it returns cannot be written as JSON"),
        ('return float("nan")', "what it returns cannot be written as JSON"),
        ("return (yield)", "what it returns cannot be written as JSON"),
        ("raise SystemExit(0)", "the code failed: line 1: SystemExit: 0"),
        ("import os\nos._exit(0)", "the code ended with 0 and gave no value"),
        ("import os\nos._exit(7)", "the code ended with 7 and gave no value"),
        ("await x", "the code failed: line 1: SyntaxError: 'await' outside async function"),
        ('return "x" * 2_000_000', "the code gave more than 1,000,000 bytes"),
        ('print("x" * 2_000_000)\nreturn 1', "the code gave more than 1,000,000 bytes"),
        ("import no_such_module\nreturn 1", "the code failed: line 1: ModuleNotFoundError"),
    ],
)
async def test_what_goes_wrong_is_told_with_its_line(sandbox: Path, code: str, said: str):
    assert said in message(await run_of(node(sandbox, code)))


@pytest.mark.parametrize("answer", ['{"value": NaN}', '{"value": Infinity}', '{"value": 1, "value": 2}'])
def test_an_answer_that_is_no_json_is_no_value(answer: str):
    with pytest.raises(OutputError, match="gave no value"):
        code_script._value_of(Outcome(0, answer, "", 0.1), ScriptLimits())


async def test_an_endless_loop_ends_at_its_time_and_memory_is_bounded(sandbox: Path):
    told = message(await run_of(node(sandbox, "while True: pass\nreturn 1", timeout=0.5)))
    assert "took longer than its timeout of 0.5 s" in told or "the code took longer than 0.5 s" in told
    told = message(await run_of(node(sandbox, "return len(bytearray(4_000_000_000))")))
    assert "MemoryError" in told or "bytes of memory" in told


async def test_code_reaches_neither_network_nor_files(sandbox: Path, monkeypatch: pytest.MonkeyPatch):
    await anyio.Path(sandbox, "secret.txt").write_text("key")
    monkeypatch.setenv("A_SECRET", "key")
    code = """
import os, socket
found = {"environment": "A_SECRET" in os.environ}
for name, attempt in {
    "file": lambda: open(path).read(),
    "passwd": lambda: open("/etc/passwd").read(),
    "write": lambda: open("/skill/x", "w"),
    "network": lambda: socket.create_connection(("127.0.0.1", port), timeout=2),
}.items():
    try:
        attempt()
        found[name] = True
    except OSError:
        found[name] = False
return found
"""
    with OddServer() as server:
        known = {"path": str(sandbox / "secret.txt"), "port": server.port}
        run = (await run_of(node(sandbox, code, known=known))).raise_for_status()
        assert server.seen == []
    names = ("environment", "file", "passwd", "write", "network")
    assert run.outputs["a"] == dict.fromkeys(names, False)


async def test_where_there_is_no_sandbox_the_run_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(code_script, "verdict", lambda root: Verdict(False, "bwrap is not installed"))
    began: list[int] = []
    from flowengine import FunctionNode

    flow = Flow("f", {"b": FunctionNode(lambda: began.append(1)), "a": node(tmp_path, "return 1", needs=["b"])})
    with pytest.raises(DefinitionError, match="code of a flow runs in a sandbox only, and here is none: bwrap is not"):
        await flow.run()
    assert began == []


async def test_the_cache_and_a_reuse_take_the_place_of_the_execution(sandbox: Path):
    store = MemoryStore()
    code = "import os, time\nreturn [a, os.urandom(8).hex()]"
    first = (await run_of(node(sandbox, code, known={"a": 1}), store=store)).raise_for_status()
    again = await run_of(node(sandbox, code, known={"a": 1}), store=store, reuse=first.id)
    assert again.outputs == first.outputs
    changed = await run_of(node(sandbox, code.replace("8", "9"), known={"a": 1}), store=store, reuse=first.id)
    assert changed.outputs != first.outputs
    cached = [await run_of(node(sandbox, code, known={"a": 1}, cache=True), store=store) for _ in range(2)]
    assert cached[0].outputs == cached[1].outputs
    other = await run_of(node(sandbox, code, known={"a": 2}, cache=True), store=store)
    assert other.outputs["a"][1] != cached[0].outputs["a"][1]


async def test_nothing_is_left_of_an_execution(sandbox: Path, monkeypatch: pytest.MonkeyPatch):
    place = sandbox / "tmp"
    place.mkdir()
    monkeypatch.setattr(code_script.tempfile, "tempdir", str(place))
    (await run_of(node(sandbox, "return 1"))).raise_for_status()
    assert os.listdir(place) == []
