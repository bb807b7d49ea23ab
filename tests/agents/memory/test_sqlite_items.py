"""Items in SQLite: facts close each other, nothing is deleted, and no search leaves its scope."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.agents.memory.items import word_index
from flowengine.agents.memory.items.ranking import MemoryItem
from flowengine.agents.memory.items.sqlite import SQLiteMemoryItems
from flowengine.agents.memory.scopes.memories import MemoryScope, thread_scope_id
from flowengine.errors import DefinitionError

NOW = datetime(2025, 7, 1, tzinfo=UTC)
CHANNEL = MemoryScope.CHANNEL


def item(text: str, day: float = 0, subject: str | None = None, scope_id: str = "C1") -> MemoryItem:
    return MemoryItem(CHANNEL, scope_id, text, NOW - timedelta(days=100 - day), subject)


@pytest.fixture
def items(database: MemoryDatabase) -> SQLiteMemoryItems:
    return SQLiteMemoryItems(database)


async def texts(items: SQLiteMemoryItems, query: str, scope_id: str = "C1", limit: int = 5) -> list[str]:
    return [each.item.text for each in await items.search(CHANNEL, scope_id, query, limit=limit, now=NOW)]


async def validity(database: MemoryDatabase) -> list[tuple[str, bool]]:
    query = "SELECT text, valid_to IS NULL FROM item ORDER BY valid_from"
    rows = await database.read(lambda connection: connection.execute(query).fetchall())
    return [(text, bool(holds)) for text, holds in rows]


async def test_a_new_fact_closes_the_old_one_and_nothing_is_deleted(items: SQLiteMemoryItems, database: MemoryDatabase):
    await items.add([item("Mika lives in Oslo.", 1, "home")])
    await items.add([item("Mika lives in Cork.", 9, "home"), item("Mika rows.", 9, "sport")])
    assert await texts(items, "Where does Mika live?") == ["Mika lives in Cork.", "Mika rows."]
    assert await validity(database) == [
        ("Mika lives in Oslo.", False),
        ("Mika lives in Cork.", True),
        ("Mika rows.", True),
    ]


async def test_a_fact_that_comes_late_is_closed_from_the_beginning(items: SQLiteMemoryItems, database: MemoryDatabase):
    await items.add([item("Mika lives in Cork.", 9, "home")])
    await items.add([item("Mika lives in Oslo.", 1, "home")])
    assert await texts(items, "Where does Mika live?") == ["Mika lives in Cork."]
    assert await validity(database) == [("Mika lives in Oslo.", False), ("Mika lives in Cork.", True)]


async def test_what_happened_closes_nothing(items: SQLiteMemoryItems):
    await items.add([item("Mika went to Oslo.", 1), item("Mika went to Cork.", 2)])
    assert await texts(items, "Where did Mika go, Oslo or Cork?") == ["Mika went to Cork.", "Mika went to Oslo."]


async def test_facts_of_other_scopes_neither_close_nor_are_found(items: SQLiteMemoryItems):
    await items.add([item("Mika lives in Oslo.", 1, "home", "C1"), item("Mika lives in Cork.", 2, "home", "C2")])
    assert await texts(items, "Mika lives", "C1") == ["Mika lives in Oslo."]
    assert await texts(items, "Mika lives", "C2") == ["Mika lives in Cork."]
    assert await texts(items, "Mika lives", "C3") == []
    workspace = await items.search(MemoryScope.WORKSPACE, "C1", "Mika lives", now=NOW)
    assert workspace == []


async def test_an_item_that_is_added_again_changes_nothing(items: SQLiteMemoryItems, database: MemoryDatabase):
    for _ in range(2):
        await items.add([item("Mika lives in Oslo.", 1, "home")])
    assert await validity(database) == [("Mika lives in Oslo.", True)]
    assert await texts(items, "Mika") == ["Mika lives in Oslo."]


async def test_nothing_below_the_threshold_is_found(items: SQLiteMemoryItems):
    await items.add([item("Mika lives in Oslo."), item("Tomas rows every day."), item("Priya sings.")])
    everything = await items.search(CHANNEL, "C1", "Where does Zoltan live?", now=NOW)
    assert [each.item.text for each in everything] == ["Mika lives in Oslo."]
    assert await items.search(CHANNEL, "C1", "Where does Zoltan live?", threshold=0.4, now=NOW) == []
    (found,) = await items.search(CHANNEL, "C1", "Where does Mika live?", threshold=0.4, now=NOW)
    assert found.score > 0.9


async def test_what_was_known_at_a_time_is_found_by_naming_it(items: SQLiteMemoryItems):
    await items.add([item("Mika lives in Oslo.", 1, "home"), item("Mika lives in Cork.", 70, "home")])
    assert (await texts(items, "Where did Mika live in April 2025?"))[0] == "Mika lives in Oslo."
    assert (await texts(items, "Where does Mika live?")) == ["Mika lives in Cork."]


async def test_closing_a_scope_forgets_it_and_keeps_the_record(items: SQLiteMemoryItems, database: MemoryDatabase):
    await items.add([item("Mika lives in Oslo."), item("Mika lives in Cork.", scope_id="C2")])
    await items.close(CHANNEL, "C1", at=NOW)
    assert await texts(items, "Mika") == []
    assert await texts(items, "Mika", "C2") == ["Mika lives in Cork."]
    assert len(await validity(database)) == 2
    await items.add([item("Mika is back.", 101)])
    assert await texts(items, "Mika") == ["Mika is back."]
    await items.close(CHANNEL, "C9", at=NOW)


async def test_items_outlive_the_process_with_their_metadata(items: SQLiteMemoryItems, database: MemoryDatabase):
    kept = MemoryItem(CHANNEL, "C1", "緑茶を飲む", NOW, "茶", metadata={"by": "田中", "n": [1]})
    await items.add([kept])
    database.close()
    (found,) = await SQLiteMemoryItems(MemoryDatabase(database.path)).search(CHANNEL, "C1", "緑茶", now=NOW)
    assert found.item == kept


async def test_words_that_very_many_items_have_are_found_together(items: SQLiteMemoryItems):
    many = [item(f"Mika drinks tea number {number}.", number / 100) for number in range(2500)]
    more = [item(f"Tomas plays golf number {number}.", number / 100) for number in range(2500)]
    await items.add([*more, item("Mika plays chess with Tomas."), *many])
    assert (await texts(items, "What does Mika play?"))[0] == "Mika plays chess with Tomas."
    assert (await texts(items, "Mika drinks"))[0] == "Mika drinks tea number 2499.", "the newest of equals"


async def test_facts_that_were_closed_very_often_hide_nothing(items: SQLiteMemoryItems):
    await items.add([item(f"The price of tea is {number}.", number / 100, "price") for number in range(1200)])
    await items.add([item("Tea costs nothing on Sundays.", -1)])
    assert await texts(items, "price of tea") == ["The price of tea is 1199.", "Tea costs nothing on Sundays."]
    assert (await texts(items, "price of tea in April 2025"))[0].startswith("The price of tea is ")


async def test_neighbours_are_found_without_a_look_at_other_scopes(items: SQLiteMemoryItems, database: MemoryDatabase):
    apart, close = item("Middle.", scope_id="C1"), item("Middle.", scope_id="C2")
    others = [item(f"Number {number}.", scope_id="C3") for number in range(300)]
    await items.add([item("Before."), *others, item("A fact.", 1, "home"), apart, item("After.")])
    await items.add([item("Before.", scope_id="C2"), close, item("After.", scope_id="C2")])

    async def count_steps(middle: MemoryItem) -> int:
        steps = list[int]()
        await database.read(lambda connection: connection.set_progress_handler(lambda: steps.append(1), 1))
        assert [each.text for each in await items.around(middle)] == ["Before.", "After."]
        await database.read(lambda connection: connection.set_progress_handler(None, 1))
        return len(steps)

    await items.around(close)  # Its statements are ready from now on.
    assert await count_steps(apart) == await count_steps(close)


async def test_a_file_of_before_gets_the_index_by_which_neighbours_are_found(database: MemoryDatabase):
    await database.write(lambda connection: connection.execute("DROP INDEX item_by_number"))
    database.close()
    query = "SELECT count(*) FROM sqlite_schema WHERE name = 'item_by_number'"
    assert await database.read(lambda connection: connection.execute(query).fetchone()) == (1,)


async def test_an_item_is_kept_open(items: SQLiteMemoryItems):
    closed = MemoryItem(CHANNEL, "C1", "x", NOW, valid_to=NOW)
    with pytest.raises(DefinitionError, match="an item is kept open, what closes it is the next one: 'x'"):
        await items.add([closed])


async def test_an_index_that_was_made_by_other_rules_is_made_anew(items: SQLiteMemoryItems, database: MemoryDatabase):
    def age(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO item_words (item_words) VALUES ('delete-all')")
        connection.execute("DELETE FROM word")
        connection.execute("UPDATE word_version SET version = version - 1")

    await items.add([item("Mika lives in Oslo 🏠.")])
    await database.write(age)
    assert await texts(items, "Mika") == [], "it was looked at before"
    for asked in ("Mika", "🏠"):
        assert await texts(SQLiteMemoryItems(database), asked) == ["Mika lives in Oslo 🏠."]
    assert await database.read(word_index.is_current)


@given(st.lists(st.text(min_size=1, max_size=30), max_size=6), st.text(max_size=30))
@settings(deadline=None, max_examples=40)
async def test_any_text_is_kept_and_any_query_answered(said: list[str], query: str):
    database = MemoryDatabase(":memory:")
    items = SQLiteMemoryItems(database)
    await items.add([item(text, number) for number, text in enumerate(said)])
    for text in (query, f'{query}" OR *', "NEAR(a b) AND ^x", *said):
        for each in await items.search(CHANNEL, "C1", text, now=NOW):
            assert each.item.text in said
    database.close()


def test_an_item_names_its_scope_and_says_since_when():
    with pytest.raises(DefinitionError, match="an item of a channel needs that channel's id"):
        item("x", scope_id="")
    with pytest.raises(DefinitionError, match="valid_from needs a time zone"):
        MemoryItem(CHANNEL, "C1", "x", NOW.replace(tzinfo=None))
    with pytest.raises(DefinitionError, match="is no thread's scope id"):
        MemoryItem(MemoryScope.THREAD, "C1", "x", NOW)
    assert MemoryItem(MemoryScope.THREAD, thread_scope_id("C1", "1"), "x", NOW).id
