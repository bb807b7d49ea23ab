"""What stays together when a context is made smaller."""

from __future__ import annotations

from flowengine.agents.context.compressor.compression import units_of
from flowengine.core.context import Fragment


def shape(fragments: list[Fragment]) -> list[list[tuple[str, bool]]]:
    return [[(piece.text, piece.is_result) for piece in unit.pieces] for unit in units_of(fragments)]


def test_fragments_of_a_group_are_a_unit_wherever_they_stand() -> None:
    call, result = Fragment("read(a)", "tools", group="1"), Fragment("text of a", "tools", group="1", priority=2)
    other = Fragment("hello", "conversation")
    assert shape([call, other, result]) == [[("read(a)", False), ("text of a", True)], [("hello", False)]]
    assert units_of([call, other, result])[0].priority == 2


def test_groups_that_are_not_about_tools_have_no_results() -> None:
    fragments = [Fragment("a", "memory", group="1"), Fragment("b", "memory", group="1")]
    assert shape(fragments) == [[("a", False), ("b", False)]]


def test_turns_of_a_transcript_with_their_tools() -> None:
    text = "User: do it\nAssistant: I read.\n\nTool (read_file): text\n\nmore text\n\nObservation: x\nAssistant: Done."
    assert shape([Fragment(text, "previous_context")]) == [
        [("User: do it", False)],
        [
            ("Assistant: I read.", False),
            ("Tool (read_file): text\n\nmore text", True),
            ("Observation: x", True),
        ],
        [("Assistant: Done.", False)],
    ]


def test_a_result_in_a_fragment_of_its_own_goes_with_the_call_before_it() -> None:
    fragments = [Fragment("Assistant: I read.", "log"), Fragment("ツールの結果: 本文", "log"), Fragment("次へ", "log")]
    assert shape(fragments) == [[("Assistant: I read.", False), ("ツールの結果: 本文", True)], [("次へ", False)]]
    assert shape([Fragment("result", "tools", label="result of look")]) == [[("result", True)]]


def test_what_is_pinned_is_no_unit() -> None:
    assert units_of([Fragment("rules", "x", pinned=True), Fragment("", "x")]) == []
