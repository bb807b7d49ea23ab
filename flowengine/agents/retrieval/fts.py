"""Retrieves with nothing but SQLite: by words, and by meaning as well where an embedder is given.

It decides what is stored and how rankings become hits, and brings the file of an index to this version. Terms and their
quoting are the matter of `terms`.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, Final, NamedTuple, cast

from anyio import to_thread

from flowengine.agents.retrieval import vectors
from flowengine.agents.retrieval.retriever import Document, Embedder, Hit, Ranking, fuse_rankings
from flowengine.agents.retrieval.terms import TOKENIZER, VERSION, drop_surrogates, match_any, to_index_text
from flowengine.core.storage import SQLiteFile, primary_code, read_identity, transaction, use_log
from flowengine.errors import DefinitionError, InputError, OutputError, RunError, refuse_other_kind
from flowengine.models import CallSlots

_POOL_SIZE: Final = 50
"""Documents of each ranking that take part in a fusion, at least."""
_BATCH_SIZE: Final = 64
"""Texts that are embedded at once."""
_MOST_HITS: Final = 1_000_000

_logger: Final = logging.getLogger(__name__)


class FtsRetriever:
    """Full-text search in an SQLite file, or in memory; any script, words of one character included.

    With an embedder, rankings by words and by meaning are fused. A text is embedded once for each model, as long as
    a document has it. Where the embedder fails, words alone have to do: that is logged, and the documents that lack
    vectors get them at the next call that works.

    >>> import anyio
    >>> async def asked():
    ...     retriever = FtsRetriever()
    ...     await retriever.add([Document("a", "緑茶の入れ方"), Document("b", "How to store green tea")])
    ...     return [hit.id for hit in await retriever.search("茶")], [hit.id for hit in await retriever.search("teas")]
    >>> anyio.run(asked)
    (['a'], ['b'])
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        embed: Embedder | None = None,
        documents: Sequence[Document] = (),
    ) -> None:
        """`documents`: what it holds from the start, beside what the file holds already."""
        self._database = IndexDatabase(path, [_to_row(each, None) for each in documents])
        self._embed = embed
        self._embedding = CallSlots(1)

    async def add(self, documents: Sequence[Document]) -> None:
        await self._change([_to_row(each, None) for each in documents])

    async def remove(self, ids: Sequence[str]) -> None:
        await self._database.write(partial(_apply_change, rows=(), removed=ids))

    async def synchronise(
        self, source: str, added: Sequence[Document], removed: Sequence[str] = (), *, is_all: bool = False
    ) -> None:
        rows, keys = [_to_row(each, source) for each in added], [_make_key(id, source) for id in removed]
        await self._change(rows, keys, source if is_all else None)

    async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
        match = await to_thread.run_sync(match_any, query)  # A query may be a whole document.
        if limit < 1 or not query.strip():
            return []
        vector = await self._vector(query)
        if vector is None and not match:
            return []
        search = _Search(
            *(match, vector, "" if self._embed is None else self._embed.name, min(limit, _MOST_HITS)),
            *_make_condition(where or {}),
        )
        return await self._database.read(partial(_search, search=search))

    def close(self) -> None:
        """Let go of the file; a retriever that is used again opens it again."""
        self._database.close()

    async def _change(self, rows: Sequence[_Row], removed: Sequence[str] = (), all_of: str | None = None) -> None:
        await self._database.write(partial(_apply_change, rows=rows, removed=removed, all_of=all_of))
        if self._embed is not None:
            await self._embed_missing(self._embed)

    async def _vector(self, query: str) -> Sequence[float] | None:
        """The query's vector; None without an embedder, and where it fails."""
        if self._embed is None:
            return None
        await self._embed_missing(self._embed)
        try:
            return (await self._make_vectors(self._embed, [drop_surrogates(query)]))[0]
        except Exception as error:  # Whatever an embedder of one's own raises.
            _logger.warning("searched by words alone, for the embedder '%s' failed: %s", self._embed.name, error)
            return None

    @staticmethod
    async def _make_vectors(embed: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        embeddings = await embed.embed(texts)
        if len(embeddings) != len(texts):
            raise OutputError(f"it gave {len(embeddings)} vectors for {len(texts)} texts")
        return embeddings

    async def _embed_missing(self, embed: Embedder) -> None:
        """One call at a time: others that come meanwhile would have the same texts embedded once more."""
        async with self._embedding.take():
            while pending := await self._database.read(partial(vectors.missing, model=embed.name, most=_BATCH_SIZE)):
                try:
                    embeddings = await self._make_vectors(embed, [text for _, text in pending])
                except Exception as error:  # As above.
                    _logger.warning("documents wait for vectors, for the embedder '%s' failed: %s", embed.name, error)
                    return
                await self._database.write(
                    partial(_store_vectors, model=embed.name, pending=pending, embeddings=embeddings)
                )


# --- Inside a transaction


class _Row(NamedTuple):
    id: str
    text: str
    metadata: str
    source: str | None
    hash: bytes


def _to_row(document: Document, source: str | None) -> _Row:
    refuse_other_kind(document, Document, "an index takes Documents, as Document('p7', 'text')", InputError)
    refuse_other_kind(document.id, str, "a document's id is text", InputError)
    refuse_other_kind(document.text, str, f"the text of document '{document.id}' is text", InputError)
    text = drop_surrogates(document.text)
    try:
        metadata = json.dumps(dict(document.metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata of document '{document.id}' are no JSON values: {error}") from error
    return _Row(_make_key(document.id, source), text, metadata, source, vectors.digest(text))


def _make_key(id: str, source: str | None) -> str:
    """The id under which a document is kept: two sources may have documents of one id."""
    return id if source is None else f"{source}\0{id}"


class _Search(NamedTuple):
    """A search, ready for SQL."""

    match: str
    vector: Sequence[float] | None
    model: str
    limit: int
    condition: str
    values: Sequence[object]


def _apply_change(
    connection: sqlite3.Connection, rows: Sequence[_Row], removed: Sequence[str], all_of: str | None = None
) -> None:
    """Put documents in, and take out those of these ids; of a source that is given all others too.

    Texts that only moved keep their vectors: these are looked through at the end.
    """
    orphans = {hash for row in rows for hash in _put_document(connection, row)}
    stale = set(removed)
    if all_of is not None:
        present = connection.execute("SELECT id FROM documents WHERE source = ?", (all_of,)).fetchall()
        stale |= {id for (id,) in present} - {row.id for row in rows}
    orphans.update(hash for id in stale for hash in _remove_document(connection, id))
    vectors.forget(connection, orphans)


def _put_document(connection: sqlite3.Connection, row: _Row) -> list[bytes]:
    """Have a document be so; the digest of the text that it had, if that was another."""
    row_before = connection.execute("SELECT hash FROM documents WHERE id = ?", (row.id,)).fetchone()
    if row_before is not None and row_before[0] == row.hash:
        values = (row.metadata, row.source, row.id)
        connection.execute("UPDATE documents SET metadata = ?, source = ? WHERE id = ?", values)
        return []
    orphans = _remove_document(connection, row.id)
    added = connection.execute("INSERT INTO documents (id, text, metadata, source, hash) VALUES (?, ?, ?, ?, ?)", row)
    connection.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (added.lastrowid, to_index_text(row.text)))
    return orphans


def _remove_document(connection: sqlite3.Connection, id: str) -> list[bytes]:
    """Take a document out; the digest of its text, if there was one."""
    document = connection.execute("SELECT row, text, hash FROM documents WHERE id = ?", (id,)).fetchone()
    if document is None:
        return []
    row, text, hash = document
    connection.execute("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", (row, to_index_text(text)))
    connection.execute("DELETE FROM documents WHERE row = ?", (row,))
    return [hash]


def _store_vectors(
    connection: sqlite3.Connection,
    model: str,
    pending: Sequence[tuple[bytes, str]],
    embeddings: Sequence[Sequence[float]],
) -> None:
    for (hash, _), vector in zip(pending, embeddings, strict=True):
        vectors.store(connection, model, hash, vector)


def _search(connection: sqlite3.Connection, search: _Search) -> list[Hit]:
    words = _search_words(connection, search)
    scores = words
    if search.vector is not None:
        pool = max(_POOL_SIZE, search.limit)
        near = vectors.nearest(connection, search.model, search.vector, pool, search.condition, search.values)
        scores = fuse_rankings([Ranking(list(words)), Ranking(near)])
    details = "SELECT id, source, text, metadata FROM documents WHERE row = ?"
    best = list(scores.items())[: search.limit]
    matches = ((connection.execute(details, (row,)).fetchone(), score) for row, score in best)
    return [
        Hit(id.removeprefix(_make_key("", source)), text, score, json.loads(metadata))
        for (id, source, text, metadata), score in matches
    ]


def _search_words(connection: sqlite3.Connection, search: _Search) -> dict[int, float]:
    """Row → score by BM25, best first, the best being 1.0."""
    if not search.match:
        return {}
    matches = connection.execute(
        "SELECT documents.row, -bm25(words) AS score FROM words JOIN documents ON documents.row = words.rowid "
        f"WHERE words MATCH ? AND {search.condition} ORDER BY score DESC, documents.row LIMIT ?",
        (search.match, *search.values, max(_POOL_SIZE, search.limit)),
    ).fetchall()
    return {row: score / matches[0][1] for row, score in matches}


def _make_condition(where: Mapping[str, Any]) -> tuple[str, list[object]]:
    """The documents whose metadata have certain values, as SQL and its values. No name or value is part of the SQL."""
    conditions, values = ["1"], list[object]()
    for name, allowed_value in where.items():
        allowed: list[Any] = (
            list(cast("list[Any]", allowed_value)) if isinstance(allowed_value, list | tuple | set) else [allowed_value]
        )
        odd = next((each for each in allowed if not _is_plain(each)), None)
        if odd is not None:
            raise InputError(
                f"where: '{name}' is compared with a text, a number, a truth value or null, not {odd!r:.60}"
            )
        marks = " OR ".join("value IS ?" for _ in allowed) or "0"
        conditions.append(f"EXISTS (SELECT 1 FROM json_each(metadata) WHERE key = ? AND ({marks}))")
        values += [name, *allowed]
    return " AND ".join(conditions), values


def _is_plain(value: object) -> bool:
    """Tells whether SQL can compare the value of a key with it."""
    return isinstance(value, str | float | NoneType) or (isinstance(value, int) and value.bit_length() < 64)


# --- The file

_APPLICATION_ID: Final = 0x466C5269
"""Says whose file it is (SQLite's `application_id`)."""

_DOCUMENTS: Final = """
CREATE TABLE documents (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL,
    source TEXT,
    hash BLOB NOT NULL DEFAULT x''
)
"""
"""`source`: where a document is kept up with; NULL for one that was added by hand."""
_BY_HASH: Final = "CREATE INDEX by_hash ON documents (hash)"
_WORDS: Final = f"""CREATE VIRTUAL TABLE words USING fts5(terms, content='', tokenize="{TOKENIZER}")"""


class IndexDatabase(SQLiteFile):
    """The file of an index, or `:memory:`; each time that it is opened, it holds some rows at least."""

    def __init__(self, path: str | os.PathLike[str], rows: Sequence[_Row] = ()) -> None:
        super().__init__(path)
        self._rows = rows

    def prepare(self, connection: sqlite3.Connection) -> None:
        """The tables as this version wants them. Words of another version are made anew from the texts."""
        self._is_new(connection)  # Before the log, which nothing of a foreign file is to be turned into.
        use_log(connection, self._patience)
        connection.execute("PRAGMA foreign_keys = ON")
        with transaction(connection):
            if self._is_new(connection):
                identity = f"PRAGMA application_id = {_APPLICATION_ID}"
                for statement in (_DOCUMENTS, _BY_HASH, vectors.SCHEMA, _WORDS, identity):
                    connection.execute(statement)
            else:
                _bring_up(connection, read_identity(connection).version)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            if self._rows:
                _apply_change(connection, self._rows, ())

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        application, _, tables = read_identity(connection)
        is_new = not application and not tables
        if application != _APPLICATION_ID and not is_new:
            raise DefinitionError(f"'{self.path}' is an SQLite file of something else, so it is no index")
        return is_new

    def explain(self, error: sqlite3.Error | UnicodeError | OSError) -> Exception:
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            return DefinitionError(f"'{self.path}' is no SQLite file, so it is no index")
        return RunError(f"the index '{self.path}' cannot be used: {error}")


def _bring_up(connection: sqlite3.Connection, version: int) -> None:
    """Upgrades a database of an earlier version."""
    if not any(name == "hash" for _, name, *_ in connection.execute("PRAGMA table_info(documents)")):
        _key_vectors_by_text(connection)
    if version != VERSION:
        connection.execute("DROP TABLE words")
        connection.execute(_WORDS)
        texts = connection.execute("SELECT row, text FROM documents").fetchall()
        rows = ((row, to_index_text(text)) for row, text in texts)
        connection.executemany("INSERT INTO words (rowid, terms) VALUES (?, ?)", rows)


def _key_vectors_by_text(connection: sqlite3.Connection) -> None:
    """Vectors once belonged to documents. None of them is lost."""
    connection.execute("ALTER TABLE documents ADD COLUMN source TEXT")
    connection.execute("ALTER TABLE documents ADD COLUMN hash BLOB NOT NULL DEFAULT x''")
    texts = connection.execute("SELECT row, text FROM documents").fetchall()
    hashes = [(vectors.digest(text), row) for row, text in texts]
    connection.executemany("UPDATE documents SET hash = ? WHERE row = ?", hashes)
    connection.execute(_BY_HASH)
    connection.execute("ALTER TABLE vectors RENAME TO former")
    connection.execute(vectors.SCHEMA)
    connection.execute(
        "INSERT OR IGNORE INTO vectors SELECT hash, model, signs, vector FROM former JOIN documents ON row = document"
    )
    connection.execute("DROP TABLE former")
