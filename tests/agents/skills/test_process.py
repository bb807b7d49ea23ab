"""One command, its output, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from flowengine.agents.skills.sandbox.process import Command, end_below, run_command
from flowengine.agents.skills.sandbox.script import Outcome, ScriptLimits
from tests.support.pace import done_within


def run(code: str, stdin: bytes = b"", stop: threading.Event | None = None, **limits: float) -> Outcome:
    command = Command([sys.executable, "-c", code], stdin, {"PATH": "/usr/bin:/bin"})
    return run_command(command, ScriptLimits(**limits), stop or threading.Event())  # type: ignore[arg-type] - some are whole


def test_both_outputs_and_the_exit_code_come_back() -> None:
    outcome = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert outcome[:3] == (3, "out\n", "err\n")
    assert outcome.ending == "exit"


def test_much_input_is_given_while_much_output_is_read() -> None:
    outcome = run("import sys; sys.stdout.write(sys.stdin.read())", b"x" * 1_000_000, output=2_000_000)
    assert len(outcome.stdout) == 1_000_000


def test_input_that_nobody_reads_is_no_error() -> None:
    assert run("import os; os.close(0); print(1)", b"x" * 1_000_000).stdout == "1\n"


def test_output_is_cut_while_it_is_read() -> None:
    outcome = run("while True: print('x' * 1000)", output=5_000)
    assert (len(outcome.stdout), outcome.ending) == (5_000, "output")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert run("import os; os.write(1, b'a\\xff')").stdout == "a\ufffd"


def test_a_command_that_takes_too_long_is_ended() -> None:
    command = Command(["sh", "-c", "echo begun; exec sleep 60"], b"", {"PATH": "/usr/bin:/bin"})  # It begins at once.
    with done_within(5):
        outcome = run_command(command, ScriptLimits(seconds=1.0), threading.Event())
    assert (outcome.stdout, outcome.ending, outcome.code) == ("begun\n", "time", 137)


def test_a_command_that_closed_its_outputs_is_waited_for_and_ended() -> None:
    assert run("import os, time; os.close(1); os.close(2); time.sleep(60)", seconds=0.5).ending == "time"
    assert run("import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(4)").code == 4


def test_who_holds_the_outputs_after_the_end_is_not_waited_for() -> None:
    begun = time.monotonic()
    outcome = run("import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(30); os._exit(0)\nprint(1)")
    assert outcome.stdout == "1\n"
    assert time.monotonic() - begun < 25


def test_a_command_is_ended_from_outside() -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with done_within(5):
        run("import time; time.sleep(60)", stop=stop)


def test_memory_of_all_processes_together_is_watched() -> None:
    code = "import os, time\nfor _ in range(3): os.fork()\nblock = bytearray(os.urandom(20_000_000)); time.sleep(60)"
    assert run(code, seconds=20, memory=100_000_000).ending == "memory"


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(Command(["/nowhere"]), ScriptLimits(), threading.Event())


def test_all_below_a_process_is_ended_and_the_process_goes_on() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).wait(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while not _children(process.pid):
            time.sleep(0.01)
        end_below(process.pid)
        assert process.stdout.readline() == b"-9\n"
        process.kill()


def test_ending_ends_where_no_handle_of_a_process_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with subprocess.Popen(["sleep", "60"]) as process:
        end_below(os.getpid())
        assert process.poll() is None
        process.kill()


def _children(pid: int) -> str:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read()
