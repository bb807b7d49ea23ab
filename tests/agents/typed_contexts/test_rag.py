"""Contexts that look things up: several retrievers, one ranking, and what of it enters a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document, Hit
from flowengine.agents.typed_contexts.manager import ContextManager
from flowengine.agents.typed_contexts.rag import NoData, RetrievalContext
from flowengine.errors import DefinitionError, InputError, RunError
from flowengine.models.tokens import count_tokens

MANUAL = [Document("p7", "Press the red button to stop."), Document("p9", "Oil the wheels weekly.")]
NOTES = [Document("n1", "The red button sticks, says Mika."), Document("n2", "Mika oils the red door.", {"by": "Mika"})]


class Fixed:
    """An index of somebody else, which can only be searched."""

    def __init__(self, *hits: Hit, error: Exception | None = None) -> None:
        self.hits = hits
        self.error = error
        self.asked: list[tuple[str, int]] = []

    async def search(self, query: str, limit: int = 5, where: Mapping[str, Any] | None = None) -> Sequence[Hit]:
        self.asked.append((query, limit))
        if self.error is not None:
            raise self.error
        return self.hits[:limit]


def context(**rags: Any) -> RetrievalContext[NoData]:
    made = RetrievalContext.create("manual", "The manual", NoData, render_prompt=lambda context: "")
    for name, rag in rags.items():
        made.register_rag(name, rag)
    return made


async def filled(documents: Sequence[Document]) -> FtsRetriever:
    retriever = FtsRetriever()
    await retriever.add(documents)
    return retriever


async def test_what_all_retrievers_find_is_one_ranking_and_says_who_found_it():
    made = context(manual=await filled(MANUAL), notes=await filled(NOTES))
    found = await made.query_context_rag("red button")
    assert {(each.metadata["rag"], each.id) for each in found} == {("manual", "p7"), ("notes", "n1"), ("notes", "n2")}
    assert found[-1].id == "n2", "second where the others are first"
    assert found[-1].metadata["by"] == "Mika"
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert all(0 < each.score <= 1 for each in found)


async def test_hits_of_one_id_are_all_found():
    both = Fixed(Hit("tea.md#1", "Green.", 1.0), Hit("tea.md#1", "Black.", 0.5))
    assert [each.text for each in await context(all=both).query_context_rag("tea")] == ["Green.", "Black."]
    found = await context(all=both, notes=await filled(NOTES)).query_context_rag("red tea")
    assert {"Green.", "Black."} <= {each.text for each in found}


async def test_one_retriever_keeps_its_own_scores():
    made = context(only=Fixed(Hit("a", "A", 0.9), Hit("b", "B", 0.2)))
    assert [(each.id, each.score) for each in await made.query_context_rag("x")] == [("a", 0.9), ("b", 0.2)]
    assert [each.id for each in await made.query_context_rag("x", 1)] == ["a"]


async def test_documents_of_one_id_in_two_retrievers_are_two_hits():
    made = context(one=Fixed(Hit("a", "A", 1.0)), two=Fixed(Hit("a", "other A", 1.0)))
    assert [each.text for each in await made.query_context_rag("x")] == ["A", "other A"]


async def test_one_retriever_can_be_asked_alone():
    one, two = Fixed(Hit("a", "A", 1.0)), Fixed()
    made = context(one=one, two=two)
    assert [each.id for each in await made.query_context_rag("x", 3, rag="one")] == ["a"]
    assert (one.asked, two.asked) == ([("x", 3)], [])
    with pytest.raises(DefinitionError, match="context 'manual' has no retriever 'tow'; did you mean 'two'"):
        await made.query_context_rag("x", rag="tow")


async def test_a_context_without_retrievers_finds_nothing():
    assert await context().query_context_rag("x") == []
    assert await context().load_rag_for_prompt("x") == ""


async def test_what_is_found_stands_in_the_prompt_below_its_place():
    made = context(manual=await filled(MANUAL))
    assert await made.load_rag_for_prompt("red button") == "[manual: p7]\nPress the red button to stop."


async def test_what_does_not_fit_is_left_out():
    class Small(RetrievalContext[NoData]):
        id = "small"
        data_schema = NoData
        rag_tokens = 40

    made = Small()
    made.register_rag("long", Fixed(*(Hit(str(number), "word " * 12, 1.0) for number in range(9))))
    text = await made.load_rag_for_prompt("x")
    assert text.count("[long: ") == 2
    assert count_tokens(text) <= 40


async def test_a_retriever_that_fails_is_named():
    made = context(good=Fixed(Hit("a", "A", 1.0)), broken=Fixed(error=OSError("no route to host")))
    with pytest.raises(
        RunError, match="context 'manual': the retriever 'broken' failed: OSError: no route to host"
    ) as e:
        await made.query_context_rag("x")
    assert isinstance(e.value.__cause__, OSError)


async def test_documents_are_indexed_where_the_retriever_is_registered():
    made = context()
    made.register_rag("pages", documents=MANUAL)
    assert [each.id for each in await made.fresh().query_context_rag("oil")] == ["p9"]
    both: Any = {"rag": Fixed(), "documents": MANUAL}
    with pytest.raises(DefinitionError, match="documents are for an index made here; 'other' has its own"):
        made.register_rag("other", **both)


def test_two_retrievers_of_one_name_are_refused():
    made = context(manual=None)
    with pytest.raises(DefinitionError, match="context 'manual' has a retriever 'manual' already"):
        made.register_rag("manual")
    with pytest.raises(DefinitionError, match="a retriever needs a name"):
        made.register_rag("")


def test_what_is_no_retriever_is_refused_before_it_is_asked():
    wrong: Any = "manual.db"
    with pytest.raises(DefinitionError, match="context 'manual': the retriever 'pages' has a search, not str"):
        context(manual=None).register_rag("pages", wrong)


@pytest.mark.parametrize(
    ("query", "limit", "message"),
    [(None, 5, "a query is text, not NoneType"), ("stop", "5", "a limit is a whole number, not str")],
)
async def test_a_query_that_is_no_text_is_refused(query: Any, limit: Any, message: str):
    with pytest.raises(InputError, match=f"context 'manual': {message}"):
        await context(manual=await filled(MANUAL)).query_context_rag(query, limit)


class Machine(BaseModel):
    running: bool = True


async def test_rendered_for_a_query_the_manager_adds_what_is_found():
    machine = RetrievalContext.create("machine", "The machine", Machine)
    machine.register_rag("manual", await filled(MANUAL))
    manager = ContextManager([machine])
    assert await manager.render_prompt() == 'The machine\n{"running":true}'
    assert await manager.render_prompt("the red button") == (
        'The machine\n{"running":true}\n\n[manual: p7]\nPress the red button to stop.'
    )


async def test_fresh_contexts_share_what_is_indexed_and_no_data():
    machine = RetrievalContext.create("machine", "The machine", Machine)
    machine.register_rag("manual", await filled(MANUAL))
    run = machine.fresh()
    run.update_data(running=False)
    run.register_rag("more", Fixed())
    assert machine.get_data().running
    assert [each.id for each in await run.query_context_rag("red button", rag="manual")] == ["p7"]
    with pytest.raises(DefinitionError, match="has no retriever 'more'"):
        await machine.query_context_rag("x", rag="more")
