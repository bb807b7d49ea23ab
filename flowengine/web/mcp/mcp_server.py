"""Serves flows as MCP tools, for clients of the handshake's era and of 2026-07-28 alike. Needs the extra `mcp`.

A call of a flow's tool is a run. It tells the client which nodes are done, asks the client's user what the run asks,
and hands back the run's id where that takes longer than `patience`. A call that is cancelled cancels its run, or leaves
it to go on (`on_cancel`). `_meta` of a call may hold `flowengine/key`, which makes a repeated call find the run that
there is, and `flowengine/session`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from flowengine.core import dumps, find_files
from flowengine.engine import NodeCancelled, NodeFailed, NodeFinished, NodeSkipped
from flowengine.errors import ApprovalError, FlowEngineError, InputError, did_you_mean
from flowengine.version import __version__
from flowengine.web.api import hide_store
from flowengine.web.mcp.mcp_contents import read_contents
from flowengine.web.mcp.mcp_tools import (
    CONTROL_TOOLS,
    data_result,
    elicitation_of,
    make_flow_tool,
    name_tools,
    read_elicited,
    result_of,
)
from flowengine.web.service import (
    FlowCaller,
    FlowService,
    PersonsAnswer,
    RunOutcome,
    StartedRun,
    dates_of,
    explain_code,
    plan_flow,
    validate_flow,
)
from visualize.viewer import whole

OnCancel: TypeAlias = Literal["cancel", "detach"]
Result: TypeAlias = "types.CallToolResult | types.InputRequiredResult"
Request: TypeAlias = "ServerRequestContext[Any, Any]"

_PATIENCE: Final = 50.0
"""Seconds: many clients give a call up after a minute."""
_DONE: Final = (NodeFinished, NodeFailed, NodeSkipped, NodeCancelled)


@dataclass(frozen=True)
class McpSettings:
    """Settings for MCP calls."""

    patience: float = _PATIENCE
    """Seconds after which a call hands back the id of a run that goes on."""
    on_cancel: OnCancel = "cancel"
    """Whether the run of a cancelled call is cancelled or goes on."""
    by: str = ""
    """Name of the person who answers, where no key tells it."""


def make_mcp_server(
    service: FlowService,
    settings: McpSettings | None = None,
    caller_of: Callable[[Request], FlowCaller | None] = lambda request: None,
) -> Server[Any]:
    """The protocol's server; `caller_of`: who a request is from, None: the user of this machine."""
    calls = _Calls(service, settings or McpSettings(), caller_of)
    return Server(
        "flowengine",
        version=__version__,
        instructions="Each flow is a tool. A run that takes long, or waits for a person, hands back its run_id.",
        on_list_tools=calls.list_tools,
        on_call_tool=calls.call_tool,
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Until the client closes its end. Nothing but the protocol goes to stdout: the library moves it away."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _Calls:
    """Answers the requests of one server."""

    def __init__(
        self, service: FlowService, settings: McpSettings, caller_of: Callable[[Request], FlowCaller | None]
    ) -> None:
        self._service = service
        self._settings = settings
        self._caller_of = caller_of
        self._control: Mapping[str, Callable[[FlowToolCall], Awaitable[Result]]] = {
            "run_status": self._tell_status,
            "await_run": self._await_run,
            "answer_approval": self._answer_approval,
            "list_runs": self._list_runs,
            "cancel_run": self._cancel_run,
            "validate": self._validate,
            "plan": self._plan,
            "explain": self._explain,
        }
        self._tools: dict[str, types.Tool] = {}

    async def list_tools(self, request: Request, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        names = name_tools(self._service.names(self._caller_of(request)))
        for name, flow in names.items():
            if name not in self._tools:
                self._tools[name] = make_flow_tool(name, self._service.flows[flow])
        return types.ListToolsResult(tools=[*(self._tools[name] for name in names), *CONTROL_TOOLS])

    async def call_tool(self, request: Request, params: types.CallToolRequestParams) -> Result:
        call = FlowToolCall(request, params, self._caller_of(request))
        try:
            control = self._control.get(params.name)
            if control is not None:
                _check_arguments(params.name, call.arguments)
                return await control(call)
            return await self._run_flow(call)
        except FlowEngineError as error:
            text = types.TextContent(type="text", text=whole(str(hide_store(error))))
            return types.CallToolResult(content=[text], is_error=True)

    async def _run_flow(self, call: FlowToolCall) -> Result:
        if call.params.request_state is not None:
            return await self._go_on(call, owns=True)
        names = name_tools(self._service.names(call.caller))
        flow = names.get(call.params.name)
        if flow is None:
            tools = [*names, *self._control]
            raise InputError(f"there is no tool '{call.params.name:.80}'{did_you_mean(call.params.name[:80], tools)}")
        started: StartedRun | None = None
        with anyio.CancelScope(shield=True):  # A call that is cancelled now has to know what it began.
            started = await self._service.start(
                flow, call.arguments, run_key=call.meta("key"), caller=call.caller, session=call.meta("session")
            )
        assert started is not None
        return await self._follow(call, started.run_id, self._settings.patience, owns=started.is_new)

    async def _go_on(self, call: FlowToolCall, *, owns: bool) -> Result:
        """The client brings what its user has answered; the call's state is the run."""
        run_id = call.params.request_state or ""
        questions = {each.node: each for each in (await self._service.outcome(run_id, call.caller)).questions}
        for path, reply in (call.params.input_responses or {}).items():
            answer = None
            if path in questions and isinstance(reply, types.ElicitResult):
                answer = read_elicited(questions[path], reply)
            if answer is None:
                return await self._tell(call, run_id)
            await self._answer(call, run_id, answer)
        return await self._follow(call, run_id, self._settings.patience, owns=owns)

    async def _follow(self, call: FlowToolCall, run_id: str, patience: float, *, owns: bool) -> Result:
        """Tell progress until the run has ended, or it waits for an answer that does not come, or the time is up.

        `owns`: the call is the run's, so one that is cancelled may cancel it.
        """
        try:
            with anyio.move_on_after(patience):
                while True:
                    await self._tell_progress(call, run_id)
                    outcome = await self._service.outcome(run_id, call.caller)
                    if outcome.status != "waiting":
                        break
                    request = await self._ask(call, outcome)
                    if request is not None:
                        return request
            return await self._tell(call, run_id)
        except anyio.get_cancelled_exc_class():
            if owns and self._settings.on_cancel == "cancel":
                with anyio.CancelScope(shield=True), suppress(FlowEngineError):  # It may have ended meanwhile.
                    await self._service.cancel(run_id, call.caller)
            raise

    async def _tell_progress(self, call: FlowToolCall, run_id: str) -> None:
        """Progress notifications, until the run has ended or waits."""
        flow = self._service.flows.get((await self._service.outcome(run_id, call.caller)).flow)
        total = None if flow is None else len(flow.plan.graph)
        async for position, event in self._service.follow(run_id, call.position, caller=call.caller):
            call.position = call.position if position is None else position + 1
            if not isinstance(event, _DONE) or event.node in call.done:
                continue
            if "." not in event.node and "[" not in event.node:  # A node of the flow itself.
                call.done.add(event.node)
                word = type(event).__name__.removeprefix("Node").lower()
                await call.request.session.report_progress(len(call.done), total, f"{event.node}: {word}")

    async def _ask(self, call: FlowToolCall, outcome: RunOutcome) -> Result | None:
        """Ask the client's user what the run waits for; None: all is answered, and the run goes on."""
        requests = {each.node: elicitation_of(each) for each in outcome.questions}
        forms = {path: request for path, request in requests.items() if request is not None}
        if len(forms) < len(requests) or not _can_elicit(call.request):
            return await self._tell(call, outcome.run_id)
        if not call.request.session.can_send_request:
            return types.InputRequiredResult(input_requests=dict(forms), request_state=outcome.run_id)
        for question in outcome.questions:
            params = forms[question.node].params
            assert isinstance(params, types.ElicitRequestFormParams)
            reply = await call.request.session.elicit_form(
                params.message, params.requested_schema, call.request.request_id
            )
            answer = read_elicited(question, reply)
            if answer is None:
                return await self._tell(call, outcome.run_id)
            await self._answer(call, outcome.run_id, answer)
        return None

    async def _answer(self, call: FlowToolCall, run_id: str, answer: PersonsAnswer) -> None:
        by = self._settings.by if call.caller is None else call.caller.name
        try:
            await self._service.answer(
                run_id, answer.question, answer.choice, answer.values, by, comment=answer.comment, caller=call.caller
            )
        except ApprovalError as error:
            raise InputError(f"{error}\nRun {run_id} waits on: answer it with answer_approval") from error

    # --- The server's own tools

    async def _tell(self, call: FlowToolCall, run_id: str) -> Result:
        """How the run stands, with the files of its outputs."""
        outcome = await self._service.outcome(run_id, call.caller)
        files = tuple(find_files(outcome.outputs))
        return result_of(outcome, await anyio.to_thread.run_sync(read_contents, files) if files else ())

    async def _tell_status(self, call: FlowToolCall) -> Result:
        return await self._tell(call, call.arguments["run_id"])

    async def _await_run(self, call: FlowToolCall) -> Result:
        patience = min(call.arguments.get("seconds", self._settings.patience), 600.0)
        return await self._follow(call, call.arguments["run_id"], patience, owns=False)

    async def _answer_approval(self, call: FlowToolCall) -> Result:
        if call.params.request_state is not None:
            return await self._go_on(call, owns=False)
        run_id, choice = call.arguments["run_id"], call.arguments.get("choice")
        outcome = await self._service.outcome(run_id, call.caller)
        if choice is None:
            if not outcome.questions:
                raise InputError(f"run '{run_id}' waits for no answer: it is {outcome.status}")
            if not _can_elicit(call.request):
                raise InputError("give `choice`: this client cannot ask its user")
            return await self._follow(call, run_id, self._settings.patience, owns=False)
        by = self._settings.by if call.caller is None else call.caller.name
        arguments = call.arguments
        await self._service.answer(
            run_id, arguments.get("question"), choice, arguments.get("form"), by, comment=arguments.get("comment", ""),
            caller=call.caller,
        )  # fmt: skip
        return await self._follow(call, run_id, self._settings.patience, owns=False)

    async def _list_runs(self, call: FlowToolCall) -> Result:
        arguments = call.arguments
        infos = await self._service.list_runs(
            call.caller,
            flow=arguments.get("flow", ""),
            status=arguments.get("status", ""),
            limit=arguments.get("limit", 20),
        )
        names = ("run_id", "flow", "status", "started", "finished")
        runs = [
            {**{name: getattr(each, name) for name in names}, **dates_of(each.status, each.started, each.finished)}
            for each in infos
        ]
        return _data_result({"runs": runs})

    async def _cancel_run(self, call: FlowToolCall) -> Result:
        await self._service.cancel(call.arguments["run_id"], call.caller)
        return await self._tell(call, call.arguments["run_id"])

    async def _validate(self, call: FlowToolCall) -> Result:
        flow = self._service.flow(call.arguments["flow"], call.caller)
        return _data_result(await anyio.to_thread.run_sync(validate_flow, flow))

    async def _plan(self, call: FlowToolCall) -> Result:
        flow = self._service.flow(call.arguments["flow"], call.caller)
        inputs = call.arguments.get("inputs", {})
        return _data_result(await anyio.to_thread.run_sync(plan_flow, flow, inputs, self._service.environ))

    async def _explain(self, call: FlowToolCall) -> Result:
        return _data_result(explain_code(call.arguments.get("code")))


class FlowToolCall:
    """One call of a tool."""

    def __init__(self, request: Request, params: types.CallToolRequestParams, caller: FlowCaller | None) -> None:
        self.request = request
        self.params = params
        self.caller = caller
        self.arguments: Mapping[str, Any] = params.arguments or {}
        self.done: set[str] = set()
        """Nodes of the flow that were told as done."""
        self.position = 0
        """Behind the last event of the run that was read."""

    def meta(self, name: str) -> str | None:
        """Returns one of our names in the call's `_meta`."""
        fields: Mapping[str, Any] = self.request.meta or {}
        value = fields.get(f"flowengine/{name}")
        if value is not None and not isinstance(value, str):
            raise InputError(f"_meta: 'flowengine/{name}' is a text")
        return value


def _check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    from flowengine.core import find_misfits  # The library is slow to load.

    schema = next(each.input_schema for each in CONTROL_TOOLS if each.name == name)
    misfits = [f"{each.path}: {each.message}" for each in find_misfits(schema, arguments)]
    if misfits:
        raise InputError("\n".join(misfits))


def _can_elicit(request: Request) -> bool:
    """Tells whether the client can show its user a form."""
    capabilities = request.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _data_result(data: Mapping[str, Any]) -> types.CallToolResult:
    return data_result(dumps(data, indent=1), data)
