"""OpenAI's protocol: what servers send that is not quite as it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from flowengine.models.http.anthropic_answers import MessageCollector
from flowengine.models.http.chat_protocol import IncompleteAnswerError, StreamedEvent, StreamFailureError, VendorAnswer
from flowengine.models.http.openai_chat import OPENAI_CHAT, read_chat_usage, read_told_cost
from flowengine.models.http.vendor_traits import VendorTraits, traits_of
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Request, TokenUsage

PLAIN = traits_of("hosted_vllm", "m")


def whole(message: Any, traits: VendorTraits = PLAIN, **more: Any) -> VendorAnswer:
    reason = more.pop("finish_reason", "stop")
    return OPENAI_CHAT.read({"choices": [{"message": message, "finish_reason": reason}], **more}, traits)


def streamed(*events: Any, traits: VendorTraits = PLAIN) -> VendorAnswer:
    collector = OPENAI_CHAT.collector(traits)
    for event in events:
        collector.add(StreamedEvent(event if isinstance(event, str) else json.dumps(event)))
    return collector.answer()


def delta(**fields: Any) -> Mapping[str, Any]:
    return {"choices": [{"delta": fields}]}


END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("a\u2028b", "a\u2028b"),
        ([{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "x"}, {"type": "text", "text": "b"}], "ab"),
        ([], ""),
        (3, ""),
    ],
)
def test_a_content_is_a_text_parts_or_nothing(content: Any, text: str) -> None:
    assert whole({"content": content}).reply.content == text
    assert streamed(delta(content=content), END).reply.content == text


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ({"id": "a", "function": {"name": "f", "arguments": "{}"}}, ToolRequest("a", "f", "{}")),
        ({"function": {"name": "f", "arguments": {"x": 1}}}, ToolRequest("call_0", "f", '{"x": 1}')),
        ({"id": None, "function": {"name": "f", "arguments": None}}, ToolRequest("call_0", "f", "")),
        ({"id": "a", "function": None}, ToolRequest("a", "", "")),
    ],
)
def test_a_tool_call_may_lack_what_it_should_have(call: Any, found: ToolRequest) -> None:
    answers = (whole({"content": None, "tool_calls": [call]}), streamed(delta(tool_calls=[call]), END))
    assert [each.reply.tool_calls for each in answers] == [(found,), (found,)]
    assert {each.reply.finish_reason for each in answers} == {"tool_calls"}


@pytest.mark.parametrize("has_index", [True, False])
def test_tool_calls_that_come_in_pieces_are_put_together(has_index: bool) -> None:
    def piece(index: int, **call: Any) -> Mapping[str, Any]:
        return delta(tool_calls=[{**({"index": index} if has_index else {}), **call}])

    reply = streamed(
        piece(0, id="a", function={"name": "f", "arguments": ""}),
        piece(0, function={"arguments": '{"x":'}),
        piece(0, function={"arguments": " 1}"}),
        piece(1, id="b", function={"name": "g", "arguments": "{}"}),
        END,
    ).reply
    assert reply.tool_calls == (ToolRequest("a", "f", '{"x": 1}'), ToolRequest("b", "g", "{}"))


def test_calls_are_told_apart_where_a_server_gives_all_the_same_index_or_says_names_again() -> None:
    def piece(index: int, id: str | None, name: str | None, arguments: str) -> Mapping[str, Any]:
        return delta(tool_calls=[{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}])

    same_index = (piece(0, "a", "f", '{"x": 1}'), piece(0, "b", "f", '{"x":'), piece(0, None, None, " 2}"), END)
    found = (ToolRequest("a", "f", '{"x": 1}'), ToolRequest("b", "f", '{"x": 2}'))
    assert streamed(*same_index).reply.tool_calls == found
    third = (*same_index[:-1], piece(1, "c", "g", "{}"), END)
    assert streamed(*third).reply.tool_calls == (*found, ToolRequest("c", "g", "{}"))
    said_again = (piece(0, "a", "f", ""), piece(0, "a", "f", '{"x":'), piece(0, "", "", " 1}"), END)
    assert streamed(*said_again).reply.tool_calls == found[:1]
    other_ids = (piece(0, "a", "f", '{"x":'), piece(0, "z", None, " 1}"), END)
    assert streamed(*other_ids).reply.tool_calls == (ToolRequest("z", "f", '{"x": 1}'),)


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        *((None, "stop"), ("stop", "stop"), ("eos", "stop"), ("length", "length"), ("function_call", "tool_calls")),
        *(("content_filter", "content_filter"), ("went for tea", "went for tea"), ("x" * 99, "x" * 40)),
    ],
)
def test_a_reason_is_one_of_four_or_the_vendor_s_word(reason: Any, found: str) -> None:
    assert whole({"content": "a"}, finish_reason=reason).reply.finish_reason == found


@pytest.mark.parametrize(
    ("provider", "usage", "found"),
    [
        ("openai", None, TokenUsage()),
        ("openai", {"prompt_tokens": 0, "completion_tokens": 0}, TokenUsage()),
        ("openai", {"prompt_tokens": "many"}, TokenUsage()),
        ("openai", {"prompt_tokens": 9, "completion_tokens": 10**400}, TokenUsage(9)),
        ("openai", {"prompt_tokens": 9.0, "completion_tokens": 1.5}, TokenUsage(9)),
        ("openai", {"prompt_tokens": 9, "prompt_tokens_details": None}, TokenUsage(9)),
        ("deepseek", {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}, TokenUsage(9, 1, 4)),
        (
            "xai",
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "total_tokens": 15,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            TokenUsage(9, 6, None, None, 5),
        ),
    ],
)
def test_tokens_are_read_where_the_vendor_tells_them(provider: str, usage: Any, found: TokenUsage) -> None:
    traits = traits_of(provider, "m")
    assert whole({"content": "a"}, traits, usage=usage).reply.usage == found
    assert streamed(delta(content="a"), END, {"choices": [], "usage": usage}, traits=traits).reply.usage == found


@pytest.mark.parametrize(
    "body", [{}, {"choices": None}, {"choices": []}, {"choices": ["a"]}, {"choices": [{"message": None}]}]
)
def test_an_answer_without_a_message_is_none(body: Any) -> None:
    with pytest.raises(IncompleteAnswerError):
        OPENAI_CHAT.read(body, PLAIN)


@pytest.mark.parametrize("events", [[], [delta(content="a")], ["[DONE]"]])
def test_a_stream_that_broke_off_is_no_answer(events: Sequence[Any]) -> None:
    with pytest.raises(IncompleteAnswerError):
        streamed(*events)


@pytest.mark.parametrize(
    "events", [[delta(content="a"), "[DONE]"], [delta(content="a"), END], [delta(content="a"), " [DONE] "]]
)
def test_a_stream_ends_with_its_last_event_or_a_reason(events: Sequence[Any]) -> None:
    assert streamed(*events).reply.content == "a"


def test_a_failure_inside_of_a_stream_is_one() -> None:
    with pytest.raises(StreamFailureError):
        streamed(delta(content="a"), {"error": {"message": "overloaded"}})


def test_what_a_vendor_wants_back_goes_back_to_it_alone() -> None:
    traits = traits_of("deepseek", "deepseek-reasoner")
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    told = whole({"content": None, "reasoning_content": "hm", "tool_calls": [call]}, traits).reply
    flowed = streamed(
        delta(reasoning_content="h"), delta(reasoning_content="m"), delta(tool_calls=[call]), END, traits=traits
    ).reply
    assert told.vendor_parts == flowed.vendor_parts == ({"reasoning_content": "hm"},)
    history = (Message("assistant", "", told.tool_calls, vendor_parts=told.vendor_parts),)
    sent = OPENAI_CHAT.body(Request("m", history), traits, stream=False)
    assert sent["messages"][0]["reasoning_content"] == "hm"
    elsewhere = OPENAI_CHAT.body(Request("m", history), PLAIN, stream=False)
    assert elsewhere["messages"] == [{k: v for k, v in sent["messages"][0].items() if k != "reasoning_content"}]


def test_a_signature_of_a_tool_call_goes_back_with_that_call() -> None:
    traits = traits_of("google", "gemini-3-pro")
    signed = {"google": {"thought_signature": "s"}}
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": signed}
    for reply in (
        whole({"tool_calls": [call]}, traits).reply,
        streamed(delta(tool_calls=[call]), END, traits=traits).reply,
    ):
        history = (Message("assistant", "", reply.tool_calls, vendor_parts=reply.vendor_parts),)
        sent = OPENAI_CHAT.body(Request("m", history), traits, stream=False)
        assert sent["messages"][0]["tool_calls"][0]["extra_content"] == signed


def test_calls_that_a_server_gives_one_id_have_ids_of_their_own_and_keep_what_belongs_to_them() -> None:
    traits = traits_of("google", "gemini-3-pro")
    calls = [
        {"id": id, "function": {"name": "f", "arguments": str(at)}, "extra_content": {"at": at}}
        for at, id in enumerate(["a", "a", "a_2", "a"])
    ]
    for reply in (
        whole({"tool_calls": calls}, traits).reply,
        streamed(delta(tool_calls=[{"index": at, **each} for at, each in enumerate(calls)]), END, traits=traits).reply,
    ):
        assert [each.id for each in reply.tool_calls] == ["a", "a_2", "a_2_2", "a_3"]
        history = (Message("assistant", "", reply.tool_calls, vendor_parts=reply.vendor_parts),)
        sent = OPENAI_CHAT.body(Request("m", history), traits, stream=False)["messages"][0]["tool_calls"]
        assert [(each["function"]["arguments"], each["extra_content"]["at"]) for each in sent] == [
            (str(at), at) for at in range(4)
        ]


def test_details_of_reasoning_that_come_in_pieces_are_one() -> None:
    traits = traits_of("openrouter", "anthropic/claude-sonnet-4.5")
    pieces = [
        delta(reasoning_details=""),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "h"}]),
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "m", "signature": "s"}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "x"}]),
    ]
    assert streamed(*pieces, END, traits=traits).reply.vendor_parts == (
        {
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"},
                {"type": "reasoning.encrypted", "index": 1, "data": "x"},
            ]
        },
    )


@pytest.mark.parametrize(
    ("provider", "extra", "sent"),
    [
        ("mistral", {"seed": 3}, {"random_seed": 3}),
        ("openai", {"seed": 3, "parallel_tool_calls": False}, {"seed": 3}),
        ("openrouter", {"thinking": {"budget_tokens": 9}}, {"reasoning": {"max_tokens": 9}}),
        ("deepseek", {"thinking": {"type": "disabled"}}, {"thinking": {"type": "disabled"}}),
        (
            "google",
            {"thinking": {"budget_tokens": 9}},
            {"extra_body": {"google": {"thinking_config": {"thinking_budget": 9}}}},
        ),
    ],
)
def test_options_have_the_vendors_names(provider: str, extra: Any, sent: Any) -> None:
    body = OPENAI_CHAT.body(Request("m", (), extra=extra), traits_of(provider, "m"), stream=False)
    assert {name: value for name, value in body.items() if name not in ("model", "messages")} == sent


def test_what_a_model_refuses_is_left_out() -> None:
    request = Request("o3", (), temperature=0.7, max_tokens=9)
    body = OPENAI_CHAT.body(request, traits_of("openai", "o3"), stream=True)
    assert body == {
        "model": "o3",
        "messages": [],
        "max_completion_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert "stream_options" not in OPENAI_CHAT.body(request, traits_of("mistral", "m"), stream=True)


@pytest.mark.parametrize("collector", [OPENAI_CHAT.collector(PLAIN), MessageCollector()])
def test_an_event_that_is_nested_too_deep_is_no_answer(collector: Any) -> None:
    with pytest.raises(IncompleteAnswerError):
        collector.add(StreamedEvent("[" * 100_000))


@pytest.mark.parametrize(
    ("provider", "usage", "found"),
    [
        # Google's own sample: https://discuss.ai.google.dev/t/127400
        ("google", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 105}, (9, 96, 93)),
        ("google", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, (9, 3, None)),
        ("google", {"prompt_tokens": 9, "completion_tokens": 3}, (9, 3, None)),
        ("openai", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 105}, (9, 3, None)),
    ],
)
def test_what_a_model_thought_is_counted_from_the_total_where_only_that_tells(
    provider: str, usage: dict[str, int], found: tuple[int | None, ...]
) -> None:
    told = read_chat_usage(usage, traits_of(provider, "m"))
    assert (told.prompt_tokens, told.completion_tokens, told.reasoning_tokens) == found


@pytest.mark.parametrize(
    ("provider", "usage", "dollars"),
    [
        ("openrouter", {"cost": 0.95, "cost_details": {"upstream_inference_cost": 0.95}}, 0.95),
        ("openrouter", {"cost": 0.95, "is_byok": True, "cost_details": {"upstream_inference_cost": 19}}, 19.95),
        ("openrouter", {"cost": "dear"}, None),
        ("openrouter", {"cost": -1}, None),
        ("openrouter", None, None),
        ("xai", {"cost_in_usd_ticks": 37756000}, 0.0037756),
        ("perplexity", {"cost": {"total_cost": 0.006}}, 0.006),
        ("openai", {"cost": 5}, None),
    ],
)
def test_what_the_vendor_says_it_charged_is_the_cost(provider: str, usage: Any, dollars: float | None) -> None:
    told = read_told_cost(usage, traits_of(provider, "m"))
    assert told == (None if dollars is None else pytest.approx(dollars))


def test_of_several_answers_the_first_one_is_read() -> None:
    def of(index: int, text: str) -> Mapping[str, Any]:
        return {"choices": [{"index": index, "delta": {"content": text}}]}

    both = {"choices": [{"index": 1, "delta": {"content": "Z"}}, {"index": 0, "delta": {"content": "c"}}]}
    assert streamed(of(0, "a"), of(1, "Z"), of(0, "b"), both, END).reply.content == "abc"


def test_calls_that_all_have_the_index_0_and_no_id_are_kept_apart() -> None:
    def call(name: str, arguments: str) -> Mapping[str, Any]:
        return delta(tool_calls=[{"index": 0, "function": {"name": name, "arguments": arguments}}])

    found = streamed(call("f", '{"x": 1}'), call("g", '{"y": 2}'), END).reply.tool_calls
    assert [(each.name, each.arguments) for each in found] == [("f", '{"x": 1}'), ("g", '{"y": 2}')]
    pieces = streamed(call("f", '{"x":'), call("f", " 1}"), END).reply.tool_calls
    assert [(each.name, each.arguments) for each in pieces] == [("f", '{"x": 1}')]


def test_a_vendor_is_sent_ids_of_the_form_that_it_takes() -> None:
    asked = Message("assistant", "", tool_calls=(ToolRequest("call_0", "f", "{}"), ToolRequest("abcDEF123", "g", "{}")))
    chat = (Message("user", "x"), asked, Message("tool", "1", tool_call_id="call_0"))
    body = OPENAI_CHAT.body(Request("m", chat), traits_of("mistral", "m"), stream=False)
    first, second = (each["id"] for each in body["messages"][1]["tool_calls"])
    assert len(first) == 9
    assert first.isalnum()
    assert (body["messages"][2]["tool_call_id"], second) == (first, "abcDEF123")
