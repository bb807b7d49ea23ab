"""Recording and playing: every mode, equal calls, several nodes, what differs, what is damaged, what is secret."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_server import ModelServer

from flowengine.agents.agent import Agent
from flowengine.errors import DefinitionError, InputError, ModelConfigError, TransientModelError
from flowengine.flow import Flow
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Model, Reply, Request, TokenUsage
from flowengine.models.outbound import check_outbound
from flowengine.models.scripted import ScriptedModel
from flowengine.testing.cassette import Cassette, CassetteMismatchError
from flowengine.testing.cassette_file import Call, CassetteError, cassette_text, read_cassette, write_cassette
from flowengine.testing.model_overrides import with_models
from flowengine.testing.scripted_answers import scripted


def asking(text: str = "Why?", **settings: Any) -> Request:
    return Request("scripted", (Message("user", text),), **settings)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "a.cassette.yaml"


def content(path: Path) -> str:
    """What the file holds; nothing where there is none."""
    return path.read_text("utf-8") if path.exists() else ""


def files_beside(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


async def recorded(path: Path, *answers: Any, mode: Any = "once") -> ScriptedModel:
    """A cassette with the answers to the same question, asked once for each."""
    model = ScriptedModel(list(answers))
    played = Cassette(path, mode).model(model, max_retries=0)
    for _ in answers:
        await played.complete(asking())
    return model


# --- modes


async def test_what_was_recorded_once_is_played_without_the_model(path: Path) -> None:
    await recorded(path, "Because.")
    silent = ScriptedModel([])
    reply = await Cassette(path, "once").model(silent).complete(asking())
    assert (reply.content, reply.model, silent.requests) == ("Because.", "scripted", [])


async def test_a_reply_comes_back_whole(path: Path) -> None:
    reply = Reply(
        "Two\nlines ",
        (ToolRequest("1", "look", '{"a": 1}'),),
        TokenUsage(3, 2, 1),
        0.25,
        "tool_calls",
        "m-1",
        "acme",
        2,
        9.0,
    )
    await recorded(path, reply)
    played = await Cassette(path, "none").model(ScriptedModel([])).complete(asking())
    assert played == reply._replace(attempts=1, seconds=0.0)


def test_a_cassette_keeps_which_tools_failed(path: Path) -> None:
    failed = Message("tool", "no order 'Z'", tool_call_id="1", is_error=True)
    write_cassette(path, [Call(Request("m", (failed, failed._replace(is_error=False))), Reply("Sorry."))])
    assert path.read_text().count("is_error: true") == path.read_text().count("is_error") == 1
    (found,) = read_cassette(path)
    assert [each.is_error for each in found.request.messages] == [True, False]


async def test_none_never_records(path: Path) -> None:
    with pytest.raises(CassetteMismatchError, match="does not exist, and mode 'none' records nothing"):
        await recorded(path, "x", mode="none")
    assert content(path) == ""


async def test_once_does_not_add_to_a_file_that_is_there(path: Path) -> None:
    await recorded(path, "Because.")
    cassette = Cassette(path, "once")
    with pytest.raises(CassetteMismatchError) as caught:
        await cassette.model(ScriptedModel(["y"])).complete(asking("How?"))
    assert cassette.misses == [str(caught.value)]


async def test_new_adds_what_is_missing_and_plays_the_rest(path: Path) -> None:
    await recorded(path, "Because.")
    model = Cassette(path, "new").model(ScriptedModel(["Thus."]))
    assert [(await model.complete(asking(each))).content for each in ("Why?", "How?")] == ["Because.", "Thus."]
    assert [call.reply.content for call in read_cassette(path)] == ["Because.", "Thus."]


async def test_all_records_everything_anew(path: Path) -> None:
    await recorded(path, "Because.", "Again.")
    await recorded(path, "Today I say this.", mode="all")
    assert [call.reply.content for call in read_cassette(path)] == ["Today I say this."]


@pytest.mark.parametrize(
    ("ci", "variable", "expected"),
    [("", "", "once"), ("1", "", "none"), ("true", "", "none"), ("false", "", "once"), ("1", "new", "new")],
)
def test_the_mode_comes_from_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, variable: str, expected: str
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("FLOWENGINE_CASSETTES", variable)
    assert Cassette(path).mode == expected


def test_an_unknown_mode_is_refused(path: Path) -> None:
    with pytest.raises(DefinitionError, match="one of none, once, new, all, not 'ones'; did you mean 'once'"):
        Cassette(path, "ones")  # type: ignore[arg-type] - what is tested


# --- what is found


async def test_equal_calls_are_played_in_their_order_and_no_more_often(path: Path) -> None:
    await recorded(path, "one", "two")
    model = Cassette(path, "none").model(ScriptedModel([]))
    assert [(await model.complete(asking())).content for _ in range(2)] == ["one", "two"]
    with pytest.raises(CassetteMismatchError, match="has this call 2 times, and it came once more"):
        await model.complete(asking())


async def test_a_request_that_differs_is_shown_beside_the_nearest(path: Path) -> None:
    await recorded(path, "Because.")
    with pytest.raises(CassetteMismatchError) as caught:
        await Cassette(path, "none").model(ScriptedModel([])).complete(asking("Why not?", temperature=0.5))
    lines = str(caught.value).splitlines()
    assert "--- recorded: call 1" in lines
    assert "+temperature: 0.5" in lines
    assert '-    content: "Why?"' in lines
    assert '+    content: "Why not?"' in lines


async def test_the_timeout_makes_no_difference(path: Path) -> None:
    await recorded(path, "Because.")
    assert (await Cassette(path, "none").model(ScriptedModel([])).complete(asking(timeout=1))).content


async def test_a_stream_is_recorded_and_played(path: Path) -> None:
    for mode, model in (("once", ScriptedModel(["a b"])), ("none", ScriptedModel([]))):
        async with Cassette(path, mode).model(model).stream(asking()) as pieces:  # type: ignore[arg-type] - modes
            *texts, reply = [piece async for piece in pieces]
        assert ("".join(map(str, texts)), reply.content) == ("a b", "a b")  # type: ignore[union-attr] - the last


async def test_failed_calls_are_not_recorded_and_not_retried_by_the_agent(path: Path) -> None:
    model = ScriptedModel([TransientModelError("busy")])
    agent = Agent("a", "Answer.", model=Cassette(path, "once").model(model, max_retries=0))
    with pytest.raises(TransientModelError, match="busy"):
        await agent.run_async("hi")
    assert (len(model.requests), content(path)) == (1, "")


# --- flows


async def test_a_flow_is_recorded_and_played_without_keys(tea: Flow, answers: dict[str, Any], path: Path) -> None:
    first = await Cassette(path, "once").around(scripted(tea, answers)).run()
    assert [call.node for call in read_cassette(path)] == ["ask", "pick", "cool"]
    assert first.outputs == (await Cassette(path, "none").around(scripted(tea, answers)).run()).outputs
    calls = read_cassette(path)
    renamed = replace(calls[0], request=replace(calls[0].request, model="gpt-4o-mini"))
    write_cassette(path, [renamed, *calls[1:]])
    run = await Cassette(path, "none").around(tea).run()
    assert run.failed_node == "pick", "its model was recorded under another name"


async def test_a_default_model_plays_whatever_was_recorded(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "{flowengine: v1, name: f, nodes: {a: {prompt: Hello.}}}"
    flow = Flow.from_text(text, tmp_path / "f.yaml")
    first = await Cassette(path, "once").around(flow).run()
    assert "model: offline" in content(path)
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "openai/gpt-4o")
    again = await Cassette(path, "none").around(flow).run()
    assert again.outputs == first.outputs


async def test_calls_stand_in_the_order_of_the_flow_whenever_they_came(tmp_path: Path, path: Path) -> None:
    text = (
        "{flowengine: v1, name: f, nodes: {a: {prompt: A}, b: {prompt: B, instructions: Same}, "
        "c: {prompt: B, instructions: Same}, d: {needs: [a], prompt: D}}}"
    )
    models: dict[str, Model] = {
        "a": ScriptedModel(["a"], latency=0.15),
        "b": ScriptedModel(["b"], latency=0.05),
        "c": ScriptedModel(["c"]),
        "d": ScriptedModel(["d"]),
    }
    flow = with_models(Flow.from_text(text, tmp_path / "f.yaml"), lambda seat, settings: models[seat.node])
    await Cassette(path, "once").around(flow).run()
    assert [(call.node, call.reply.content) for call in read_cassette(path)] == [(each, each) for each in "abcd"]
    run = await Cassette(path, "none").around(flow).run()
    assert [run.nodes[each].output for each in "bc"] == ["b", "c"], "equal calls are told apart by their nodes"


class Unschooled(ScriptedModel):
    """A model that follows no schema by itself."""

    async def supports_schema(self) -> bool:
        return False


async def test_prompts_are_those_of_the_recorded_model_also_where_it_follows_no_schemas(
    tea: Flow, answers: dict[str, Any], path: Path
) -> None:
    flow = with_models(tea, lambda seat, settings: Unschooled(lambda request: answers[seat.node]))
    first = await Cassette(path, "once").around(flow).run()
    assert '{"type":"object"' in content(path)
    silent = with_models(tea, lambda seat, settings: ScriptedModel([]))
    assert first.outputs == (await Cassette(path, "none").around(silent).run()).outputs


async def test_a_refused_call_is_known_even_where_the_flow_goes_on(tmp_path: Path, path: Path) -> None:
    text = "{flowengine: v1, name: f, nodes: {a: {prompt: Hello., on_error: skip}}}"
    cassette = Cassette(path, "none")
    run = await cassette.around(Flow.from_text(text, tmp_path / "f.yaml")).run()
    assert (run.status, len(cassette.misses)) == ("succeeded", 1)


# --- the file


@pytest.mark.long
async def test_no_secret_of_a_call_gets_into_the_file(path: Path, server: ModelServer) -> None:
    server.respond_with(["Fine."])
    settings = {"api_base": server.url, "api_key": "sk-first"}
    model = Cassette(path, "once").model(LiteLLMModel("gpt-4o-mini", "openai", settings=settings))
    extra = {"extra_headers": {"X-Key": "sk-second"}, "user": "sk-third", "seed": 7}
    request = Request("gpt-4o-mini", (Message("user", "hi"),), timeout=60, extra=extra)
    assert (await model.complete(request)).content == "Fine."
    assert server.requests[0].headers["x-key"] == "sk-second"
    text = content(path)
    assert "sk-" not in text
    assert "seed: 7" in text
    other = Request("gpt-4o-mini", (Message("user", "hi"),), extra={**extra, "user": "sk-fourth"})
    assert (await Cassette(path, "none").model("openai/gpt-4o-mini").complete(other)).content == "Fine."


async def test_long_texts_are_blocks_and_calls_are_paragraphs(path: Path) -> None:
    await recorded(path, "One line.\nAnother line.", "Short.")
    text = content(path)
    assert "    content: |-\n      One line.\n      Another line.\n" in text
    assert text.count("\n\n- request:") == 1
    assert cassette_text(read_cassette(path)) == text


DAMAGED = {
    "cassette: 1\ncalls:\n- request: {model: m, messages: []}\n  reply: {content: [1]}\n": r"4:20: FE401 expected text",
    "cassette: 1\ncalls:\n- request: {model: m, messages: []}\n  repl: {}\n": r"4:3: FE201 unknown key 'repl'",
    "cassette: 1\ncalls:\n- request: {model: m, messages: [{role: robot}]}\n  reply: {}\n": r"3:41: FE402 expected",
    "cassette: 2\ncalls: []\n": r"1:11: FE402 expected 1, found 2",
    "cassette: 1\ncalls: [\n": r"3:1: FE104 not YAML",
    "<<<<<<< HEAD\ncassette: 1\ncalls: []\n": r"2:9: FE104 not YAML",
    "- 1\n": r"1:1: FE115 a cassette is a map with the keys cassette, calls",
    "": r"1:1: FE105 the file is empty",
}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_an_error_with_its_line(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    with pytest.raises(CassetteError, match=DAMAGED[text]):
        Cassette(path, "once")


def test_bytes_that_are_no_text_are_told_with_their_line(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"cassette: 1\ncalls: \xff\n")
    with pytest.raises(CassetteError, match="2:8: FE103 not UTF-8"):
        Cassette(path, "none")


async def test_a_file_that_cannot_be_replaced_stays_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(path, "Because.")
    before = content(path)

    def fail(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="No space"):
        await recorded(path, "Other.", mode="all")
    assert content(path) == before
    assert files_beside(path) == [path]


class Away(ScriptedModel):
    """A model that leads away from this machine."""

    async def complete(self, request: Request) -> Reply:
        check_outbound(self.name, {"api_base": "https://models.example"})
        return await super().complete(request)


async def test_recording_is_meant_where_requests_are_forbidden(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWENGINE_ALLOW_MODEL_REQUESTS", "0")
    with pytest.raises(ModelConfigError):
        await Away(["x"]).complete(asking())
    assert (await Cassette(path, "once").model(Away(["x"])).complete(asking())).content == "x"
    with pytest.raises(ModelConfigError):
        await Away(["x"]).complete(asking())


TEXTS = st.text(st.characters()) | st.text("ab \n:#-\r\t\x85\u2028\ufeff\ud800\x00", max_size=30)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2), st.none() | st.floats(0, 1e9))
def test_every_call_is_found_again_whatever_its_texts_are(
    tmp_path: Path, question: str, answer: str, schema: dict[str, str], cost: float | None
) -> None:
    extra = {"stop": [question], "user": answer}
    request = asking(question, response_schema={"enum": schema, "type": "object"}, extra=extra)
    write_cassette(tmp_path / "a.yaml", [Call(request, Reply(answer, cost_usd=cost), "n")])
    (found,) = read_cassette(tmp_path / "a.yaml")
    assert found.key == Call(request, Reply("")).key
    assert found.reply == Reply(answer.encode("utf-8", "replace").decode(), cost_usd=cost)
