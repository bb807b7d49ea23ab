"""Requests as plain data: they come back, and no secret goes along."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.models.messages import Message, ToolRequest, as_dict
from flowengine.models.model import Request, plain_request, request_of

CHAT = (
    Message("user", "How warm is it?"),
    Message("assistant", "", (ToolRequest("1", "look", '{"where": "here"}'),)),
    Message("tool", "20", tool_call_id="1"),
)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def back(request: Request) -> Request:
    shape = json.loads(json.dumps(plain_request(request)))
    return request_of(shape, [as_dict(each) for each in request.messages])


@settings(deadline=None, max_examples=50)
@given(
    st.builds(
        Request,
        st.text(min_size=1),
        st.just(CHAT),
        st.none() | st.floats(0, 2),
        st.none() | st.integers(1, 9999),
        tools=st.sampled_from([(), (TOOL,)]),
        response_schema=st.none() | st.just({"type": "object", "properties": {"a": {"enum": ["x"]}}}),
        extra=st.dictionaries(st.sampled_from(["seed", "top_p", "stop"]), st.integers() | st.booleans()),
    )
)
def test_a_request_written_down_and_read_back_has_the_same_key(request: Request) -> None:
    assert back(request).key() == request.key()


def test_a_schema_keeps_its_name() -> None:
    request = Request("m", CHAT, response_schema={"type": "object"}, response_name="routing")
    assert back(request).response_name == "routing"


def test_keys_headers_and_addresses_are_masked() -> None:
    secret = "sk-7f3a"
    extra = {
        "api_key": secret,
        "extra_headers": {"Authorization": secret},
        "api_base": f"https://{secret}.example",
        "stop": ["\n"],
        "seed": 3,
    }
    shape = plain_request(Request("m", CHAT, extra=extra))
    assert secret not in json.dumps(shape)
    assert shape["extra"] == {
        "api_key": "***",
        "extra_headers": "***",
        "api_base": "***",
        "stop": ["\n"],
        "seed": 3,
    }


def test_what_json_does_not_have_counts_by_its_text() -> None:
    assert plain_request(Request("m", (), extra={"stop": {1}})) == {"model": "m", "extra": {"stop": "{1}"}}


def test_text_that_no_encoding_can_carry_is_mended() -> None:
    json.dumps(plain_request(Request("m\ud800", ())), ensure_ascii=False).encode()
