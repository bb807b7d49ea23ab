"""How well things are found, on smaller versions of the benchmark's data sets (`tests/bench/retrieval.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from retrieval_data import SHORT_WORDS, code_queries, short_word_texts

from flowengine.agents.context.source_code.index import CodeIndex
from flowengine.agents.context.source_code.source_files import CodeTree
from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document

PACKAGES = ("argparse", "configparser", "csv", "email", "ftplib", "http", "json", "logging", "tarfile", "zipfile")


async def test_every_short_word_of_three_languages_finds_its_text() -> None:
    retriever = FtsRetriever()
    await retriever.add([Document(id, text) for id, text in short_word_texts().items()])
    wanted = [(word, f"{language}:{word}") for language, words in SHORT_WORDS.items() for word in words]
    assert len(wanted) == 60
    assert [word for word, id in wanted if id not in {hit.id for hit in await retriever.search(word)}] == []


@pytest.mark.long
def test_code_is_found_by_what_its_docstring_said(tmp_path: Path) -> None:
    queries = code_queries(tmp_path, PACKAGES)
    index = CodeIndex(CodeTree(tmp_path), seconds=120)
    assert len(queries) > 300
    sources = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.py"))
    assert queries[0].beginning not in sources
    reciprocal, found = 0.0, 0
    asked = queries[::6]
    for query in asked:
        files = list(dict.fromkeys(hit.path for hit in index.search(query.text).definitions))
        place = files.index(query.path) + 1 if query.path in files else 0
        reciprocal += 1 / place if place else 0
        found += 0 < place <= 5
    assert found / len(asked) >= 0.9
    assert reciprocal / len(asked) >= 0.75
