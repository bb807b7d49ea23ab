"""`python -m tests.pythons [3.12 3.13 …] [-- tests and options of pytest]`: runs the tests on other Pythons.

A Python is a version or a path. A version is looked for on PATH (pyenv's shims count), then asked of uv where that is
installed. Each Python gets a virtual environment of its own, with what `.[dev]` installs at the versions of
`tests/constraints.txt`. Without a version each that the package names is tried, and what cannot be had is told; a
Python that was asked for and cannot be had, or cannot be installed on, is a failure like a test that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

__all__ = ["Outcome", "count_tests", "find_python", "format_table"]

ROOT = Path(__file__).parents[1]

_NOT_THERE = "cannot be had: neither on PATH nor from uv"


class Outcome(NamedTuple):
    python: str
    counts: dict[str, int] | None = None
    """passed, failed (errors too) and skipped; None: no test ran."""
    why: str = ""
    """Why none ran."""


def find_python(wanted: str) -> str | None:
    """Returns the path of an interpreter that can make virtual environments; None where there is none."""
    uv = shutil.which("uv")
    for found in (shutil.which(wanted), shutil.which(f"python{wanted}"), uv and _ask([uv, "python", "find", wanted])):
        if found and (python := _ask([found, "-c", _WHERE], PYENV_VERSION=wanted)):
            return python
    return None


_WHERE = "import ensurepip, sys; print(sys.executable)"


def _ask(command: Sequence[str], **environment: str) -> str | None:
    """What it prints; None where it fails, as commands of version managers do that stand for nothing installed."""
    told = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    return told.stdout.strip() if told.returncode == 0 else None


def count_tests(report: str) -> dict[str, int]:
    """
    >>> count_tests('<testsuites><testsuite tests="9" errors="1" failures="2" skipped="3"/></testsuites>')
    {'passed': 3, 'failed': 3, 'skipped': 3}
    """
    suites = list(ElementTree.fromstring(report).iter("testsuite"))
    total, errors, failures, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "errors", "failures", "skipped")
    )
    return {"passed": total - errors - failures - skipped, "failed": errors + failures, "skipped": skipped}


def format_table(outcomes: Sequence[Outcome]) -> str:
    """
    >>> print(format_table([Outcome("3.13.0", {"passed": 15000, "failed": 2, "skipped": 40})]))
    Python   passed  failed  skipped
    3.13.0    15000       2       40
    """
    lines = ["Python   passed  failed  skipped"]
    for python, counts, why in outcomes:
        passed, failed, skipped = counts.values() if counts else "---"
        lines.append(f"{python:8} {passed:>6}  {failed:>6}  {skipped:>7}  {why}".rstrip())
    return "\n".join(lines)


def run_tests(wanted: str, options: Sequence[str]) -> Outcome:
    python = find_python(wanted)
    if python is None:
        return Outcome(wanted, why=_NOT_THERE)
    with tempfile.TemporaryDirectory() as folder:
        commands, report = Path(folder, "venv", "bin"), Path(folder, "report.xml")
        own = str(commands / "python")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PATH"] = f"{commands}{os.pathsep}{environment['PATH']}"
        environment["PIP_CONSTRAINT"] = str(ROOT / "tests" / "constraints.txt")
        uv = shutil.which("uv")  # It does in seconds what takes pip a minute.
        install = [uv, "pip", "install", "--python", own] if uv else [own, "-m", "pip", "install"]
        install += ["--quiet", f"{ROOT}[dev]", "-c", environment["PIP_CONSTRAINT"]]
        for command in ([python, "-m", "venv", f"{folder}/venv"], install):
            if subprocess.run(command, cwd=ROOT, env=environment).returncode:
                return Outcome(wanted, why="cannot be installed on: see above")
        version = str(_ask([own, "-c", "import platform; print(platform.python_version())"]))
        command = [own, "-m", "pytest", f"--junitxml={report}", *(options or ("-n", "auto"))]
        subprocess.run(command, cwd=ROOT, env=environment)
        counts = count_tests(report.read_text("utf-8")) if report.exists() else {}
        return Outcome(version, counts) if any(counts.values()) else Outcome(version, why="no test ran: see above")


def _named_versions() -> list[str]:
    """Those of the package's classifiers, but for the one that this is."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    return [
        version
        for each in classifiers
        if (version := each.rpartition(" :: ")[2]).startswith("3.") and version != f"3.{sys.version_info.minor}"
    ]


def main(arguments: Sequence[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    outcomes = [run_tests(each, arguments[end + 1 :]) for each in arguments[:end] or _named_versions()]
    print(format_table(outcomes))
    may_be_absent = end == 0
    return int(
        any(each.counts["failed"] if each.counts else each.why != _NOT_THERE or not may_be_absent for each in outcomes)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
