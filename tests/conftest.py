"""What all tests share: asynchronous tests run on both event loops, and waiting tests leave their core to others.

Property tests try the same examples each time, so that what they find is found by the change that brought it.
`--explore N` tries others, N times as many.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from tests.support.require import require_package
from tests.support.sqlite_connections import watch_connections

# Compiled modules are kept, whatever the environment says: each of hundreds of processes that tests start would compile
# the package and its libraries anew, which is half of the time that some commands take.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Folders of tests lie in memory where there is room: thousands of small stores would wait for a disk at each commit.
if os.path.ismount("/dev/shm") and shutil.disk_usage("/dev/shm").free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

WITH_A_BROWSER = ("tests/visualize/", "tests/web/", "tests/docs/")

# A machine that is busy with other work makes no property false, so the clock does not judge.
settings.register_profile(
    "same examples each time", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same examples each time")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", type=int, metavar="N", help="property tests: random examples, N times as many")
    parser.addoption("--dearest", type=int, metavar="N", help="print the N files whose tests took the most CPU seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with a browser go first: workers begin with long rows of tests and end with short ones, and each that gets
    such tests starts a browser. What is left to the end takes milliseconds."""
    items.sort(key=lambda item: not item.nodeid.startswith(WITH_A_BROWSER))
    times = config.getoption("--explore")
    for item in items if times else []:
        test = getattr(item, "obj", None)
        given = getattr(test, "_hypothesis_internal_use_settings", None)
        if given is not None:
            test = getattr(test, "__func__", test)
            test._hypothesis_internal_use_settings = settings(
                given, max_examples=times * given.max_examples, derandomize=False, deadline=None, print_blob=True
            )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require_package(*mark.args)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """MCP servers have a fifth of a second to end in, and wait a hundredth before their first new start."""
    monkeypatch.setattr("flowengine.agents.tools.mcp.pipe._GRACE", 0.2)
    monkeypatch.setattr("flowengine.agents.tools.mcp.owner._FIRST_PAUSE", 0.01)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait before a model is asked again, which all later ones grow from, is of a few milliseconds."""
    from flowengine.models.wrappers.retrying import RetryingModel

    defaults = RetryingModel.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "first_wait", 0.01)


@settings(max_examples=1)
@given(none())
def _start_hypothesis(_: None) -> None:
    """Tests nothing: the first test of all registers a generator, whose holder Python 3.14 does not find if frozen."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without the garbage collector, which also passes over what was made: it lives to the end.

    It looks for garbage as seldom as newer Pythons do: what it takes by default here is a twentieth of a run's time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        _start_hypothesis()
        gc.freeze()
        gc.set_threshold(2_000)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files without a long test where those alone are asked for: each worker would import them all."""
    if config.option.markexpr != "long" or collection_path.suffix != ".py":
        return None
    return "mark.long" not in collection_path.read_text(encoding="utf-8") or None


class DoctestsWhereTheyAre:
    """Looks for doctests only in files that have one: a file is imported for them, and each name of it looked at."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        if file_path.suffix != ".py" or ">>>" in file_path.read_text(encoding="utf-8"):
            return found
        return [each for each in found if type(each) is pytest.Module]


class DearestFiles:
    """Adds up the CPU seconds of each file's tests, and prints the files that took the most.

    A worker measures itself and the processes that it has waited for: what a server or a browser took counts for the
    test that ended it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._seconds: Counter[str] = Counter()
        self._before = 0.0

    def pytest_collection_finish(self) -> None:
        self._before = sum(os.times()[:4])  # What importing all tests took is none of the first one's.

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = sum(os.times()[:4])
        report.cpu_seconds, self._before = now - self._before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, _ = report.nodeid.partition("::")
        self._seconds[file] += getattr(report, "cpu_seconds", 0)  # A worker that died has told none.

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = self._seconds.total()
        terminalreporter.section(f"{total:.0f} s of CPU time, the dearest {self._count} files")
        for file, seconds in self._seconds.most_common(self._count):
            terminalreporter.line(f"{seconds:7.1f} s  {seconds / total:4.0%}  {file}")


def pytest_configure(config: pytest.Config) -> None:
    """What is a plugin, unlike this file, is asked about files outside of this folder too."""
    config.pluginmanager.register(DoctestsWhereTheyAre())
    watch_connections()
    if config.getoption("--dearest"):
        config.pluginmanager.register(DearestFiles(config.getoption("--dearest")))


def pytest_sessionfinish() -> None:
    if database := sys.modules.get("tests.support.postgres"):
        database.stop_servers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: one more than there are cores. Tests wait for other processes part of the time, and each
    worker reads all of them first."""
    return len(os.sched_getaffinity(0)) + 1
