from __future__ import annotations

import pytest

from flowengine.models.messages import Message, ToolRequest, as_dict, from_dict


@pytest.mark.parametrize(
    "message",
    [
        Message("system", "Be brief."),
        Message("assistant", "", (ToolRequest("c1", "look", '{"at": "sky"}'), ToolRequest("c2", "look", "{broken"))),
        Message("tool", "blue", tool_call_id="c1"),
        Message("tool", "no such sky", tool_call_id="c1", is_error=True),
        Message("assistant", "Blue.", vendor_parts=({"type": "thinking", "thinking": "…", "signature": "x"},)),
    ],
)
def test_a_message_survives_the_way_through_its_chat_shape(message: Message) -> None:
    assert from_dict(as_dict(message)) == message


def test_absent_parts_are_left_out_of_the_chat_shape() -> None:
    assert as_dict(Message("user", "hi")) == {"role": "user", "content": "hi"}


def test_an_unknown_role_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="system, user, assistant, tool, not 'robot'"):
        from_dict({"role": "robot", "content": "hi"})
