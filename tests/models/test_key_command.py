"""Commands that print a key: run once, without a shell, and silent about what they printed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from flowengine.errors import ModelConfigError
from flowengine.models import key_command
from flowengine.models.key_command import find_key_command_problem, find_variable_problem, read_key, split_command

SECRET = "sk-vault-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_keys_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_command, "_keys", {})


def python(code: str, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *more)


def refusal_of(command: tuple[str, ...], limit: float = 20.0) -> str:
    with pytest.raises(ModelConfigError) as caught:
        read_key(command, "model 'fast'", limit=limit)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_a_command_runs_once_a_process(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = python(f"open({str(ran)!r}, 'a').write('x'); print({SECRET!r})")
    assert [read_key(command, "m") for _ in range(3)] == [SECRET] * 3
    assert ran.read_text() == "x"


def test_those_who_ask_at_once_wait_for_one_command(tmp_path: Path) -> None:
    ran, found = tmp_path / "ran", list[str]()
    command = python(f"open({str(ran)!r}, 'a').write('x'); print({SECRET!r})")
    threads = [Thread(target=lambda: found.append(read_key(command, "m"))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (found, ran.read_text()) == ([SECRET] * 4, "x")


def test_no_shell_reads_the_command() -> None:
    assert read_key(python("import sys; print(sys.argv[1])", "$HOME;`id`|x"), "m") == "$HOME;`id`|x"
    assert split_command("op read 'a b' $HOME") == ("op", "read", "a b", "$HOME")


def test_a_command_that_fails_tells_nothing_of_what_it_printed() -> None:
    code = f"import sys; print({SECRET!r}); print({SECRET!r}, file=sys.stderr); sys.exit(3)"
    told = refusal_of(python(code))
    assert f"the key command '{Path(sys.executable).name}' of model 'fast' failed with exit code 3" in told
    assert SECRET not in told


def test_a_command_that_failed_runs_again(tmp_path: Path) -> None:
    flag = tmp_path / "unlocked"
    command = python(f"import os, sys; print({SECRET!r}) if os.path.exists({str(flag)!r}) else sys.exit(1)")
    refusal_of(command)
    flag.touch()
    assert read_key(command, "m") == SECRET


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("pass", "printed nothing"),
        ("print('a key', 'of words')", "printed more than one word"),
        (f"print({SECRET!r}); print({SECRET!r})", "printed more than one word"),
        ("print('x' * 20000)", "printed more than one word"),
        ("import sys; sys.stdout.buffer.write(b'\\x00\\x01')", "printed more than one word"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(code: str, told: str) -> None:
    refused = refusal_of(python(code))
    assert told in refused
    assert SECRET not in refused


def test_a_program_that_is_not_there_is_named() -> None:
    assert "the key command 'no-such-vault' of model 'fast' cannot be started" in refusal_of(("no-such-vault", SECRET))
    assert SECRET not in refusal_of(("no-such-vault", SECRET))


@pytest.mark.long
def test_a_command_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    inner = "import time; time.sleep(600)"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}])\n"
        f"open({str(started)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    assert "gave no key within 2 s" in refusal_of(python(code), limit=2.0)
    if not started.exists():
        return  # It was ended before it began: there is nothing left behind.
    child = int(started.read_text() or "0")
    deadline = time.monotonic() + 20
    while child and Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "what the command started lives on"
        time.sleep(0.02)


@pytest.mark.parametrize("value", ["", "  ", [], [""], ["op", 3], 5, None, "op 'x", ["a\0b"], {"op": 1}])
def test_what_is_no_command_is_told(value: object) -> None:
    assert find_key_command_problem(value) is not None


@pytest.mark.parametrize("value", ["sk-1234", "", "A B", 3, "1A", "A" * 300])
def test_a_key_in_the_place_of_a_variables_name_is_refused(value: object) -> None:
    assert find_variable_problem(value) == "the name of an environment variable, not its value"
