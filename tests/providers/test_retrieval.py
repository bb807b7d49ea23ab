"""Retrieval in prompts: over documents on disk, over a store, over a retriever of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.errors import DefinitionError, RunError
from flowengine.providers.factory import ContextProviderFactory
from flowengine.providers.parameters import ParameterError
from flowengine.providers.paths import MissingFileError, OutsideError
from flowengine.providers.provider import joined
from flowengine.providers.retrieval import RetrievalProvider
from flowengine.retrieval.fts import FtsRetriever
from flowengine.retrieval.retriever import Document, Hit


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/tea.md").write_text("# Green tea\n\nBrew it at 80 degrees.\n")
    (tmp_path / "docs/返品.md").write_text("返品は商品到着から七日以内です。\n")
    (tmp_path / "faq.jsonl").write_text('{"id": "q1", "text": "Coffee is black.", "metadata": {"lang": "en"}}\n')
    return tmp_path


def of(root: Path, **config: Any) -> RetrievalProvider:
    (made,) = ContextProviderFactory.create_from_config([{"retrieval": config}], root=root)
    assert isinstance(made, RetrievalProvider)
    return made


async def test_the_nearest_documents_are_shown_under_their_places(root: Path) -> None:
    fragments = await of(root, documents="docs").fragments("How hot is green tea brewed?", ())
    assert [(each.text, each.label, each.source) for each in fragments] == [
        ("tea.md:1\n# Green tea\n\nBrew it at 80 degrees.", "tea.md:1", "retrieval")
    ]
    assert "七日以内" in await of(root, documents="docs").get_context("返品")


async def test_json_lines_are_shown_under_their_ids(root: Path) -> None:
    assert await of(root, documents="faq.jsonl").get_context("coffee") == "q1\nCoffee is black."


async def test_no_more_than_asked_for_are_shown_the_best_first(root: Path) -> None:
    for number in range(9):
        (root / f"docs/{number}.md").write_text("tea " * (number + 1) + "milk " * 10)
    fragments = await of(root, documents="docs", max_results=3).fragments("tea", ())
    assert [each.priority for each in fragments] == [0, -1, -2]


async def test_changed_documents_are_found_as_they_are_now(root: Path) -> None:
    provider = of(root, documents="docs")
    await provider.get_context("tea")
    (root / "docs/tea.md").write_text("Now about chocolate.")
    assert await provider.get_context("tea") == ""
    assert "chocolate" in await provider.get_context("chocolate")


async def test_an_index_in_a_file_is_there_the_next_time(root: Path) -> None:
    await of(root, documents="docs", store="index.db").get_context("tea")
    assert "80 degrees" in await of(root, store="index.db").get_context("tea")


async def test_metadata_narrow_what_is_found(root: Path) -> None:
    assert await of(root, documents="faq.jsonl", where={"lang": "ja"}).get_context("coffee") == ""
    assert await of(root, documents="faq.jsonl", where={"lang": ["ja", "en"]}).get_context("coffee")


async def test_many_may_ask_at_once_and_nobody_sees_half_an_index(root: Path) -> None:
    provider = of(root, documents="docs")
    found: list[str] = []

    async def ask() -> None:
        found.append(await provider.get_context("tea"))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    assert len(set(found)) == 1
    assert found[0]


async def test_a_retriever_of_ones_own_is_asked(root: Path) -> None:
    class Own:
        async def add(self, documents: Sequence[Document]) -> None: ...

        async def remove(self, ids: Sequence[str]) -> None: ...

        async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
            return [Hit("1", f"about {query}", 1.0, {"path": "own.txt"})][:limit]

    provider = RetrievalProvider(retriever=Own())
    assert joined(await provider.fragments("tea", ())) == "own.txt\nabout tea"
    assert provider.fresh() is provider


async def test_documents_that_could_not_be_taken_in_are_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = FtsRetriever()
    provider = RetrievalProvider(root / "docs", retriever=retriever)

    async def fail(documents: Sequence[Document]) -> None:
        raise RunError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(retriever, "add", fail)
        with pytest.raises(RunError, match="full"):
            await provider.fragments("tea", ())
    assert await provider.get_context("tea")


@pytest.mark.parametrize(
    ("config", "kind", "problem"),
    [
        ({}, ParameterError, "needs 'documents', 'store' or 'retriever'"),
        ({"documents": "nowhere"}, MissingFileError, "not there"),
        ({"documents": "../docs"}, OutsideError, "leaves"),
        ({"store": "../x.db"}, OutsideError, "leaves"),
        ({"documents": "docs", "max_results": 0}, ParameterError, "at least 1"),
        ({"documents": "docs", "retriever": "sqlit"}, DefinitionError, "did you mean 'sqlite'"),
        ({"documents": "docs", "embedding": "offline"}, DefinitionError, "no embeddings"),
        ({"document": "docs"}, ParameterError, "did you mean 'documents'"),
    ],
)
def test_wrong_parameters_are_refused(root: Path, config: dict[str, Any], kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        of(root, **config)
