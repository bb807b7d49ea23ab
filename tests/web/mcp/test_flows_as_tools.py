"""Flows as MCP tools, asked by the Python SDK's own client: of the handshake's era, and of 2026-07-28."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import mcp_types as types
import pytest
from mcp.client.client import Client

from flowengine import Agent, Flow, FunctionNode, tool
from flowengine.journal.memory import MemoryJournal, MemoryStore
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.run_inputs import InputField
from flowengine.web.mcp.mcp_server import McpSettings, make_mcp_server
from flowengine.web.mcp.mcp_tools import make_flow_tool
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.outcomes import FlowCaller
from tests.support.counted_flows import Counted
from tests.support.small_png import small_png

Answer = Callable[[types.ElicitRequestFormParams], types.ElicitResult]

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

BOTH_ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
FORM = {"type": "object", "properties": {"ticket": {"type": "string"}}, "required": ["ticket"]}


def form_flow() -> Flow:
    ask = ApprovalNode(lambda context: "Ship?", {"ship": None, "hold": None}, form=FORM)
    return Flow("release", {"ask": ask}, outputs={"form": lambda context: context.nodes["ask"].output["form"]})


@asynccontextmanager
async def connected(
    flows: list[Flow],
    mode: str = "legacy",
    answer: Answer | None = None,
    settings: McpSettings | None = None,
    caller: FlowCaller | None = None,
    store: MemoryStore | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[tuple[Client, FlowService]]:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        assert answer is not None
        return answer(params)

    async with FlowService(store or MemoryStore(), flows, environ=environ) as service:
        server = make_mcp_server(service, settings or McpSettings(by="ann"), lambda request: caller)
        async with Client(server, mode=mode, elicitation_callback=None if answer is None else elicit) as client:
            yield client, service


def text_of(result: types.CallToolResult) -> str:
    part = result.content[0]
    assert isinstance(part, types.TextContent)
    return part.text


@BOTH_ERAS
async def test_a_flow_is_a_tool_and_a_call_of_it_is_a_run(counted: Counted, mode: str) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with connected(counted.flows, mode) as (client, service):
        tools = {each.name: each for each in (await client.list_tools()).tools}
        result = await client.call_tool("quick", {"text": "hello"}, progress_callback=hear)
        assert result.structured_content is not None
        schema = tools["quick"].output_schema
        assert schema is not None
        jsonschema.validate(result.structured_content, schema)
        assert result.structured_content["outputs"] == {"say": "HELLO"}
        assert text_of(result) == "HELLO"
        assert told == [(1, 1, "say: finished")]
        run_id = result.structured_content["run_id"]
        assert (await service.outcome(run_id)).status == "succeeded"
    assert tools["quick"].input_schema["required"] == ["text"]
    assert {"run_status", "await_run", "answer_approval", "list_runs", "validate", "plan", "explain"} <= tools.keys()


@BOTH_ERAS
async def test_a_question_is_put_to_the_user_of_a_client_that_can(counted: Counted, mode: str) -> None:
    asked: list[types.ElicitRequestFormParams] = []

    def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"choice": "yes", "comment": "fine"})

    async with connected(counted.flows, mode, answer) as (client, service):
        result = await client.call_tool("ask", {})
        assert text_of(result) == "SLOW"
        assert result.structured_content is not None
        answered = (await service.record(result.structured_content["run_id"])).events
        given = next(each.record for each in answered if type(getattr(each, "record", None)).__name__ == "Answered")
        assert (given.choice, given.comment, given.by) == ("yes", "fine", "ann")
    assert [each.message for each in asked] == ["Go on?"]
    assert asked[0].requested_schema["properties"]["choice"]["enum"] == ["yes", "no"]


@BOTH_ERAS
async def test_a_form_is_filled_in_by_the_clients_user(mode: str) -> None:
    def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        assert params.requested_schema["required"] == ["choice", "ticket"]
        return types.ElicitResult(action="accept", content={"choice": "ship", "ticket": "T-1"})

    async with connected([form_flow()], mode, answer) as (client, _):
        result = await client.call_tool("release", {})
    assert result.structured_content is not None
    assert result.structured_content["outputs"] == {"form": {"ticket": "T-1"}}


@BOTH_ERAS
async def test_a_form_has_choices_with_titles_and_no_choice_where_there_is_one(mode: str) -> None:
    titled = [{"const": "t", "title": "A ticket"}]
    properties = {
        "kind": {"type": "string", "oneOf": titled, "pattern": "t"},
        "mail": {"type": "string", "format": "email", "default": "a@example.com"},
        "teams": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
        "marks": {"type": "array", "items": {"anyOf": titled}},
    }
    ask = ApprovalNode(lambda context: "Which?", {"send": None}, form={"type": "object", "properties": properties})
    flow = Flow("release", {"ask": ask}, outputs={"form": lambda context: context.nodes["ask"].output["form"]})
    given = {"kind": "t", "teams": ["a"], "marks": ["t"]}

    def answer(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        shown = {**properties, "kind": {"type": "string", "oneOf": titled}}
        assert params.requested_schema["properties"] == shown | {"comment": {"type": "string", "description": "Why"}}
        return types.ElicitResult(action="accept", content=given)

    async with connected([flow], mode, answer) as (client, _):
        result = await client.call_tool("release", {})
    assert result.structured_content is not None
    assert result.structured_content["outputs"] == {"form": given}


@BOTH_ERAS
async def test_files_of_the_outputs_are_parts_of_the_result(mode: str) -> None:
    image, text, other = small_png(), b"a,b\n", b"%PDF-1.7\n" + bytes(9)
    parts = {"image": image, "text": text, "again": text, "other": other}
    flow = Flow("make", {name: FunctionNode(lambda context, each=each: each) for name, each in parts.items()})
    async with connected([flow], mode) as (client, _):
        result = await client.call_tool("make", {})
    said, *files = result.content
    assert isinstance(said, types.TextContent)
    [shown, *resources] = files
    assert isinstance(shown, types.ImageContent)
    assert (shown.mime_type, b64decode(shown.data)) == ("image/png", image)
    contents = [each.resource for each in resources if isinstance(each, types.EmbeddedResource)]
    assert [each.text for each in contents if isinstance(each, types.TextResourceContents)] == [text.decode()]
    assert [b64decode(each.blob) for each in contents if isinstance(each, types.BlobResourceContents)] == [other]


async def test_what_an_inputs_schema_refers_to_is_found_in_the_tools_schema() -> None:
    address = {"$ref": "#/$defs/street", "$defs": {"street": {"type": "string"}}}
    other = {"items": {"$ref": "#/$defs/street"}, "$defs": {"street": {"type": "integer"}}}
    inputs = {"home": InputField(schema=address), "numbers": InputField(schema=other)}
    schema = make_flow_tool("f", Flow("f", {"a": FunctionNode(print)}, inputs=inputs)).input_schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.validate({"home": "Main Street", "numbers": [1]}, schema)
    for wrong in ({"home": 1, "numbers": []}, {"home": "", "numbers": ["1"]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


@BOTH_ERAS
async def test_a_user_who_declines_leaves_the_run_waiting(counted: Counted, mode: str) -> None:
    decline: Answer = lambda params: types.ElicitResult(action="decline")  # noqa: E731
    async with connected(counted.flows, mode, decline) as (client, _):
        result = await client.call_tool("ask", {})
    assert result.structured_content is not None
    assert result.structured_content["status"] == "waiting"


@BOTH_ERAS
async def test_a_question_that_was_put_off_is_asked_again_when_it_is_to_be_answered(
    counted: Counted, mode: str
) -> None:
    answers = [types.ElicitResult(action="cancel"), types.ElicitResult(action="accept", content={"choice": "yes"})]
    async with connected(counted.flows, mode, lambda params: answers.pop(0)) as (client, _):
        waiting = (await client.call_tool("ask", {})).structured_content
        assert waiting is not None
        assert waiting["status"] == "waiting"
        done = (await client.call_tool("answer_approval", {"run_id": waiting["run_id"]})).structured_content
    assert done is not None
    assert done["status"] == "succeeded"
    assert answers == []


@BOTH_ERAS
async def test_a_client_that_cannot_ask_gets_the_question_and_answers_by_a_tool(counted: Counted, mode: str) -> None:
    async with connected(counted.flows, mode) as (client, _):
        waiting = (await client.call_tool("ask", {})).structured_content
        assert waiting is not None
        assert waiting["questions"][0]["choices"] == ["yes", "no"]
        run_id = waiting["run_id"]
        wrong = await client.call_tool("answer_approval", {"run_id": run_id, "choice": "yess"})
        assert wrong.is_error
        assert "did you mean 'yes'?" in text_of(wrong)
        unasked = await client.call_tool("answer_approval", {"run_id": run_id})
        assert unasked.is_error
        done = await client.call_tool("answer_approval", {"run_id": run_id, "choice": "yes"})
        assert done.structured_content is not None
        assert done.structured_content["status"] == "succeeded"
        again = await client.call_tool("answer_approval", {"run_id": run_id, "choice": "no"})
        assert again.is_error


async def test_a_long_run_hands_back_its_id_and_is_awaited_later(counted: Counted) -> None:
    async with connected(counted.flows, settings=McpSettings(patience=0.2)) as (client, _):
        began = (await client.call_tool("slow", {})).structured_content
        assert began is not None
        assert began["status"] == "running"
        status = (await client.call_tool("run_status", {"run_id": began["run_id"]})).structured_content
        assert status is not None
        assert status["status"] == "running"
        counted.gate.set()
        done = (await client.call_tool("await_run", {"run_id": began["run_id"], "seconds": 60})).structured_content
        assert done is not None
        assert done["outputs"] == {"wait": "through"}
        listed = (await client.call_tool("list_runs", {"flow": "slow"})).structured_content
        assert listed is not None
        assert [each["run_id"] for each in listed["runs"]] == [began["run_id"]]


async def test_a_run_of_a_flow_that_is_served_no_more_is_awaited(counted: Counted) -> None:
    async with connected(counted.flows) as (client, service):
        run_id = (await service.start("quick", {"text": "x"})).run_id
        await service.wait(run_id)
        service.flows = {}
        done = (await client.call_tool("await_run", {"run_id": run_id})).structured_content
    assert done is not None
    assert done["outputs"] == {"say": "X"}


@pytest.mark.parametrize(("on_cancel", "status"), [("cancel", "cancelled"), ("detach", "succeeded")])
@BOTH_ERAS
async def test_a_cancelled_call_cancels_its_run_or_lets_it_go_on(
    counted: Counted, mode: str, on_cancel: Any, status: str
) -> None:
    async with connected(counted.flows, mode, settings=McpSettings(on_cancel=on_cancel)) as (client, service):
        began = anyio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.call_tool("slow", {}, progress_callback=hear))
            await began.wait()
            tasks.cancel_scope.cancel()
        (info,) = await service.list_runs()
        if on_cancel == "detach":
            counted.gate.set()
        assert (await service.wait(info.run_id)).status == status


class SlowStore(MemoryStore):
    """Takes the first events of a run only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = anyio.Event()
        self.gate = anyio.Event()

    def create(self, run_id: str, /) -> MemoryJournal:
        made, store = super().create(run_id), self

        class Journal(MemoryJournal):
            def commit(self, alone: bool = True, /) -> Awaitable[None] | None:
                return None if store.gate.is_set() else self._wait()

            async def _wait(self) -> None:
                store.is_asked.set()
                await store.gate.wait()

        return Journal(made._events, made._released)


@pytest.mark.parametrize(("on_cancel", "status"), [("cancel", "cancelled"), ("detach", "succeeded")])
@BOTH_ERAS
async def test_a_call_that_is_cancelled_while_its_run_begins_cancels_it_or_lets_it_go_on(
    counted: Counted, mode: str, on_cancel: Any, status: str
) -> None:
    settings, store = McpSettings(on_cancel=on_cancel), SlowStore()
    scope = anyio.CancelScope()
    async with connected(counted.flows, mode, settings=settings, store=store) as (client, service):

        async def call() -> None:
            with scope:
                await client.call_tool("slow", {})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await store.is_asked.wait()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            store.gate.set()
        (info,) = await service.list_runs()
        if on_cancel == "detach":
            counted.gate.set()
        with anyio.fail_after(5):
            assert (await service.wait(info.run_id)).status == status


@BOTH_ERAS
async def test_a_cancelled_answer_leaves_the_run_that_it_answered(counted: Counted, mode: str) -> None:
    ask = ApprovalNode(lambda context: "Go on?", {"yes": "wait", "no": None})

    async def wait(context: Any) -> str:
        counted.at_gate.set()
        await counted.gate.wait()
        return "through"

    flow = Flow("ask", {"ask": ask, "wait": FunctionNode(wait)})
    answers = [types.ElicitResult(action="cancel"), types.ElicitResult(action="accept", content={"choice": "yes"})]
    async with connected([flow], mode, lambda params: answers.pop(0)) as (client, service):
        waiting = (await client.call_tool("ask", {})).structured_content
        assert waiting is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "answer_approval", {"run_id": waiting["run_id"]})
            await counted.at_gate.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        counted.gate.set()
        assert (await service.wait(waiting["run_id"])).status == "succeeded"


async def test_plan_looks_for_keys_where_the_service_does(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("flowengine: v1\nname: f\nnodes:\n  say: {prompt: hi}\n")
    costs: list[Any] = []
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        environ = {key: "x"}
        async with connected([Flow.from_yaml(file, environ=environ)], environ=environ) as (client, _):
            planned = (await client.call_tool("plan", {"flow": "f"})).structured_content
            assert planned is not None
            costs.append(planned["most"]["cost_usd"])
    assert costs[0] != costs[1]


async def test_a_repeated_call_with_a_key_finds_the_run_that_was_paid(counted: Counted) -> None:
    async with connected(counted.flows) as (client, _):
        meta: Any = {"flowengine/key": "order-17"}
        first = await client.call_tool("quick", {"text": "once"}, meta=meta)
        again = await client.call_tool("quick", {"text": "once"}, meta=meta)
        other = await client.call_tool("quick", {"text": "twice"}, meta=meta)
    assert first.structured_content == again.structured_content
    assert counted.calls == ["once"]
    assert other.is_error


async def test_a_caller_sees_neither_flows_nor_runs_of_others(counted: Counted) -> None:
    ben = FlowCaller("ben", frozenset({"quick"}))
    async with connected(counted.flows, caller=ben) as (client, service):
        started = await service.start("quick", {"text": "hers"}, caller=FlowCaller("ann"))
        await service.wait(started.run_id)
        names = {each.name for each in (await client.list_tools()).tools}
        assert "ask" not in names
        for tool, arguments in (
            ("ask", {}),
            ("validate", {"flow": "ask"}),
            ("run_status", {"run_id": started.run_id}),
            ("await_run", {"run_id": started.run_id}),
            ("cancel_run", {"run_id": started.run_id}),
            ("answer_approval", {"run_id": started.run_id, "choice": "yes"}),
            ("run_status", {"run_id": "0" * 12}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, tool
            assert "HERS" not in text_of(result)
            assert started.run_id not in text_of(result) or started.run_id in str(arguments)
        listed = (await client.call_tool("list_runs", {})).structured_content
        assert listed == {"runs": []}


async def test_a_client_does_not_answer_for_people_of_other_names() -> None:
    ask = ApprovalNode(lambda context: "Pay?", {"yes": None, "no": None}, approvers=["ben"])
    async with connected([Flow("pay", {"ask": ask})], settings=McpSettings(by="ann")) as (client, service):
        waiting = (await client.call_tool("pay", {})).structured_content
        assert waiting is not None
        refused = await client.call_tool("answer_approval", {"run_id": waiting["run_id"], "choice": "yes"})
        assert refused.is_error
        assert "is to be answered by ben, and this is 'ann'" in text_of(refused)
        assert (await service.outcome(waiting["run_id"])).status == "waiting"


async def test_wrong_arguments_are_told_and_nothing_runs(counted: Counted) -> None:
    async with connected(counted.flows) as (client, service):
        for tool, arguments, told in (
            ("quick", {"txet": "x"}, "did you mean 'text'?"),
            ("quik", {}, "did you mean 'quick'?"),
            ("run_status", {"run": "x"}, "'run_id' is a required property"),
            ("explain", {"code": "FE2O3"}, "did you mean"),
            ("plan", {"flow": "quick"}, "was built in Python"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, tool
            assert told in text_of(result)
        assert not await service.list_runs()


@BOTH_ERAS
async def test_values_that_no_message_can_carry_are_told_all_the_same(mode: str) -> None:
    odd = {"half": "a\ud83db", "line": "\u2028", "huge": 10**400, "nan": float("nan"), "bytes": b"\xff", "none": None}
    async with connected([Flow("odd", {"say": FunctionNode(lambda context: odd)})], mode) as (client, _):
        result = await client.call_tool("odd", {})
    assert result.structured_content is not None
    said = result.structured_content["outputs"]["say"]
    assert said["half"] == "a\ufffdb"
    assert (said["line"], said["nan"], said["none"]) == ("\u2028", "nan", None)


async def test_a_run_that_fails_is_an_error_that_says_where() -> None:
    def explode(context: Any) -> None:
        raise ValueError("no such order")

    async with connected([Flow("broken", {"look": FunctionNode(explode)})]) as (client, _):
        result = await client.call_tool("broken", {})
    assert result.is_error
    assert "look: " in text_of(result)
    assert "no such order" in text_of(result)


def _nothing(context: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("effects", "read_only", "idempotent", "destructive"),
    [
        (("none", "none"), True, None, None),
        (("none", "idempotent"), False, True, False),
        (("idempotent", "external"), False, False, True),
    ],
)
async def test_the_annotations_are_the_effects(
    effects: tuple[Any, ...], read_only: bool, idempotent: bool | None, destructive: bool | None
) -> None:
    nodes = {f"n{at}": FunctionNode(_nothing, effect=effect) for at, effect in enumerate(effects)}
    hints = make_flow_tool("f", Flow("f", nodes)).annotations
    assert hints is not None
    found = (hints.read_only_hint, hints.idempotent_hint, hints.destructive_hint)
    assert found == (read_only, idempotent, destructive)


async def test_the_tools_of_an_agent_count_among_the_effects() -> None:
    @tool(effect="external")
    def pay(euros: int) -> str:
        """Pay."""
        return str(euros)

    agent = Agent("clerk", "Pay.", model="offline", tools=[pay])
    hints = make_flow_tool("f", Flow("f", {"clerk": agent})).annotations
    assert hints is not None
    assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (False, True, True)


async def test_a_flow_that_has_the_name_of_one_of_the_servers_tools_gets_another() -> None:
    flow = Flow("plan", {"say": FunctionNode(lambda context: "hello")})
    async with connected([flow]) as (client, _):
        assert text_of(await client.call_tool("flow_plan", {})) == "hello"
