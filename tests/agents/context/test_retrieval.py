"""Retrieval in prompts: over documents on disk, over a store, over a retriever of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.context.factory import ContextProviderFactory
from flowengine.agents.context.provider import MissingFileError, OutsideError, ParameterError, join_fragments
from flowengine.agents.context.retrieval import RetrievalProvider
from flowengine.agents.context.source_code import source_files
from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document, Hit
from flowengine.errors import DefinitionError, RunError
from tests.support.model_server import ModelServer


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


def test_a_retriever_s_path_that_is_null_is_told_and_is_no_file_of_that_name(root: Path) -> None:
    with pytest.raises(DefinitionError, match=r"retriever 'sqlite': expected str, .* not NoneType"):
        of(root, documents="docs", settings={"path": None})


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


async def test_a_folder_of_more_files_than_are_taken_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_files, "_MOST_FILES", 1)
    provider = of(root, documents="docs")
    for _ in range(2):
        *_, notice = await provider.fragments("tea", ())
        assert notice.text == "(Searched: 1 files of documents. The folder has more of them, which were left out.)"
        assert (notice.source, notice.label) == ("retrieval", "not all files were searched")
    (said,) = caplog.messages
    assert "has more files than are taken: only 1 of them are searched" in said
    monkeypatch.setattr(source_files, "_MOST_FILES", 2)
    assert len(await provider.fragments("tea", ())) == 1


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


async def test_a_retriever_of_ones_own_is_asked_and_takes_documents_only_where_it_can(root: Path) -> None:
    class Own:
        async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
            return [Hit("1", f"about {query}", 1.0, {"path": "own.txt"})][:limit]

    provider = RetrievalProvider(retriever=Own())
    assert join_fragments(await provider.fragments("tea", ())) == "own.txt\nabout tea"
    assert provider.fresh() is provider
    with pytest.raises(ParameterError, match="a retriever without 'add' and 'remove' takes no 'documents'"):
        RetrievalProvider(root / "docs", retriever=Own())


async def test_documents_that_could_not_be_taken_in_are_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = FtsRetriever()
    provider = RetrievalProvider(root / "docs", retriever=retriever)

    async def fail(*given: Any, **named: Any) -> None:
        raise RunError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(retriever, "synchronise", fail)
        with pytest.raises(RunError, match="full"):
            await provider.fragments("tea", ())
    assert await provider.get_context("tea")


async def test_a_retriever_that_knows_no_sources_is_told_what_to_add_and_to_remove(root: Path) -> None:
    class Plain:
        def __init__(self) -> None:
            self.ids: set[str] = set()

        async def add(self, documents: Sequence[Document]) -> None:
            self.ids |= {each.id for each in documents}

        async def remove(self, ids: Sequence[str]) -> None:
            self.ids -= set(ids)

        async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
            return []

    retriever = Plain()
    provider = RetrievalProvider(root / "docs", retriever=retriever)
    await provider.fragments("tea", ())
    assert retriever.ids == {"tea.md#1", "返品.md#1"}
    (root / "docs/tea.md").unlink()
    await provider.fragments("tea", ())
    assert retriever.ids == {"返品.md#1"}


# --- an index in a file, from one process to the next --------------------------------------------------


class Shelf:
    """A retriever without sources, which refuses what it is told to."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.refuses = ""

    async def add(self, documents: Sequence[Document]) -> None:
        if self.refuses == "add":
            raise RunError("no room")
        self.held |= {each.id: each.text for each in documents}

    async def remove(self, ids: Sequence[str]) -> None:
        if self.refuses == "remove":
            raise RunError("no way")
        for each in ids:
            self.held.pop(each, None)

    async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
        return [Hit(name, text, 1.0) for name, text in self.held.items()]


@pytest.mark.parametrize("refused", ["add", "remove"])
async def test_documents_that_went_while_a_retriever_failed_are_found_no_more(root: Path, refused: str) -> None:
    shelf = Shelf()
    (root / "docs/gone.md").write_text("Gone soon.")
    (root / "docs/late.md").write_text("Gone later.")
    provider = RetrievalProvider(documents=root / "docs", retriever=shelf)
    await provider.get_context("tea")
    assert {"gone.md#1", "late.md#1"} <= set(shelf.held)
    (root / "docs/gone.md").unlink()
    (root / "docs/tea.md").write_text("Now about chocolate.")
    shelf.refuses = refused
    with pytest.raises(RunError):
        await provider.fragments("tea", ())
    (root / "docs/late.md").unlink()
    shelf.refuses = ""
    await provider.get_context("tea")
    assert shelf.held == {"tea.md#1": "Now about chocolate.", "返品.md#1": "返品は商品到着から七日以内です。"}


class Embedding:
    """A provider of a new process, over an index in a file; what it asks the model for."""

    def __init__(self, root: Path, server: ModelServer) -> None:
        self.root, self.server = root, server

    async def asks(self, query: str = "tea", model: str = "text-embedding-3-small", **config: Any) -> list[str]:
        """The texts that are embedded for one search, but for the query."""
        self.server.requests.clear()
        config = {"documents": "docs", "store": "index.db", "embedding": f"openai/{model}", **config}
        self.found = await of(self.root, **config).get_context(query)
        texts = [text for each in self.server.requests for text in each.body["input"]]
        assert texts.count(query) == 1
        assert {each.body["model"] for each in self.server.requests} == {model}
        return [text for text in texts if text != query]


@pytest.fixture
def embedding(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedding]:
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield Embedding(root, server)


async def test_a_new_process_embeds_nothing_that_has_not_changed(root: Path, embedding: Embedding) -> None:
    assert len(await embedding.asks()) == 2
    assert await embedding.asks() == []
    (root / "docs/tea.md").write_text("Now about chocolate.")
    assert await embedding.asks() == ["Now about chocolate."]
    assert "80 degrees" not in embedding.found


async def test_documents_that_went_while_nobody_looked_are_found_no_more(root: Path, embedding: Embedding) -> None:
    await embedding.asks()
    (root / "docs/tea.md").unlink()
    assert await embedding.asks("green tea 返品", max_results=9) == []
    assert "80 degrees" not in embedding.found
    assert "七日以内" in embedding.found
    (root / "docs/返品.md").unlink()
    await embedding.asks("返品", max_results=9)
    assert embedding.found == ""


async def test_documents_that_are_out_of_reach_for_a_while_are_not_embedded_again(
    root: Path, embedding: Embedding
) -> None:
    provider = of(root, documents="docs", store="index.db", embedding="openai/text-embedding-3-small")
    await provider.get_context("tea")
    (root / "docs").rename(root / "unmounted")
    with pytest.raises(RunError, match="cannot be read"):
        await provider.get_context("tea")
    (root / "unmounted").rename(root / "docs")
    embedding.server.requests.clear()
    assert "80 degrees" in await provider.get_context("tea")
    assert [each.body["input"] for each in embedding.server.requests] == [["tea"]]


async def test_another_model_embeds_all_texts_again_and_the_first_remembers_its_own(embedding: Embedding) -> None:
    first = await embedding.asks()
    assert await embedding.asks(model="text-embedding-3-large") == first
    assert await embedding.asks() == []


async def test_a_text_that_moved_or_stands_twice_is_embedded_once(root: Path, embedding: Embedding) -> None:
    await embedding.asks()
    (root / "docs/tea.md").rename(root / "docs/drinks.md")
    (root / "docs/again.md").write_text((root / "docs/drinks.md").read_text())
    assert await embedding.asks("green tea") == []
    assert "drinks.md:1" in embedding.found
    assert "again.md:1" in embedding.found
    assert "\ntea.md:1" not in f"\n{embedding.found}"


async def test_what_another_source_or_a_hand_put_into_the_index_stays(root: Path, embedding: Embedding) -> None:
    retriever = FtsRetriever(root / "index.db")
    await retriever.add([Document("by-hand", "Tea from a hand.")])
    retriever.close()
    await embedding.asks(documents="faq.jsonl")
    await embedding.asks("tea coffee hand", max_results=9)
    for sign in ("by-hand", "q1\nCoffee", "tea.md:1"):
        assert sign in embedding.found


async def test_two_folders_of_one_store_may_have_files_of_the_same_name(root: Path) -> None:
    (root / "more").mkdir()
    (root / "more/tea.md").write_text("Black tea is brewed longer.")
    for _ in range(2):
        sources = [of(root, documents=folder, store="index.db") for folder in ("docs", "more")]
        texts = [await each.get_context("tea") for each in sources]
        assert "80 degrees" in texts[1]
        assert "Black tea" in texts[1]
    (root / "more/tea.md").unlink()
    left = await sources[1].get_context("tea")
    assert "80 degrees" in left
    assert "Black tea" not in left


async def test_a_project_that_moves_as_a_whole_keeps_its_index(root: Path, embedding: Embedding) -> None:
    await embedding.asks()
    (root / "docs/tea.md").unlink()
    embedding.root = root.rename(root.with_name(f"{root.name} moved"))  # noqa: ASYNC240 - a moment
    assert await embedding.asks("green tea", max_results=9) == []
    assert "80 degrees" not in embedding.found


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
