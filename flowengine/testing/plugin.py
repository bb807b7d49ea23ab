"""Adds flowtest files, cassettes and scripts to pytest, and refuses model calls that a test did not ask for.

It is loaded by every pytest run where FlowEngine is installed, so nothing heavy is imported before a test
needs it. While tests run, requests that would leave this machine are refused (`flowengine.models.outbound`),
unless the test is marked with `real_model`, a cassette records, or FLOWENGINE_ALLOW_MODEL_REQUESTS=1 is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from flowengine.models import VARIABLE as REQUESTS
from flowengine.testing.modes import MODES

if TYPE_CHECKING:
    from flowengine.models import ScriptedModel
    from flowengine.testing.cases import CaseFinding
    from flowengine.testing.cassette import Cassette
    from flowengine.testing.flowtest import FlowTest

_SUFFIX: Final = ".flowtest.yaml"
_FORBIDDEN: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("flowengine").addoption(
        "--cassettes",
        choices=MODES,
        default=None,
        help="How cassettes of model calls work: none plays only, once records where there is no file, new records "
        "what the file lacks, all records anew. Default: FLOWENGINE_CASSETTES, else none where CI is set, else once.",
    )


# --- No model by accident


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_model: this test asks real models; without the mark they are refused.")
    config.stash[_FORBIDDEN] = not os.environ.get(REQUESTS)
    if config.stash[_FORBIDDEN]:
        os.environ[REQUESTS] = "0"


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_FORBIDDEN, False):
        os.environ.pop(REQUESTS, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    if item.get_closest_marker("real_model") is None:
        return (yield)
    before = os.environ.get(REQUESTS, "")
    os.environ[REQUESTS] = "1"
    try:
        return (yield)
    finally:
        os.environ[REQUESTS] = before


# --- Fixtures


@pytest.fixture
def scripted_model() -> type[ScriptedModel]:
    """`scripted_model([...])`, `scripted_model({...})`: a model that answers from a script."""
    from flowengine.models import ScriptedModel

    return ScriptedModel


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """The cassette of this test, in `cassettes/` beside its file; a call that it refuses fails the test."""
    from flowengine.testing.cassette import Cassette
    from flowengine.testing.modes import choose_mode

    recording = Cassette(_cassette_file(request.path, request.node.name), choose_mode(request.config.option.cassettes))
    yield recording
    if recording.misses:
        pytest.fail("\n".join(recording.misses), pytrace=False)


def _cassette_file(test_file: Path, test: str) -> Path:
    """`cassettes/test_reply.test_a_refund.yaml` for a test of `test_reply.py`."""
    name = re.sub(r"[^\w.-]+", "-", test).strip("-")
    return test_file.parent / "cassettes" / f"{test_file.stem}.{name}.yaml"


# --- Flowtest files


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not file_path.name.endswith(_SUFFIX):
        return None
    return FlowTestFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType] - pytest leaves it untyped


class FlowTestFile(pytest.File):
    """A flowtest file."""

    def collect(self) -> Iterator[FlowTestItem]:
        from flowengine.errors import FlowEngineError
        from flowengine.testing.flowtest import load_flowtest

        try:
            test = load_flowtest(_relative_path(self.path))
        except FlowEngineError as error:
            raise self.CollectError(str(error)) from error
        for number, case in enumerate(test.cases):
            yield FlowTestItem.from_parent(self, name=case.name, test=test, number=number)  # pyright: ignore[reportUnknownMemberType] - pytest leaves it untyped


class FlowTestItem(pytest.Item):
    """One case of a flowtest file."""

    def __init__(self, *, test: FlowTest, number: int, **settings: Any) -> None:
        super().__init__(**settings)  # pyright: ignore[reportUnknownMemberType] - pytest leaves it untyped
        self.test = test
        self.number = number

    def runtest(self) -> None:
        from flowengine.testing.cases import run_case
        from flowengine.testing.modes import choose_mode

        findings = run_case(self.test, self.number, choose_mode(self.config.option.cassettes))
        if findings:
            raise CaseFailedError(findings)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        from flowengine.testing.cases import line_of

        return self.path, line_of(self.test, self.number) - 1, self.name


class CaseFailedError(AssertionError):
    """The mismatches between a run and its case."""

    def __init__(self, findings: list[CaseFinding]) -> None:
        super().__init__("\n".join(str(each) for each in findings))


def _relative_path(path: Path) -> Path:
    """The path as messages should show it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
