"""Paths that no file can have, given in Python: each is refused by an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine import Agent, FixedFileProvider, Flow, FunctionNode, RetrievalProvider, SkillStore, SourceCodeProvider
from flowengine.agents.context.provider import ContextProvider
from flowengine.errors import FlowEngineError
from flowengine.evals.data_file import read_rows
from flowengine.testing.flowtest import load_flowtest


def _ask(provider: ContextProvider) -> object:
    return Agent("a", "Hi", model="offline", context_providers=[provider]).run("what about x?")


_READERS: dict[str, Callable[[str], object]] = {
    "skills": SkillStore,
    "flow": Flow.from_yaml,
    "store": lambda path: Flow("f", {"a": FunctionNode(lambda: 1)}).run_sync(store=path),
    "fixed_file": lambda path: _ask(FixedFileProvider(path)),
    "source_code": lambda path: _ask(SourceCodeProvider(path)),
    "retrieval": lambda path: _ask(RetrievalProvider(documents=path)),
    "flowtest": load_flowtest,
    "rows": lambda path: list(read_rows(path)),
}


@pytest.mark.parametrize("path", ["x" * 10_000, "/".join(["y" * 200] * 40), "a\0b", "loop"], ids=str.__len__)
@pytest.mark.parametrize("read", _READERS.values(), ids=_READERS)
def test_a_path_that_no_file_can_have_is_refused(
    read: Callable[[str], object], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(FlowEngineError):
        read(path)
