"""The SQLite retriever: found in any script, safe with any query, true to what was added and removed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowengine.agents.retrieval import terms
from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document, Hit, Retriever
from flowengine.errors import DefinitionError, InputError


class Colours(Protocol):
    name: str
    asked: list[str]
    is_down: bool

    async def embed(self, texts: Any) -> Any: ...


async def found(retriever: Retriever, query: str, limit: int = 5, **where: Any) -> list[str]:
    return [hit.id for hit in await retriever.search(query, limit, where or None)]


async def holding(*texts: str, path: Any = ":memory:", embed: Any = None) -> FtsRetriever:
    retriever = FtsRetriever(path, embed)
    await retriever.add([Document(str(number), text) for number, text in enumerate(texts)])
    return retriever


NO_ID: Any = (None, "x")
NO_TEXT: Any = ("a", None)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("text", "an index takes Documents, as .*, not str"),
        (Document(*NO_ID), "a document's id is text, not NoneType"),
        (Document(*NO_TEXT), "the text of document 'a' is text, not NoneType"),
        (Document("a", "x", {"at": object()}), "the metadata of document 'a' are no JSON values"),
        (Document("a", "x", {"at": float("nan")}), "the metadata of document 'a' are no JSON values"),
    ],
)
async def test_what_is_no_document_is_refused(document: Any, message: str):
    with pytest.raises(InputError, match=message):
        await FtsRetriever().add([document])


# --- searching


async def test_the_document_with_more_of_the_query_comes_first() -> None:
    retriever = await holding("green tea", "how green tea is made in Japan", "black coffee", "tea")
    assert (await found(retriever, "How is green tea made?"))[0] == "1"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("茶", {"0"}),
        ("む", {"0"}),
        ("緑茶", {"0"}),
        ("会议", {"1"}),
        ("天", {"1"}),
        ("회의", {"2"}),
        ("회", {"2"}),
        ("ไทย", {"3"}),
        ("C", {"4"}),
        ("ＣＡＦÉ", {"5"}),
        ("getHttp", {"6"}),
        ("responses", {"6"}),
    ],
)
async def test_short_words_of_every_script_are_found(query: str, expected: set[str]) -> None:
    retriever = await holding(
        "毎朝、緑茶を飲む", "明天有会议", "회의는 내일입니다", "ภาษาไทย", "C is a language", "café", "get_http_response"
    )
    assert set(await found(retriever, query)) == expected


@pytest.mark.parametrize("query", ["", " ", "*", '"', "。、", "🎉", "-", "^", "(", "':;", "\x00", "___"])
async def test_a_query_of_punctuation_finds_nothing(query: str) -> None:
    assert await found(await holding("green tea"), query) == []


@pytest.mark.parametrize(
    "query",
    [
        "tea OR",
        "NEAR(tea",
        "tea NOT green",
        '"tea',
        "terms:tea",
        "tea*",
        "{terms}: tea",
        "tea^2",
        "tea\x00",
        "\ud800tea",
    ],
)
async def test_operators_are_words_like_others(query: str) -> None:
    assert await found(await holding("green tea", "coffee"), query) == ["0"]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_no_query_breaks_the_search(query: str) -> None:
    async def search() -> list[str]:
        return await found(await holding("green tea", "緑茶"), query)

    assert set(anyio.run(search)) <= {"0", "1"}


async def test_a_very_long_query_is_asked_by_both_its_ends() -> None:
    retriever = await holding("zebra", "giraffe", "lion")
    filler = " ".join(f"word{number}" for number in range(5000))
    assert set(await found(retriever, f"zebra {filler} giraffe")) == {"0", "1"}


async def test_scores_fall_from_one() -> None:
    retriever = await holding("green tea", "green tea and green cups of tea", "a green house", "coffee")
    scores = [hit.score for hit in await retriever.search("green tea")]
    assert scores[0] == 1.0
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


async def test_no_more_than_the_limit_are_found() -> None:
    retriever = await holding(*["tea"] * 80)
    assert len(await found(retriever, "tea", 60)) == 60
    assert await found(retriever, "tea", 0) == []


# --- what is held


async def test_a_document_that_is_added_again_takes_the_place_of_the_former() -> None:
    retriever = await holding("green tea")
    await retriever.add([Document("0", "black coffee"), Document("0", "red wine", {"year": 1999})])
    assert await found(retriever, "tea coffee") == []
    assert await retriever.search("wine") == [Hit("0", "red wine", 1.0, {"year": 1999})]


async def test_a_removed_document_is_found_no_more_and_an_unknown_id_does_not_matter() -> None:
    retriever = await holding("green tea", "black tea")
    await retriever.remove(["0", "no such id"])
    assert await found(retriever, "green tea") == ["1"]


async def test_documents_are_taken_in_all_or_none() -> None:
    retriever = await holding("green tea")
    with pytest.raises(InputError):
        await retriever.add([Document("1", "black tea"), Document("2", "white tea", {"when": object()})])
    assert await found(retriever, "tea") == ["0"]


async def test_halves_of_surrogate_pairs_in_a_text_do_not_matter() -> None:
    assert await found(await holding("green \ud800 tea"), "tea") == ["0"]


async def test_metadata_narrow_a_search_before_the_limit_does() -> None:
    retriever = FtsRetriever()
    await retriever.add([Document(f"a{number}", "tea tea", {"shop": "a"}) for number in range(70)])
    await retriever.add([Document("b", "some tea", {"shop": "b", "open": True, 'odd "key"': None, "price": 3})])
    assert await found(retriever, "tea", shop="b") == ["b"]
    assert await found(retriever, "tea", shop="b", open=True, price=3) == ["b"]
    assert await found(retriever, "tea", **{'odd "key"': None}) == ["b"]
    assert len(await found(retriever, "tea", 100, shop=["a", "b"])) == 71
    assert await found(retriever, "tea", shop=[]) == []
    assert await found(retriever, "tea", shop="' OR 1 --") == []
    assert await found(retriever, "tea", missing=None) == []


async def test_many_tasks_may_use_one_retriever() -> None:
    retriever = FtsRetriever()

    async def add(number: int) -> None:
        await retriever.add([Document(str(number), f"tea number{number}")])
        assert await found(retriever, f"number{number}", 1) == [str(number)]

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(add, number)
    assert len(await found(retriever, "tea", 100)) == 30


# --- files


async def test_a_file_holds_its_documents(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "index.db"
    retriever = await holding("green tea", path=path)
    retriever.close()
    assert await found(FtsRetriever(path), "teas") == ["0"]
    assert await found(retriever, "teas") == ["0"]


async def test_two_retrievers_may_use_one_file(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    one, two = FtsRetriever(path), FtsRetriever(path)
    await one.add([Document("a", "green tea")])
    await two.add([Document("b", "black tea")])
    await two.remove(["a"])
    assert await found(one, "tea") == ["b"]


async def test_emoji_are_found_also_in_an_index_that_was_made_without_them(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    (await holding("a note🍵", "🫠🇯🇵", "👍🏽", path=path)).close()
    with sqlite3.connect(path) as connection:  # As the version before made it.
        connection.execute("DROP TABLE words")
        tokenizer = "unicode61 remove_diacritics 0 categories 'L* N* M* Co'"
        connection.execute(f"""CREATE VIRTUAL TABLE words USING fts5(terms, content='', tokenize="{tokenizer}")""")
        connection.executemany("INSERT INTO words (rowid, terms) VALUES (?, ?)", [(1, "a not"), (2, ""), (3, "")])
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    retriever = FtsRetriever(path)
    asked = {each: await found(retriever, each) for each in ("🍵", "🫠", "🇯🇵", "👍", "👍🏽", "note", "🇵🇯")}
    assert asked == {
        "🍵": ["0"], "🫠": ["1"], "🇯🇵": ["1"], "👍": ["2"], "👍🏽": ["2"], "note": ["0"], "🇵🇯": [],
    }  # fmt: skip


async def test_an_index_of_other_terms_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.db"
    (await holding("green tea", path=path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO words (words, rowid, terms) VALUES ('delete', 1, 'green tea')")
        connection.execute(f"PRAGMA user_version = {terms.VERSION + 1}")
    connection.close()
    retriever = FtsRetriever(path)
    assert await found(retriever, "tea") == ["0"]
    await retriever.remove(["0"])
    assert await found(retriever, "tea") == []


@pytest.mark.parametrize("content", ["this is no database, and long enough to be looked at\n" * 50, None])
async def test_what_is_no_index_is_refused_and_left_alone(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "other.db"
    if content is None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (x)")
        connection.close()
    else:
        path.write_text(content)
    before = path.read_bytes()
    with pytest.raises(DefinitionError, match=r"other\.db.*no index"):
        await FtsRetriever(path).search("tea")
    assert path.read_bytes() == before


# --- with vectors


async def test_what_means_the_same_is_found_though_no_word_is_shared(colours: Colours) -> None:
    retriever = await holding("a crimson house", "a navy house", "a lime house", embed=colours)
    assert (await found(retriever, "赤"))[0] == "0"
    assert (await found(retriever, "something blue"))[0] == "1"


async def test_words_and_meaning_are_fused(colours: Colours) -> None:
    retriever = await holding("blue zebra", "navy horse", "red zebra", embed=colours)
    hits = await retriever.search("blue zebra")
    assert hits[0].id == "0"
    assert hits[0].score == pytest.approx(1.0)


async def test_metadata_narrow_the_search_by_meaning_too(colours: Colours) -> None:
    retriever = FtsRetriever(embed=colours)
    await retriever.add([Document("a", "crimson", {"shop": "a"}), Document("b", "navy", {"shop": "b"})])
    assert await found(retriever, "red", shop="b") == ["b"]


async def test_a_text_is_embedded_once(colours: Colours) -> None:
    retriever = await holding("crimson", "navy", embed=colours)
    await retriever.search("red")
    await retriever.add([Document("1", "lime")])
    assert colours.asked == ["crimson", "navy", "red", "lime"]


async def test_searches_at_once_have_a_text_embedded_once(colours: Colours, tmp_path: Path) -> None:
    await FtsRetriever(tmp_path / "index.db").add([Document("0", "crimson"), Document("1", "navy")])
    retriever = FtsRetriever(tmp_path / "index.db", embed=colours)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(retriever.search, "red")
    assert sorted(colours.asked) == ["crimson", "navy", "red", "red", "red"]


async def test_a_limit_of_any_size_is_one(colours: Colours) -> None:
    retriever = await holding("crimson", "navy", embed=colours)
    assert [hit.id for hit in await retriever.search("crimson", 10**30)] == ["0", "1"]


async def test_a_text_that_is_added_again_as_it_was_is_not_embedded_again(colours: Colours) -> None:
    retriever = await holding("crimson", "navy", embed=colours)
    await retriever.add([Document("0", "crimson", {"shop": "a"}), Document("2", "navy")])
    assert colours.asked == ["crimson", "navy"]
    assert await found(retriever, "red", shop="a") == ["0"]
    await retriever.remove(["1"])
    assert sorted(await found(retriever, "blue")) == ["0", "2"]
    await retriever.remove(["2"])
    await retriever.add([Document("3", "navy")])  # Nobody had it any more.
    assert colours.asked.count("navy") == 2


async def test_an_index_of_an_earlier_version_loses_no_vectors(tmp_path: Path, colours: Colours) -> None:
    path = tmp_path / "index.db"
    retriever = FtsRetriever(path, embed=colours)
    await retriever.add([Document("a", "crimson"), Document("b", "navy")])
    retriever.close()
    with closing(sqlite3.connect(path)) as connection:  # As it was once.
        connection.executescript(FORMER)
    colours.asked.clear()
    again = FtsRetriever(path, embed=colours)
    assert (await found(again, "red"))[0] == "a"
    assert colours.asked == ["red"]
    await again.add([Document("a", "lime")])
    assert colours.asked == ["red", "lime"]


FORMER = """
CREATE TABLE kept AS SELECT row AS document, model, signs, vector FROM documents JOIN vectors USING (hash);
DROP TABLE vectors;
CREATE TABLE vectors (
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    model TEXT NOT NULL,
    signs BLOB NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (document, model)
) WITHOUT ROWID;
INSERT INTO vectors SELECT * FROM kept;
DROP TABLE kept;
DROP INDEX by_hash;
ALTER TABLE documents DROP COLUMN hash;
ALTER TABLE documents DROP COLUMN source;
"""


async def test_an_embedder_that_fails_leaves_the_words(colours: Colours, caplog: pytest.LogCaptureFixture) -> None:
    colours.is_down = True
    with caplog.at_level(logging.WARNING):
        retriever = await holding("a crimson house", "a navy house", embed=colours)
        assert await found(retriever, "crimson red") == ["0"]
    assert "the embedder is down" in caplog.text
    colours.is_down = False
    assert (await found(retriever, "blue"))[0] == "1"


async def test_texts_without_a_direction_are_found_by_words_alone(colours: Colours) -> None:
    retriever = await holding("grey", "crimson", embed=colours)
    assert await found(retriever, "grey") == ["0"]
    assert (await found(retriever, "red"))[0] == "1"


async def test_of_many_vectors_the_nearest_are_found() -> None:
    class Angles:
        name = "angles"

        async def embed(self, texts: Any) -> list[list[float]]:
            def vector(seed: int) -> list[float]:
                return [((seed * 7919 + place * 104729) % 997) / 498.5 - 1 for place in range(64)]

            return [vector(int(text.split("x")[1])) for text in texts]

    retriever = await holding(*(f"x{number}" for number in range(1200)), embed=Angles())
    for number in (3, 777, 1199):
        assert (await found(retriever, f"yx{number}"))[0] == str(number)


@pytest.mark.parametrize("value", [{"a": 1}, [["x"]], 2**64])
async def test_what_no_metadata_can_be_compared_with_is_named(value: Any) -> None:
    retriever = await holding("tea")
    with pytest.raises(InputError, match="where: 'kind' is compared with a text, a number, a truth value or null, not"):
        await found(retriever, "tea", kind=value)


async def test_half_a_surrogate_pair_in_a_query_reaches_no_embedder(colours: Colours) -> None:
    retriever = await holding("red apples", embed=colours)
    assert await found(retriever, "red \ud83d") == ["0"]
    assert colours.asked[-1] == "red ?"


@pytest.mark.parametrize("made", [ValueError("a model of one's own"), [], [[1.0]]])
async def test_whatever_an_embedder_of_ones_own_does_words_are_found(made: Any, caplog: pytest.LogCaptureFixture):
    class Own:
        name = "own"

        async def embed(self, texts: Sequence[str]) -> Any:
            if isinstance(made, Exception):
                raise made
            return made

    retriever = await holding("a crimson house", "a navy house", embed=Own())
    assert [hit.text for hit in await retriever.search("crimson")] == ["a crimson house"]
    assert "the embedder 'own' failed" in caplog.text


async def test_documents_given_at_the_start_are_there_whenever_the_index_is_opened() -> None:
    retriever = FtsRetriever(documents=[Document("a", "green tea"), Document("b", "black tea")])
    await retriever.add([Document("c", "tea pot")])
    assert {each.id for each in await retriever.search("tea")} == {"a", "b", "c"}
    retriever.close()
    assert {each.id for each in await retriever.search("tea")} == {"a", "b"}, "what was added went with the memory"


async def test_documents_given_at_the_start_keep_their_vectors_in_a_file(tmp_path: Path, colours: Colours) -> None:
    for _ in range(2):
        retriever = FtsRetriever(tmp_path / "index.db", colours, [Document("a", "a crimson house")])
        assert await found(retriever, "赤") == ["a"]
        retriever.close()
    assert colours.asked == ["a crimson house", "赤", "赤"]
