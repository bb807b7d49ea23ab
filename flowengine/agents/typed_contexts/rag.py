"""Adds retrievers to typed contexts: asks them by name, one after the other, and fuses their rankings.

It knows retrievers by their protocol and how hits stand in a prompt. What is indexed, and how it is found, is the
retriever's matter; what it holds is shared by all runs, since no run changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Generic, Self, TypeVar, overload

from pydantic import BaseModel

from flowengine.agents.retrieval import Document, FtsRetriever, Hit, Ranking, Retriever, Searchable, fuse_rankings
from flowengine.agents.typed_contexts.typed import TypedContext
from flowengine.core import describe_error
from flowengine.errors import DefinitionError, InputError, RunError, did_you_mean, refuse_other_kind
from flowengine.models import count_tokens

D = TypeVar("D", bound=BaseModel)
S = TypeVar("S", bound=Searchable)


class NoData(BaseModel):
    """The data of a context that only looks things up."""


class RetrievalContext(TypedContext[D], Generic[D]):
    """A typed context with retrievers. Rendered for a query, it adds what they find.

    >>> import anyio
    >>> from flowengine.agents.retrieval.retriever import Document
    >>> manual = RetrievalContext.create("manual", "What the manual says", NoData, render_prompt=lambda context: "")
    >>> pages = [Document("p7", "Press the red button to stop."), Document("p9", "Oil it weekly.")]
    >>> _ = manual.register_rag("pages", documents=pages)
    >>> print(anyio.run(manual.load_rag_for_prompt, "How do I stop it?"))
    [pages: p7]
    Press the red button to stop.
    """

    rag_limit: int = 5
    """Hits that enter a prompt at most."""
    rag_tokens: int = 2000
    """Tokens that they may have together, by real count; what does not fit is left out, the last first."""

    def __init__(self, initial_data: D | Mapping[str, Any] | None = None) -> None:
        super().__init__(initial_data)
        self._rags: dict[str, Searchable] = {}

    @overload
    def register_rag(self, name: str, rag: None = None, *, documents: Sequence[Document] = ()) -> Retriever: ...
    @overload
    def register_rag(self, name: str, rag: S) -> S: ...
    def register_rag(
        self, name: str, rag: Searchable | None = None, *, documents: Sequence[Document] = ()
    ) -> Searchable:
        """Look things up in `rag` as well: anything with a `search`. None: an index in memory, made of `documents`.

        A name that is there already is a `DefinitionError`.
        """
        refuse_other_kind(name, (str, NoneType), f"context '{self.id}': a retriever is named by text", DefinitionError)
        if not name:
            raise DefinitionError(f"context '{self.id}': a retriever needs a name")
        refuse_other_kind(
            rag, (Searchable, NoneType), f"context '{self.id}': the retriever '{name}' has a search", DefinitionError
        )
        if name in self._rags:
            raise DefinitionError(f"context '{self.id}' has a retriever '{name}' already: choose another name")
        if rag is not None and documents:
            raise DefinitionError(f"context '{self.id}': documents are for an index made here; '{name}' has its own")
        self._rags[name] = retriever = FtsRetriever(documents=documents) if rag is None else rag
        return retriever

    async def query_context_rag(self, query: str, limit: int | None = None, *, rag: str | None = None) -> list[Hit]:
        """Searches with all retrievers or the named one; results are sorted by score, from 1.0 to 0.0.

        `metadata["rag"]` says which one found it. One that fails is a `RunError` that names it.
        """
        refuse_other_kind(query, str, f"context '{self.id}': a query is text", InputError)
        refuse_other_kind(limit, (int, NoneType), f"context '{self.id}': a limit is a whole number", InputError)
        most = self.rag_limit if limit is None else limit
        rankings = {name: await self._find_hits(name, query, most) for name in self._choose_retrievers(rag)}
        # By place: documents of several sources may have one id.
        hits = {(name, place): hit for name, ranking in rankings.items() for place, hit in enumerate(ranking)}
        if len(rankings) == 1:
            scores = {key: hit.score for key, hit in hits.items()}
        else:
            scores = fuse_rankings(Ranking([key for key in hits if key[0] == name]) for name in rankings)
        return [_name_hit(hits[key], key[0], score) for key, score in list(scores.items())[:most]]

    async def load_rag_for_prompt(self, query: str, limit: int | None = None) -> str:
        """Formats the results as text: each hit below its retriever and id."""
        texts: list[str] = []
        room = self.rag_tokens
        for hit in await self.query_context_rag(query, limit):
            text = f"[{hit.metadata['rag']}: {hit.id}]\n{hit.text.strip()}"
            room -= count_tokens(text)
            if room < 0:
                break
            texts.append(text)
        return "\n\n".join(texts)

    async def prompt_text(self, query: str | None = None) -> str:
        own = await super().prompt_text(query)
        passages = await self.load_rag_for_prompt(query) if query and self._rags else ""
        return "\n\n".join(text for text in (own, passages) if text)

    def fresh(self) -> Self:
        other = super().fresh()
        other._rags = dict(self._rags)
        return other

    def _choose_retrievers(self, rag: str | None) -> list[str]:
        if rag is None:
            return [*self._rags]
        if rag not in self._rags:
            raise DefinitionError(f"context '{self.id}' has no retriever '{rag}'{did_you_mean(rag, self._rags)}")
        return [rag]

    async def _find_hits(self, name: str, query: str, limit: int) -> Sequence[Hit]:
        try:
            return await self._rags[name].search(query, limit)
        except Exception as error:
            problem = describe_error(error)
            raise RunError(f"context '{self.id}': the retriever '{name}' failed: {problem}") from error


def _name_hit(hit: Hit, rag: str, score: float) -> Hit:
    return hit._replace(score=score, metadata={**hit.metadata, "rag": rag})
