"""The rows of retrieval: code by what its docstrings say, short words of three languages, and a long transcript.

Code is Python's own library, with every docstring taken out of what is indexed. Five times 200 of them are the queries,
from one half of the library's definitions, by a checksum of their names: weights were chosen by the other half.
A query counts as answered where the file of its definition is among the first five, which is what a prompt gets parts
of. Rows without a target say more: whether the definition itself is among the lines that a prompt gets (of each of the
five files at most 120, of a definition at most its first 60; how many they are stands beside it), whether it is among
the first five definitions, and how files are found by first paragraphs alone.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from flowengine.agents.context.compressor.compressor import ContextCompressorProvider
from flowengine.agents.context.provider import join_fragments
from flowengine.agents.context.source_code.index import CodeIndex
from flowengine.agents.context.source_code.source_code import SourceCodeProvider
from flowengine.agents.context.source_code.source_files import CodeTree
from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document
from flowengine.core.context import Fragment
from flowengine.models.tokens import count_tokens
from tests.bench.measure import Row
from tests.support.retrieval_data import SHORT_WORDS, CodeQuery, code_queries, short_word_texts, transcript

__all__ = ["ROWS"]

QUERIES, ROUNDS = 200, 5
INDEXING = 600.0
"""Seconds that indexing may take here: nothing is measured before it is done."""


class Library(NamedTuple):
    """Python's library without docstrings, indexed, and the queries."""

    folder: tempfile.TemporaryDirectory[str]
    index: CodeIndex
    queries: Sequence[CodeQuery]


class Ranks(NamedTuple):
    """Places of what was looked for, counted from 1; infinite where it is not there."""

    files: list[float]
    definitions: list[float]


@cache
def library() -> Library:
    folder = tempfile.TemporaryDirectory()
    every = [each for each in code_queries(Path(folder.name)) if crc32(f"{each.path}:{each.name}".encode()) % 2]
    index = CodeIndex(CodeTree(Path(folder.name)), INDEXING)
    assert index.search("anything").is_whole
    return Library(folder, index, random.Random(0).sample(every, QUERIES * ROUNDS))


class Quoted(NamedTuple):
    """What a prompt gets for each query."""

    places: list[float]
    """Of the file of which the definition itself is quoted."""
    lines: list[float]
    tokens: list[float]


@cache
def quoted() -> Quoted:
    provider = SourceCodeProvider(library().folder.name)
    provider._index = library().index  # the one that is made already
    made = Quoted([], [], [])
    for query in library().queries:
        fragments = provider.fragments(query.text, ())
        heads = [each.text.partition("\n")[0].partition(" ") for each in fragments]
        named = [(label.rpartition(":")[0], name) for label, _, name in heads]
        files = list(dict.fromkeys(path for path, _ in named))
        is_there = (query.path, query.name) in named
        made.places.append(place(files, query.path) if is_there else math.inf)
        made.lines.append(sum(each.text.count("\n") - 2 for each in fragments))
        made.tokens.append(count_tokens(join_fragments(fragments)))
    return made


@cache
def ranks(text: Callable[[CodeQuery], str]) -> Ranks:
    found = Ranks([], [])
    for query in library().queries:
        hits = library().index.search(text(query)).found
        files = list(dict.fromkeys(hit.path for hit in hits))
        best = sorted(hits, key=lambda hit: -hit.score)
        definitions = [(hit.path, hit.definition.name) for hit in best if hit.definition.name]
        found.files.append(place(files, query.path))
        found.definitions.append(place(definitions, (query.path, query.name)))
    return found


def place(keys: Sequence[Any], key: Any) -> float:
    return keys.index(key) + 1 if key in keys else math.inf


def whole(query: CodeQuery) -> str:
    return query.text


def beginning(query: CodeQuery) -> str:
    return query.beginning


def missed(name: str, places: Sequence[float], target: float = math.inf) -> Row:
    """The share of queries whose answer is not among the first five."""
    return rounds(name, [float(each > 5) for each in places], target)


def distance(name: str, places: Sequence[float], target: float = math.inf) -> Row:
    """1 - the mean of the reciprocal ranks."""
    return rounds(name, [1 - 1 / each for each in places], target)


def rounds(name: str, values: Sequence[float], target: float) -> Row:
    means = [statistics.mean(values[at : at + QUERIES]) for at in range(0, len(values), QUERIES)]
    return Row(name, statistics.mean(means), target, "", (min(means), max(means)))


# --- code ---------------------------------------------------------------------------------------------


def code_files() -> Row:
    return missed("code: file not among the first five", ranks(whole).files, 0.15)


def code_rank() -> Row:
    return distance("code: 1 - reciprocal rank of the file", ranks(whole).files, 0.35)


def code_time() -> Row:
    """CPU of a query, from the look at the files to the quotations: the median of five means of 200."""
    provider = SourceCodeProvider(library().folder.name)
    provider._index = library().index
    times: list[float] = []
    for query in library().queries:
        begun = time.process_time()
        provider.fragments(query.text, ())
        times.append((time.process_time() - begun) * 1000)
    means = [statistics.mean(times[at : at + QUERIES]) for at in range(0, len(times), QUERIES)]
    return Row("code: a query", statistics.median(means), 60, "ms CPU", (min(means), max(means)))


def code_quoted() -> Row:
    return missed("code: definition not in the lines of five files", quoted().places, 0.15)


def code_quoted_rank() -> Row:
    return distance("code: 1 - reciprocal rank of its lines' file", quoted().places, 0.35)


def code_quoted_lines() -> Row:
    return rounds("code: lines of five files for a query", quoted().lines, 600)


def code_quoted_tokens() -> Row:
    return rounds("code: tokens of these lines", quoted().tokens, math.inf)


def code_definitions() -> Row:
    return missed("code: definition not among the first five", ranks(whole).definitions)


def code_definition_rank() -> Row:
    return distance("code: 1 - reciprocal rank of the definition", ranks(whole).definitions)


def code_beginnings() -> Row:
    return missed("code, first paragraphs: file not in five", ranks(beginning).files)


def code_beginnings_rank() -> Row:
    return distance("code, first paragraphs: 1 - reciprocal rank", ranks(beginning).files)


def code_indexing() -> Row:
    times: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        CodeIndex(CodeTree(Path(library().folder.name)), INDEXING).search("anything")
        times.append(time.process_time() - begun)
    return Row("code: indexing Python's library", statistics.median(times), 15, "s CPU", (min(times), max(times)))


# --- words and conversations --------------------------------------------------------------------------


async def short_words() -> Row:
    retriever = FtsRetriever()
    await retriever.add([Document(id, text) for id, text in short_word_texts().items()])
    wanted = [(word, f"{language}:{word}") for language, words in SHORT_WORDS.items() for word in words]
    absent = [word for word, id in wanted if id not in {hit.id for hit in await retriever.search(word)}]
    return Row(f"{len(wanted)} short words in ja, zh, ko: not found", len(absent), 0, "")


async def compression() -> Row:
    made = transcript(100)
    compressed = join_fragments(
        await ContextCompressorProvider().fragments("", [Fragment(made.text, "previous_context")])
    )
    return Row("100 turns with tools: tokens that stay", count_tokens(compressed) / count_tokens(made.text), 0.5, "")


async def compression_paths() -> Row:
    made = transcript(100)
    compressed = join_fragments(
        await ContextCompressorProvider().fragments("", [Fragment(made.text, "previous_context")])
    )
    return Row(f"of {len(made.paths)} paths in them: lost", sum(path not in compressed for path in made.paths), 0, "")


async def compression_time() -> Row:
    """The median of five, after one that does not count."""
    made = transcript(100)
    times: list[float] = []
    for _ in range(6):
        begun = time.process_time()
        await ContextCompressorProvider().fragments("", [Fragment(made.text, "previous_context")])
        times.append((time.process_time() - begun) * 1000)
    counted = times[1:]
    spread = (min(counted), max(counted))
    return Row("100 turns with tools: compressed in", statistics.median(counted), 1000, "ms CPU", spread)


ROWS = (
    code_files,
    code_rank,
    code_time,
    code_quoted,
    code_quoted_rank,
    code_quoted_lines,
    code_quoted_tokens,
    code_definitions,
    code_definition_rank,
    code_beginnings,
    code_beginnings_rank,
    code_indexing,
    short_words,
    compression,
    compression_paths,
    compression_time,
)
