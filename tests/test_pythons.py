"""The command that runs the tests on other Pythons."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.pythons import find_python, main


def add_command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder of PATH."""
    os.symlink(str(shutil.which("sh")), tmp_path / "sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_a_python_is_found_by_its_version_its_path_and_by_uv(commands: Path):
    assert find_python("3.98") is None
    assert find_python(sys.executable) == sys.executable
    add_command(commands, "python3.98", f'[ "$PYENV_VERSION" = 3.98 ] && exec {sys.executable} "$@"')
    assert find_python("3.98") == sys.executable
    add_command(commands, "python3.98", "echo 'it stands for nothing installed' >&2; exit 127")
    assert find_python("3.98") is None
    add_command(commands, "uv", f'[ "$*" = "python find 3.98" ] && echo {sys.executable}')
    assert find_python("3.98") == sys.executable


def test_a_python_that_cannot_be_had_is_told_and_fails_where_it_was_asked_for(
    commands: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["3.98"]) == 1
    assert "3.98          -       -        -  cannot be had" in capsys.readouterr().out
    assert main([]) == 0
    assert f"3.{sys.version_info.minor}  " not in capsys.readouterr().out


def test_a_python_on_which_nothing_can_be_installed_is_told(commands: Path, capsys: pytest.CaptureFixture[str]):
    add_command(commands, "other", 'echo "$0"; [ "$1" = -c ]')
    assert main(["other"]) == 1
    assert "other         -       -        -  cannot be installed on" in capsys.readouterr().out
