from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flowengine.agents.context.provider import (
    ContextProvider,
    OutsideError,
    call_method,
    fragments_of,
    join_fragments,
    locate_path,
)
from flowengine.core.context import Fragment
from flowengine.errors import DefinitionError


class Plain(ContextProvider):
    """Says where it runs."""

    provider_name = "plain"

    def __init__(self, city: str, tags: list[str] | None = None) -> None:
        self.city = city
        self.tags = tags or []

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return f"{self.city}: {query}, {kwargs.get('agent_name')}, {previous_context!r}"


class Shouting(ContextProvider):
    provider_name = "shouting"
    transforms = True

    async def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return (previous_context or "").upper()


class Rich(ContextProvider):
    provider_name = "rich"

    def fragments(self, query: str, previous: Any, **kwargs: Any) -> list[Fragment]:
        return [Fragment("a", "rich"), Fragment("b", "rich")]


async def test_a_source_that_only_writes_get_context_brings_one_fragment_under_its_name():
    before = [Fragment("earlier", "files")]
    found = await fragments_of(Plain("Kyoto"), "rain?", before, agent_name="a")
    assert found == [Fragment("Kyoto: rain?, a, 'earlier'", "plain")]


async def test_what_a_transform_returns_takes_the_place_of_everything_but_what_is_pinned():
    before = [Fragment("one", "files"), Fragment("stays", "rules", pinned=True), Fragment("two", "files")]
    found = await fragments_of(Shouting(), "", before)
    assert found == [Fragment("stays", "rules", pinned=True), Fragment("ONE\n\nTWO", "shouting")]


async def test_get_context_of_a_provider_of_fragments_is_their_text():
    text: Any = Rich().get_context("")
    assert await text == "a\n\nb"


def test_a_provider_without_a_text_is_refused_when_it_is_made():
    class Empty(ContextProvider):
        provider_name = "empty"

    with pytest.raises(DefinitionError, match="Empty has to define get_context"):
        Empty()


async def test_a_text_that_is_none_is_refused_by_its_type():
    class Wrong(ContextProvider):
        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> Any:
            return {"a": 1}

    with pytest.raises(TypeError, match="get_context must return text, not dict"):
        await fragments_of(Wrong(), "", ())


async def test_a_plain_method_runs_in_a_thread_and_an_async_one_where_it_is():
    def plain() -> int:
        return threading.get_ident()

    async def waiting() -> int:
        return threading.get_ident()

    assert await call_method(plain) != threading.get_ident()
    assert await call_method(waiting) == threading.get_ident()


async def test_a_plain_method_may_return_something_to_wait_for():
    async def later() -> str:
        return "text"

    assert await call_method(lambda: later()) == "text"


def test_the_schema_of_a_users_class_is_read_off_its_constructor():
    assert Plain.get_config_schema() == {
        "description": "Says where it runs.",
        "parameters": {
            "city": {"type": "string", "default": None, "required": True, "description": ""},
            "tags": {"type": "array", "default": None, "required": False, "description": ""},
        },
        "example": "- plain: {city: …}",
    }


def test_a_users_class_may_describe_its_parameters():
    class Described(Plain):
        """Says where it runs, in tests."""

        config_parameters: ClassVar[Mapping[str, str]] = {"city": "Where"}
        config_example: ClassVar[str] = "- plain: {city: Kyoto}"

        def __init__(self, city: str | bytes = "Kyoto", *, found: Any = None) -> None:
            super().__init__(str(city))

    assert Described.get_config_schema() == {
        "description": "Says where it runs, in tests.",
        "parameters": {"city": {"type": "string", "default": "Kyoto", "required": False, "description": "Where"}},
        "example": "- plain: {city: Kyoto}",
    }


def test_a_fresh_one_shares_nothing_with_the_first():
    first = Plain("Kyoto", ["a"])
    second = first.fresh()
    assert isinstance(second, Plain)
    second.tags.append("b")
    assert (first.tags, second.city) == (["a"], "Kyoto")


def test_empty_fragments_leave_no_gap():
    assert join_fragments([Fragment("a", "x"), Fragment("", "x"), Fragment("b", "x")]) == "a\n\nb"


def test_a_path_stays_below_its_root_also_where_a_link_leads_out(tmp_path: Path):
    inside = tmp_path / "project"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    assert locate_path("a/../b.txt", inside, parameter="p") == inside / "b.txt"
    for path in ("../b.txt", "link/b.txt", "/etc/passwd"):
        with pytest.raises(OutsideError) as raised:
            locate_path(path, inside, parameter="file_path")
        assert raised.value.parameter == "file_path"


def test_in_a_program_of_ones_own_any_path_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert locate_path("b.txt", None, parameter="p") == tmp_path / "b.txt"
    assert locate_path("/etc/passwd", None, parameter="p") == Path("/etc/passwd")
