"""Provides what a retriever finds for the query, from its own store or from documents on disk.

It opens the retriever by its name (our own, or one that an installed package brings), and decides what is asked for,
how hits are shown, and which embedder a shared retriever uses. How hits are found is the retriever's matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from anyio import to_thread

from flowengine.agents.context.documents import DocumentSource
from flowengine.agents.context.provider import (
    ContextProvider,
    MissingFileError,
    ParameterError,
    locate_path,
    located_store,
)
from flowengine.agents.retrieval import Embedder, FtsRetriever, Hit, Retriever, Searchable, SourcedRetriever
from flowengine.core import Fragment, Gateway, check_arguments, find_entry_points, load_entry_point, load_messages
from flowengine.errors import DefinitionError, PermanentModelError, did_you_mean
from flowengine.models import PROCESS_MODELS, CallSlots, Model, ModelEmbedder, Models, Reply, Request, check_embedding

# --- The embedder of a shared retriever


class NamedEmbedder:
    """A model's name, as an `Embedder`. Outside of `asked_by` it is one of the process's own environment."""

    def __init__(self, model: str) -> None:
        check_embedding(model)
        self.written = model
        self._asking: Final[ContextVar[Embedder | None]] = ContextVar("embedder", default=None)

    @property
    def name(self) -> str:
        return self._current_embedder().name

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return await self._current_embedder().embed(texts)

    @contextmanager
    def asked_by(self, models: Models, gateway: Gateway | None) -> Generator[None]:
        """Within the block, vectors are made by the model that `models` opens, asked through the gateway."""
        token = self._asking.set(self._open_embedder(models, gateway))
        try:
            yield
        finally:
            self._asking.reset(token)

    def _current_embedder(self) -> Embedder:
        return self._asking.get() or self._open_embedder(PROCESS_MODELS, None)

    def _open_embedder(self, models: Models, gateway: Gateway | None) -> Embedder:
        model = models.embedding(self.written)
        if model is None:
            return _NoEmbedder()
        return ModelEmbedder(model, None if gateway is None else partial(_embed_through, gateway))


async def _embed_through(gateway: Gateway, model: Model, request: Request) -> Reply:
    return await gateway.complete(model, request, purpose="embedding")


class _NoEmbedder:
    """Stands in for an embedding model where no model may be asked."""

    name = "offline"

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise PermanentModelError("the offline stand-in makes no embeddings")


_EMBEDDING_TIMEOUT: Final = 600.0
"""Seconds that a search may take where vectors are to be made: at first those of all documents, at the pace that a
vendor allows."""


class RetrievalProvider(ContextProvider):
    """The documents that are nearest to the query.

    They come from a folder of texts or a file of JSON lines, kept up with, from what a store holds already, or from a
    retriever of the user's own.
    """

    provider_name: ClassVar[str] = "retrieval"
    config_description: ClassVar[str] = "The documents that are nearest to the query"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "documents": "A folder of texts, or a file of JSON lines with `text`, `id` and `metadata`",
        "max_results": "Documents that enter a prompt at most",
        "store": "An SQLite file that holds the index; by default it is made in memory",
        "retriever": "Which engine finds them: `sqlite`, or one that an installed package brings",
        "settings": "What that engine is made with",
        "embedding": "A model for embeddings, to find by meaning as well: openai/text-embedding-3-small",
        "where": "Only documents whose metadata have these values",
    }
    config_example: ClassVar[str] = "- retrieval: {documents: docs, max_results: 5}"

    def __init__(
        self,
        documents: str | os.PathLike[str] | None = None,
        max_results: int = 5,
        store: str | os.PathLike[str] | None = None,
        retriever: str | Searchable = "sqlite",
        settings: Mapping[str, Any] | None = None,
        embedding: str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> None:
        """`retriever`: one, or the name of one, made with `settings`. `store`: the file of our own."""
        check_arguments(RetrievalProvider.__init__, locals(), ParameterError)
        if max_results < 1:
            raise ParameterError(f"max_results must be at least 1, not {max_results}", "max_results")
        if documents is None and store is None and retriever == "sqlite" and not settings:
            raise ParameterError("context provider 'retrieval' needs 'documents', 'store' or 'retriever'", "documents")
        self.max_results = max_results
        if embedding is not None:
            self.timeout = _EMBEDDING_TIMEOUT
        self._where = where
        self._source = None if documents is None else _open_source(Path(documents).expanduser(), os.fspath(documents))
        self._embedder = None if embedding is None else NamedEmbedder(embedding)
        if isinstance(retriever, str):
            further: dict[str, Any] = {} if store is None else {"path": os.fspath(store)}
            if self._embedder is not None:
                further["embed"] = self._embedder
            retriever = open_retriever(retriever, **{**(settings or {}), **further})
        self._retriever = retriever
        if documents is not None and not isinstance(self._retriever, Retriever):
            raise ParameterError(
                "context provider 'retrieval': a retriever without 'add' and 'remove' takes no 'documents'", "documents"
            )
        self._place = "" if documents is None else _name_source(documents, store)
        self._turn = CallSlots(1)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, root: Path | None = None) -> Self:
        arguments = dict(config)
        for name, locate in (("documents", locate_path), ("store", located_store)):
            if arguments.get(name) is not None:
                arguments[name] = locate(arguments[name], root, parameter=name)
        settings: Mapping[str, Any] = arguments.get("settings") or {}
        if settings.get("path") is not None:
            arguments["settings"] = {
                **settings,
                "path": located_store(str(settings["path"]), root, parameter="settings"),
            }
        return cls(**arguments)

    async def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        if self._embedder is None:
            hits = await self._find_documents(query)
        else:
            with self._embedder.asked_by(kwargs.get("models", PROCESS_MODELS), kwargs.get("gateway")):
                hits = await self._find_documents(query)
        fragments = [_to_fragment(hit) for hit in hits]
        if self._source is not None and self._source.cut_at is not None:
            fragments.append(_make_cut_notice(self._source.cut_at, kwargs.get("locale", "en")))
        return [each._replace(source=self.provider_name, priority=-rank) for rank, each in enumerate(fragments)]

    def prepare_models(self, models: Models) -> None:
        if self._embedder is not None:
            models.embedding(self._embedder.written)

    def fresh(self) -> RetrievalProvider:
        return self  # It remembers nothing but what the documents say.

    async def _find_documents(self, query: str) -> Sequence[Hit]:
        if self._source is not None:
            await self._catch_up(self._source)
        return await self._retriever.search(query, self.max_results, self._where)

    async def _catch_up(self, source: DocumentSource) -> None:
        """Bring the index up to the files: one at a time, so that no search sees half of it."""
        async with self._turn.take():
            is_all = source.is_new
            try:
                changes = await to_thread.run_sync(source.changes)
                if isinstance(self._retriever, SourcedRetriever):
                    if is_all or any(changes):
                        await self._retriever.synchronise(self._place, *changes, is_all=is_all)
                    return
                assert isinstance(self._retriever, Retriever)
                if changes.removed:
                    await self._retriever.remove(changes.removed)
                if changes.added:
                    await self._retriever.add(changes.added)
            except BaseException:
                source.forget()
                raise


def _to_fragment(hit: Hit) -> Fragment:
    """A hit under the name of its place, so that the model can say where it has it from."""
    path, line = hit.metadata.get("path"), hit.metadata.get("line")
    label = hit.id if path is None else str(path) if line is None else f"{path}:{line}"
    return Fragment(f"{label}\n{hit.text}", "", label=label)


def _make_cut_notice(files: int, locale: str) -> Fragment:
    """Tells the model and the receipt that a folder has more files than are taken."""
    text = load_messages(locale)("retrieval.incomplete", files=f"{files:,}")
    return Fragment(text, "", label="not all files were searched")


def _open_source(path: Path, name: str) -> DocumentSource:
    if not os.path.exists(path):
        raise MissingFileError(f"the documents '{name}' are not there", "documents")
    return DocumentSource(path)


def _name_source(documents: str | os.PathLike[str], store: str | os.PathLike[str] | None) -> str:
    """Returns a document's path relative to the store, so that both can be moved together."""
    place = Path(documents).expanduser().absolute()
    return str(place) if store is None else os.path.relpath(place, Path(store).expanduser().absolute().parent)


# --- A retriever by name

GROUP: Final = "flowengine.retrievers"
"""Entry points under which installed packages bring theirs: name → what makes a `Retriever` from its settings."""

_BUILTIN: Final[Mapping[str, Callable[..., Retriever]]] = {"sqlite": FtsRetriever}


def open_retriever(name: str = "sqlite", **settings: Any) -> Retriever:
    """The retriever of a name, made with its settings; an unknown name is an error with the nearest known one.

    >>> open_retriever("sqlit")
    Traceback (most recent call last):
    ...
    flowengine.errors.DefinitionError: there is no retriever 'sqlit'; did you mean 'sqlite'?
    """
    make = _BUILTIN.get(name) or _find_in_packages(name)
    try:
        retriever = make(**settings)
    except TypeError as error:
        raise DefinitionError(f"retriever '{name}': {error}") from error
    if not isinstance(retriever, Retriever):
        raise DefinitionError(f"retriever '{name}' must have add, remove and search, which {retriever!r:.80} has not")
    return retriever


def _find_in_packages(name: str) -> Callable[..., Any]:
    points = find_entry_points(GROUP)
    if name not in points:
        names = list(dict.fromkeys((*_BUILTIN, *points)))
        near = did_you_mean(name, names) or f"; there are {', '.join(names)}"
        raise DefinitionError(f"there is no retriever '{name}'{near}")
    return load_entry_point(points[name], f"the retriever '{name}'")
