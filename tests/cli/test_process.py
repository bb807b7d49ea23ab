"""The command as a process of its own: signals, pipes, terminals, and what its start imports."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

COMMAND = (sys.executable, "-m", "flowengine.cli.main")


def begin(*arguments: str, **streams: int) -> subprocess.Popen[str]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen([*COMMAND, *arguments], text=True, stdin=subprocess.DEVNULL, **given)  # type: ignore[call-overload]  # streams are ints


def until_asleep(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not (folder / "asleep").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def write_flow(folder: Path, call: str) -> None:
    (folder / "slow.yaml").write_text(
        f"flowengine: v1\nname: slow\nnodes:\n"
        f'  slow: {{type: function, call: "steps:{call}", with: {{seconds: "{{{{ 60 }}}}"}}}}\n'
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_cleans_up_and_says_how_to_go_on(
    folder: Path, flowengine: Command, number: signal.Signals
) -> None:
    process = begin("run", "sleep.yaml", "--run-id", "r1")
    until_asleep(folder, process)
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, out) == (130, "")
    assert err.splitlines()[-2:] == ["interrupted", "  to go on: flowengine resume r1"]
    assert "Traceback" not in err
    assert (folder / "cleaned").exists()
    assert re.search(r"r1 +sleep +cancelled", flowengine("runs", "list").out)


@pytest.mark.long
def test_an_interrupted_run_goes_on_where_it_was(folder: Path) -> None:
    process = begin("run", "sleep.yaml", "-i", "seconds=1", "--run-id", "r1")
    until_asleep(folder, process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    code, out, err = ended(begin("resume", "r1"))
    assert (code, out) == (0, "awake\n"), err
    assert (folder / "counted").read_text() == "x"


@pytest.mark.long
def test_a_killed_run_goes_on_where_it_was(folder: Path) -> None:
    process = begin("run", "sleep.yaml", "-i", "seconds=1", "--run-id", "r1")
    until_asleep(folder, process)
    process.kill()
    ended(process)
    code, out, err = ended(begin("resume", "@last"))
    assert (code, out) == (0, "awake\n"), err
    assert (folder / "counted").read_text() == "x"


def test_a_thread_that_blocks_does_not_hold_up_the_end(folder: Path) -> None:
    write_flow(folder, "block")
    process = begin("run", "slow.yaml")
    until_asleep(folder, process)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert "flowengine resume" in err
    assert time.monotonic() - begun < 30


def test_a_second_ctrl_c_ends_what_blocks_the_loop(folder: Path) -> None:
    write_flow(folder, "hog")
    process = begin("run", "slow.yaml")
    until_asleep(folder, process)
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() - begun < 30:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert ended(process)[0] == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_after_the_run_was_stopped_ends_the_process_with_the_same_code(number: signal.Signals) -> None:
    code = f"""
import os, signal, time, anyio
from flowengine.cli.ending import run_until_interrupted
async def job():
    os.kill(os.getpid(), {number:d})
    await anyio.sleep_forever()
assert run_until_interrupted(job) is None
os.kill(os.getpid(), {number:d})
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr


def test_a_reader_that_goes_away_early_is_quiet_and_the_run_goes_on(folder: Path, flowengine: Command) -> None:
    reading, writing = os.pipe()
    process = begin("run", "shout.yaml", "--events", "--run-id", "r1", stdout=writing)
    os.close(writing)
    os.close(reading)
    code, _, err = ended(process)
    assert code == 0
    assert err == "a print of the flow's code\n"
    assert flowengine("runs", "show", "r1", "--json").out.count('"succeeded"') == 2


@pytest.mark.parametrize(
    ("argv", "absent"),
    [
        (["--help"], ["pydantic", "networkx", "litellm", "rich", "anyio", "yaml", "jinja2"]),
        (["--version"], ["pydantic", "networkx", "litellm", "rich", "anyio", "yaml", "jinja2"]),
        (["validate", "shout.yaml", "agents.yaml"], ["litellm", "networkx", "rich", "sqlite3"]),
        (["run", "agents.yaml"], ["litellm", "rich"]),
        (["runs", "list"], ["litellm", "networkx", "yaml", "jinja2"]),
    ],
)
def test_a_command_imports_what_it_needs(folder: Path, argv: Sequence[str], absent: Sequence[str]) -> None:
    script = (
        "import sys; from flowengine.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr); sys.exit(code)"
    )
    found = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, check=True)
    loaded = found.stderr.splitlines()[-1].split()
    assert "click" in loaded
    assert [name for name in absent if name in loaded] == []


def on_terminal(*arguments: str, columns: int = 100) -> tuple[int, str]:
    """The exit code, and all that a terminal is sent."""
    main_end, its_end = pty.openpty()
    termios.tcsetwinsize(its_end, (24, columns))
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=its_end, stdout=its_end, stderr=its_end, env={**environ, "TERM": "xterm"}
    )
    os.close(its_end)
    sent = b""
    while True:
        try:
            sent += os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
    os.close(main_end)
    return process.wait(60), sent.decode()


def plain(sent: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent).replace("\r", "")


def test_a_terminal_sees_the_nodes_and_then_the_output(folder: Path) -> None:
    code, sent = on_terminal("run", "shout.yaml", "--run-id", "r1")
    assert code == 0
    shown = plain(sent)
    assert "✓ shout" in shown
    assert shown.endswith("HELLO\n")
    assert "a print of the flow's code" in shown
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h")


def test_a_terminal_is_not_ruled_by_what_a_flow_says(folder: Path) -> None:
    code, sent = on_terminal("run", "hostile.yaml")
    assert code == 0
    assert r"ok\x1b]0;owned\x07[bold]\u202e" in plain(sent)
    assert "\x1b]0;" not in sent


def test_a_list_is_as_wide_as_the_terminal(folder: Path, flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "--label", f"team={'x' * 60}")
    code, wide = on_terminal("runs", "list", columns=200)
    assert (code, wide.split()[:3]) == (0, ["RUN", "FLOW", "STATUS"])
    assert "x" * 60 in wide
    _, narrow = on_terminal("runs", "list", columns=40)
    assert max(map(len, plain(narrow).splitlines())) <= 40


def test_the_line_of_rows_is_never_wider_than_the_terminal(folder: Path) -> None:
    write_flow(folder, "block")
    slow = folder / "slow.yaml"
    slow.write_text(slow.read_text().replace("{{ 60 }}", "{{ 0.3 }}"))
    (folder / "rows.jsonl").write_text("{}\n" * 3)
    words = ("slow.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--concurrency", "1")
    code, sent = on_terminal("run", *words, columns=24)
    lines = re.findall(r"\r\x1b\[K([^\r\x1b]+)\r\x1b", sent)
    assert (code, lines != []) == (0, True)
    assert [line for line in lines if len(line) >= 24] == []


def test_a_terminal_is_quiet_when_asked(folder: Path) -> None:
    assert on_terminal("run", "hostile.yaml", "--quiet", "--json")[1].startswith("{")


def test_a_terminal_sees_the_line_and_a_caret(folder: Path) -> None:
    code, sent = on_terminal("run", "bad.yaml")
    assert code == 2
    assert plain(sent).splitlines()[1:3] == ["    4 |   a: {type: functio}", "      |             ^"]


def test_a_picture_in_bytes_is_not_sent_to_a_terminal(folder: Path) -> None:
    code, sent = on_terminal("graph", "shout.yaml", "--format", "png")
    assert code == 2
    assert "write it to a file with -o FILE" in sent


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("form", ["--events", "--json"])
def test_results_that_cannot_be_written_are_an_error_after_the_run(folder: Path, form: str) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = ended(begin("run", "shout.yaml", form, "--run-id", "r1", stdout=full.fileno()))
    assert code == 1
    assert err.splitlines()[1:] == ["error: stdout: No space left on device"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_run_is_worth_more_than_what_is_told_of_it(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        assert ended(begin("run", "agents.yaml", stderr=full.fileno()))[0] == 0
        assert ended(begin("run", "bad.yaml", stderr=full.fileno()))[0] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("argument", "unbuffered"), [("--help", "1"), ("--version", "")])
def test_help_that_cannot_be_written_is_an_error_of_stdout(
    folder: Path, argument: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        code, _, err = ended(begin(argument, stdout=full.fileno()))
    assert (code, err) == (1, "error: stdout: No space left on device\n")


def test_a_closed_stdout_and_stderr_are_no_error(folder: Path) -> None:
    command = " ".join([*COMMAND, "run", "shout.yaml"])
    assert subprocess.run(["sh", "-c", f"{command} >&- 2>&-"], check=False).returncode == 0


def test_the_module_ends_as_the_command_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flowengine", "validate", "nowhere.yaml"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 2


def test_hardly_anything_is_loaded_before_ctrl_c_is_heard() -> None:
    """The script that an installer makes imports the package outside of every handler of ours."""
    root = Path(__file__).parents[2]
    told = f"import sys; sys.path.insert(0, {str(root)!r}); import flowengine.__main__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-S", "-c", told], capture_output=True, text=True, check=True).stdout
    assert {"typing", "collections", "re", "importlib.util", "signal"}.isdisjoint(loaded.split())
