"""Names that vendors take, whatever a server calls its tools."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import Tool as ListedTool
from mcp_types import ToolAnnotations

from flowengine.agents.tools.mcp.listed_tools import describe
from flowengine.agents.tools.mcp.server_settings import McpServer

SERVER = McpServer(name="srv", command="x", trust_hints=True)


def listed(name: str, **more: object) -> ListedTool:
    return ListedTool.model_validate({"name": name, "input_schema": {"type": "object"}, **more}, by_name=True)


def offered(names: list[str]) -> dict[str, str]:
    return {each.remote_name: each.name for each in describe(SERVER, [listed(name) for name in names])}


def test_a_name_that_is_safe_stays_readable() -> None:
    assert offered(["get-time", "a.b", "c d"]) == {"get-time": "srv_get-time", "a.b": "srv_a_b", "c d": "srv_c_d"}


def test_a_safe_name_is_never_the_one_that_changes() -> None:
    names = offered(["a_b", "a.b"])
    assert names["a_b"] == "srv_a_b"
    assert re.fullmatch(r"srv_a_b_[0-9a-f]{8}", names["a.b"])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(alphabet="ab_.-é日 ", max_size=80), unique=True, max_size=10))
def test_names_are_safe_distinct_and_independent_of_the_order(names: list[str]) -> None:
    found = offered(names)
    assert len(set(found.values())) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found.values())
    assert offered(names[::-1]) == found


def test_a_description_of_any_length_is_cut_and_a_title_stands_in_for_it() -> None:
    tools = describe(SERVER, [listed("a", description="x" * 100_000), listed("b", title="Bee"), listed("c")])
    assert len(tools[0].text) < 9_000
    assert [each.text for each in tools[1:]] == ["Bee", ""]


def test_hints_of_a_server_that_nobody_trusts_count_for_nothing() -> None:
    for hints in (ToolAnnotations(read_only_hint=True), ToolAnnotations(idempotent_hint=True), None):
        (tool,) = describe(McpServer(name="srv", command="x"), [listed("a", annotations=hints)])
        assert tool.effect == "external"


def test_what_only_reads_has_no_effect_even_if_it_claims_to_destroy() -> None:
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=False, destructive_hint=True)
    (tool,) = describe(SERVER, [listed("a", annotations=hints)])
    assert tool.effect == "none"
