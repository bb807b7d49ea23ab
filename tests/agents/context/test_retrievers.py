"""Retrievers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.context.retrieval import GROUP, open_retriever
from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.errors import DefinitionError
from tests.support.packages import installed_package


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Installs a package that brings retrievers: name → `module:object`."""
    with ExitStack() as stack:

        def install(**points: str) -> None:
            stack.enter_context(installed_package(tmp_path, "a_library", "", {GROUP: points}))

        yield install


def test_our_own_is_made_from_its_settings(tmp_path: Any) -> None:
    assert isinstance(open_retriever("sqlite", path=tmp_path / "index.db"), FtsRetriever)


def test_a_package_brings_its_own(installed: Callable[..., None]) -> None:
    installed(elsewhere="flowengine.agents.retrieval.fts:FtsRetriever")
    with pytest.raises(DefinitionError, match="no retriever 'faiss'; there are sqlite, elsewhere"):
        open_retriever("faiss")
    assert isinstance(open_retriever("elsewhere"), FtsRetriever)


def test_a_package_that_cannot_be_loaded_is_named(installed: Callable[..., None]) -> None:
    installed(broken="flowengine.no_such_module:Thing")
    with pytest.raises(DefinitionError, match="'broken' of the package 'a_library' cannot be loaded"):
        open_retriever("broken")


def test_what_is_no_retriever_is_refused(installed: Callable[..., None]) -> None:
    installed(odd="builtins:dict")
    with pytest.raises(DefinitionError, match="must have add, remove and search"):
        open_retriever("odd")


def test_wrong_settings_and_unknown_names_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"'sqlite'.*colour"):
        open_retriever("sqlite", colour="red")
    with pytest.raises(DefinitionError, match="no retriever 'faiss'; there are sqlite"):
        open_retriever("faiss")
