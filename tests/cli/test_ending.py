"""How the process of a command ends: what a signal leaves on record, and what Python itself has to do at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "flowengine.cli.main")

STEPS = '''
import asyncio, atexit, pathlib, time, anyio
from concurrent.futures import ThreadPoolExecutor

POOL = ThreadPoolExecutor()
BUFFERED = open("buffered", "w")
atexit.register(lambda: pathlib.Path("at_end").write_text("done"))

class Panic(BaseException): ...

def use_pool():
    BUFFERED.write("all of it")
    return POOL.submit(lambda: "pooled").result()

def block():
    pathlib.Path("begun").touch()
    time.sleep(60)

async def cancel_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)

async def wait(how):
    """Nothing but its habit tells the first time from the second, when it returns at once."""
    if pathlib.Path("begun").exists():
        return "of its own"
    pathlib.Path("begun").touch()
    if how == "blocks":
        time.sleep(2)
        return "of its own"
    if how == "shields":
        with anyio.CancelScope(shield=True):
            await anyio.sleep(2)
        return "of its own"
    try:
        await anyio.sleep(60)
    except BaseException:
        if how == "obeys":
            raise
        if how == "swallows":
            for _ in range(5):
                try:
                    await anyio.sleep(1)
                except BaseException:
                    pass
        if how == "fails":
            raise ConnectionError("made of it")
        if how == "panics":
            raise Panic("made of it")
        return "made of it"

async def beside():
    if not pathlib.Path("stopped").exists():
        await anyio.sleep(60)
    return "beside"

async def use(v):
    with open("used", "a") as file:
        file.write(v)
    return v
'''

FLOW = """
flowengine: v1
name: stopped
nodes:
  f: {type: function, call: "steps:wait", with: {how: HABIT}, on_error: skip}
  g: {type: function, call: "steps:beside"}
  z: {type: function, call: "steps:use", with: {v: "{{ nodes.f.output | default('none') }}"}, needs: [f, g]}
  clean: {type: function, call: "steps:use", with: {v: "cleaned"}, needs: [f], join: always}
outputs: {z: "{{ nodes.z.output | default('absent') }}"}
"""


def write_flow(folder: Path, text: str) -> None:
    (folder / "steps.py").write_text(STEPS)
    (folder / "f.yaml").write_text(text)


def write_call(folder: Path, call: str) -> None:
    write_flow(folder, f'flowengine: v1\nname: f\nnodes:\n  n: {{type: function, call: "steps:{call}"}}\n')


def run(folder: Path, *arguments: str, signals: int = 0, number: int = signal.SIGINT) -> tuple[int, str, str]:
    """A command to its end, which is sent so many signals once its node has begun."""
    environment = {**os.environ, "FLOWENGINE_STORE": f"sqlite:///{folder / 'runs.db'}"}
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environment, text=True, stdout=-1, stderr=-1, stdin=-3
    )
    deadline = time.monotonic() + 60
    for _ in range(signals):
        while not (folder / "begun").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.1)
        if process.poll() is None:
            process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_process_whose_code_has_threads_of_its_own_ends_as_python_does(tmp_path: Path):
    write_call(tmp_path, "use_pool")
    code, _, err = run(tmp_path, "run", "f.yaml")
    assert code == 0, err
    assert (tmp_path / "buffered").read_text() == "all of it"
    assert (tmp_path / "at_end").exists()


def test_a_process_that_leaves_a_thread_of_a_stopped_node_does_what_it_has_to_do_at_its_end(tmp_path: Path):
    write_call(tmp_path, "block")
    begun = time.monotonic()
    code, _, err = run(tmp_path, "run", "f.yaml", signals=1)
    assert code == 130, err
    assert (tmp_path / "at_end").exists()
    assert time.monotonic() - begun < 40


def test_a_signal_after_the_last_thing_that_a_process_has_to_do_at_its_end_changes_no_exit_code(tmp_path: Path):
    write_call(tmp_path, "use_pool")
    with (tmp_path / "steps.py").open("a") as file:
        file.write(LATE)
    for number in ("SIGINT", "SIGTERM"):
        (tmp_path / "which").write_text(number)
        code, out, err = run(tmp_path, "run", "f.yaml")
        assert (code, out, err) == (0, "pooled\n", "")
        (tmp_path / "late").rmdir()


LATE = """
import os, signal

class Late:
    \"\"\"Goes with its module, when Python no longer hears signals.\"\"\"

    number = getattr(signal, open("which").read())

    def __del__(self, mark=os.mkdir, kill=os.kill, process=os.getpid(), number=number):
        mark("late")
        kill(process, number)

LATE = Late()
"""


@pytest.mark.parametrize("module", ["click", "flowengine.cli.terminal", "flowengine.cli.commands.run", "anyio"])
def test_an_interrupt_while_the_command_line_is_loaded_ends_it_with_one_line(module: str, tmp_path: Path):
    write_call(tmp_path, "use_pool")
    for trap in ("interrupt()", "Swallows()"):
        command = [sys.executable, "-c", LOADED.format(module=module, trap=trap), "run", "f.yaml"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


LOADED = """
import os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Swallows:
    \"\"\"An exception in here is told by Python and lost, as in the callbacks of its import system.\"\"\"

    def __del__(self):
        interrupt()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            {trap}

from flowengine.__main__ import main

sys.meta_path.insert(0, Finder())
sys.exit(main())
"""


def test_code_that_cancels_its_own_task_stops_the_run_without_a_traceback(tmp_path: Path):
    write_call(tmp_path, "cancel_itself")
    code, _, err = run(tmp_path, "run", "f.yaml", "--run-id", "r1")
    assert (code, "Traceback" in err) == (130, False), err
    assert "flowengine resume r1" in err


def check_stop(folder: Path, habit: str, number: int, signals: int) -> None:
    write_flow(folder, FLOW.replace("HABIT", habit))
    code, out, err = run(folder, "run", "f.yaml", "--run-id", "r1", signals=signals, number=number)
    assert (code, out) == (130, ""), err
    assert "Traceback" not in err
    assert not (folder / "used").exists()
    shown = run(folder, "runs", "list")[1]
    assert re.search(r"r1 +stopped +(cancelled|interrupted)", shown), shown
    (folder / "stopped").touch()
    code, out, err = run(folder, "resume", "r1")
    assert (code, out) == (0, "of its own\n"), err
    assert sorted(re.findall("of its own|cleaned|none|made of it", (folder / "used").read_text())) == [
        "cleaned",
        "of its own",
    ]


def test_a_signal_while_a_node_shields_itself_leaves_a_cancelled_run_that_goes_on(tmp_path: Path):
    check_stop(tmp_path, "shields", signal.SIGINT, 1)


@pytest.mark.long
@pytest.mark.parametrize("habit", ["obeys", "finishes", "shields", "swallows", "fails", "panics", "blocks"])
def test_so_does_every_signal_whatever_the_code_makes_of_it(habit: str, tmp_path: Path):
    for number, signals in ((signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGINT, 2), (signal.SIGTERM, 2)):
        folder = tmp_path / f"{number:d}-{signals}"
        folder.mkdir()
        check_stop(folder, habit, number, signals)
