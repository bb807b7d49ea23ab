"""Serves flows and their runs: `POST /flows/NAME` and what follows from it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from flowengine.flow import Flow
from flowengine.journal import parse_label_filter, parse_labels
from flowengine.web.api.api_operations import make_operation_routes
from flowengine.web.api.chat_requests import caller_of, event_stream, read_header_text, run_key_of, session_name_of
from flowengine.web.api.flow_documents import RUN_OPERATIONS, describe_flows
from flowengine.web.api.http_answers import (
    accepted_response,
    encode_message,
    encode_progress,
    error_response,
    json_response,
    make_routes,
    outcome_response,
    to_run_state,
)
from flowengine.web.api.schemas import ANSWER
from flowengine.web.api.serving_parts import MountedRoutes, ServingParts
from flowengine.web.api.sse import read_position
from flowengine.web.gate import ProblemError, read_json, read_json_object
from flowengine.web.service import FlowCaller, RunOutcome, StartedRun

_WAIT: Final = re.compile(r"wait=(\d{1,5})")


def make_flow_routes(parts: ServingParts) -> MountedRoutes:
    routes = _FlowRoutes(parts)
    table = [
        ("GET", "/flows", routes.list_flows),
        ("GET", "/flows/{flow}", routes.describe_flow),
        ("POST", "/flows/{flow}", routes.call_flow),
        ("GET", "/flows/{flow}/openapi.json", routes.describe_flow),
        ("GET", "/openapi.json", routes.describe_all),
    ]
    handlers = {
        "listRuns": routes.list_runs,
        "getRun": routes.get_run,
        "followRun": routes.follow_run,
        "answerRun": routes.answer_run,
        "resumeRun": routes.resume_run,
        "cancelRun": routes.cancel_run,
    }
    runs = make_operation_routes(RUN_OPERATIONS, handlers, error_response)
    return MountedRoutes([*make_routes(table), *runs])


class _Wish(NamedTuple):
    """How the caller wants the answer."""

    is_async: bool
    seconds: float | None
    """The seconds for which it waits before it takes a 202."""
    is_stream: bool

    @classmethod
    def of(cls, request: Request) -> _Wish:
        """
        >>> def asked(**headers):
        ...     raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        ...     return _Wish.of(Request({"type": "http", "headers": raw}))
        >>> asked(prefer="respond-async").is_async, asked(prefer="wait=10").seconds
        (True, 10.0)
        """
        prefer = ",".join(request.headers.getlist("prefer")).lower()
        preferences = [each.partition(";")[0].strip() for each in prefer.split(",")]
        waits = [float(match[1]) for each in preferences if (match := _WAIT.fullmatch(each))]
        accept = request.headers.get("accept", "").lower()
        return cls("respond-async" in preferences, waits[0] if waits else None, "text/event-stream" in accept)


class _FlowRoutes:
    """The handlers."""

    def __init__(self, parts: ServingParts) -> None:
        self._service = parts.service
        self._parts = parts

    async def call_flow(self, request: Request) -> Response:
        """Start the flow, or find the run of the key; and answer as is wished."""
        wish, caller, flow = _Wish.of(request), caller_of(request), request.path_params["flow"]
        self._service.flow(flow, caller)  # Who asks for another need not send its inputs.
        inputs = await read_json_object(request, self._parts.max_body)
        url = request.headers.get("flowengine-callback")
        callbacks = self._parts.callbacks
        if url is not None:
            callbacks.check(url)
        run = await self._service.start(
            flow,
            inputs,
            run_key=run_key_of(request),
            caller=caller,
            labels=parse_labels(map(read_header_text, request.headers.getlist("flowengine-label"))),
            session=session_name_of(request),
            tokens=wish.is_stream,
            around=None if url is None else partial(callbacks.expecting, url),
        )
        headers = _headers_of(run, wish)
        root = _root_of(request)
        if wish.is_stream:
            return event_stream(self._messages(run.run_id, caller, root), headers, tells_retry=True)
        outcome = run.outcome
        waits = not wish.is_async or wish.seconds is not None  # With both, it is 202 after so many seconds (RFC 7240).
        if outcome is None and waits:
            with nullcontext() if wish.seconds is None else anyio.move_on_after(wish.seconds):
                outcome = await self._service.wait(run.run_id, caller)
        if outcome is None or not waits:
            return accepted_response(outcome or await self._service.outcome(run.run_id, caller), root, headers)
        return outcome_response(outcome, root, headers)

    async def list_flows(self, request: Request) -> Response:
        """The flows of the key: name and description."""
        names = self._service.names(caller_of(request))
        flows = [{"name": name, "description": self._service.flows[name].description} for name in names]
        return json_response({"flows": flows})

    async def describe_flow(self, request: Request) -> Response:
        """OpenAPI of one flow, made of its inputs and outputs."""
        flow = self._service.flow(request.path_params["flow"], caller_of(request))
        return self._describe([flow], request)

    async def describe_all(self, request: Request) -> Response:
        """OpenAPI of all flows of the key."""
        caller = caller_of(request)
        flows = [self._service.flows[name] for name in self._service.names(caller)]
        return self._describe(flows, request)

    def _describe(self, flows: Sequence[Flow], request: Request) -> Response:
        needs_key, takes_callbacks = caller_of(request) is not None, self._parts.callbacks.are_sent
        document = describe_flows(flows, _root_of(request), needs_key=needs_key, takes_callbacks=takes_callbacks)
        return json_response(document)

    async def list_runs(self, request: Request) -> Response:
        query = request.query_params
        labels = parse_label_filter(query.getlist("label"))
        if labels is None:
            return json_response({"runs": []})
        infos = await self._service.list_runs(
            caller_of(request), flow=query.get("flow", ""), status=query.get("status", ""), labels=labels
        )
        return json_response({"runs": [each._asdict() | {"path": None} for each in infos]})

    async def get_run(self, request: Request) -> Response:
        record = await self._service.record(request.path_params["run_id"], caller_of(request))
        state = to_run_state(RunOutcome.of(record.events), _root_of(request))
        usage = {
            "model_calls": record.usage.calls, "tokens": record.usage.tokens, "cost_usd": record.usage.cost_usd
        }  # fmt: skip
        nodes = {path: {"status": node.status, "error": node.error} for path, node in record.nodes.items()}
        state["callbacks"] = await anyio.to_thread.run_sync(self._parts.callbacks.record, record.run_id)
        return json_response({**state, "nodes": nodes, "usage": usage, "labels": record.labels})

    async def follow_run(self, request: Request) -> Response:
        """The run's events; where the client knows how it stands, those from then on, and 204 where none will come."""
        run_id, caller, after = request.path_params["run_id"], caller_of(request), read_position(request)
        events = (await self._service.record(run_id, caller)).events
        if after > len(events):
            raise ProblemError(404, "No such position", f"run '{run_id}' has fewer than {after} events")
        is_known = after == len(events)
        if is_known and RunOutcome.of(events).has_ended:
            return Response(status_code=204)
        messages = self._messages(run_id, caller, _root_of(request), after, stay=is_known)
        return event_stream(messages, {}, tells_retry=True)

    async def answer_run(self, request: Request) -> Response:
        body, caller = await read_json(request, ANSWER, self._parts.max_body), caller_of(request)
        run_id: str = request.path_params["run_id"]
        outcome = await self._service.answer(
            run_id,
            body.get("node"),
            body["choice"],
            body.get("form"),
            "" if caller is None else caller.name,
            comment=body.get("comment", ""),
            caller=caller,
        )
        return json_response(
            {"run_id": run_id, "node": outcome.node}, 202, {"Location": f"{_root_of(request)}/runs/{run_id}"}
        )

    async def cancel_run(self, request: Request) -> Response:
        run_id, caller = request.path_params["run_id"], caller_of(request)
        await self._service.cancel(run_id, caller)
        return json_response(to_run_state(await self._service.outcome(run_id, caller), _root_of(request)))

    async def resume_run(self, request: Request) -> Response:
        run_id, caller = request.path_params["run_id"], caller_of(request)
        await self._service.resume(run_id, caller=caller)
        return accepted_response(await self._service.outcome(run_id, caller), _root_of(request), {})

    async def _messages(
        self, run_id: str, caller: FlowCaller | None, root: str, after: int = 0, *, stay: bool = False
    ) -> AsyncGenerator[bytes]:
        """Progress, and at the end the result, the question, or the error; `stay`: also beyond a question."""
        yield encode_message("run", {"run_id": run_id, "links": {"self": f"{root}/runs/{run_id}"}})
        try:
            async with aclosing(self._service.follow(run_id, after, stay=stay, caller=caller)) as followed:
                async for position, event in followed:
                    piece = encode_progress(position, event)
                    if piece is not None:
                        yield piece
            events = (await self._service.record(run_id, caller)).events
        except Exception as error:  # The head is out: what went wrong is one more event.
            yield encode_message("error", json.loads(bytes(error_response(error).body)))
            return
        outcome = RunOutcome.of(events)
        names = {"succeeded": "result", "partial": "result", "waiting": "question", "running": "interrupted"}
        yield encode_message(names.get(outcome.status, "error"), to_run_state(outcome, root), len(events) - 1)


def _headers_of(run: StartedRun, wish: _Wish) -> dict[str, str]:
    headers = {"Flowengine-Run": run.run_id}
    if not run.is_new:
        headers["Idempotent-Replayed"] = "true"
    if wish.is_async:
        headers["Preference-Applied"] = "respond-async"
    return headers


def _root_of(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root
