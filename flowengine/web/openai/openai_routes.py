"""Serves flows as models, in the form of OpenAI's API: /v1/models, /v1/chat/completions, /v1/responses.

A run that fails is answered with 422, which clients do not repeat by themselves: a repeated call would be paid twice. A
client that goes away cancels its run, unless it gave an `Idempotency-Key` by which the run is found again, or asked for
its answer in the background.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from time import time
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from flowengine.core import EMPTY
from flowengine.errors import ApprovalError, DefinitionError, FlowNotFoundError, JournalError, RunNotFoundError
from flowengine.flow import Flow
from flowengine.runtime import OverloadedError, StoppingError
from flowengine.web.api import (
    MountedRoutes,
    ServingParts,
    answer_while_heard,
    caller_of,
    event_stream,
    hide_store,
    json_response,
    make_routes,
    run_key_of,
    session_name_of,
    stopping_unheard,
)
from flowengine.web.gate import problem_of, read_json_object
from flowengine.web.openai.chat_calls import ChatRun, Conversation, begin_chat, follow_parts, session_of
from flowengine.web.openai.openai_bodies import (
    ChatAnswer,
    ChatCall,
    OpenAiError,
    ResponseSettings,
    chat_completion,
    error_body,
    model_object,
    read_chat_call,
    read_responses_call,
    response_object,
)
from flowengine.web.openai.openai_streams import ChatStream, ResponseStream
from flowengine.web.openai.stored_responses import keep_settings, read_settings, stored_response
from flowengine.web.service import (
    ENDED,
    AccessError,
    FlowCaller,
    FlowService,
    KeyReusedError,
    Part,
    QuotaError,
    RunEnded,
    StepBegan,
    StepEnded,
    TextBegan,
    TextDelta,
    TextOutput,
    TokenCounts,
    ToolBegan,
    find_file_input,
    find_text_output,
    format_questions,
    start_of,
)

AnswerPiece: TypeAlias = "tuple[str, str] | RunEnded"
"""A piece of `text` or `reasoning`, and at last the end."""

_NO_RETRY: Final[Mapping[str, str]] = {"x-should-retry": "false"}
_GONE: Final = Response(status_code=499)
"""It has no listener."""


def make_openai_routes(parts: ServingParts) -> MountedRoutes:
    routes = _OpenAiRoutes(parts)
    table = [
        ("GET", "/v1/models", routes.list_models),
        ("GET", "/v1/models/{model}", routes.get_model),
        ("POST", "/v1/chat/completions", routes.complete_chat),
        ("POST", "/v1/responses", routes.respond),
        ("GET", "/v1/responses/{response_id}", routes.get_response),
        ("POST", "/v1/responses/{response_id}/cancel", routes.cancel_response),
        *((method, "/v1/{rest:path}", _refuse) for method in ("GET", "POST", "PUT", "PATCH", "DELETE")),
    ]
    return MountedRoutes(make_routes(table, error_response), errors={"/v1/": error_response})


def error_response(exception: Exception) -> Response:
    """An error in OpenAI's form."""
    error = openai_error_of(exception)
    headers = {} if error.status in (429, 503) else _NO_RETRY
    if error.retry_after is not None:
        headers = {"retry-after": str(error.retry_after)}
    return json_response(error_body(error), error.status, headers)


def openai_error_of(error: Exception) -> OpenAiError:
    """Makes an OpenAI error of an exception; foreign exceptions are not described."""
    match error := hide_store(error):
        case OpenAiError():
            return error
        case FlowNotFoundError():
            return OpenAiError(str(error), 404, param="model", code="model_not_found")
        case RunNotFoundError():
            return OpenAiError("there is no such response of yours", 404, param="previous_response_id")
        case OverloadedError():
            return OpenAiError(str(error), 429, "rate_limit_error", code="overloaded", retry_after=error.retry_after)
        case QuotaError():
            wait = error.retry_after
            return OpenAiError(str(error), 429, "insufficient_quota", code="quota_exceeded", retry_after=wait)
        case StoppingError():
            return OpenAiError(str(error), 503, "server_error", code="stopping", retry_after=error.retry_after)
        case KeyReusedError():
            return OpenAiError(str(error), 422, code="idempotency_key_reused")
        case AccessError():
            return OpenAiError(str(error), 403, "permission_error", code="forbidden")
        case DefinitionError() | ApprovalError():
            return OpenAiError(str(error), 400)
        case _:
            problem = problem_of(error)
            kind = "invalid_request_error" if problem.status < 500 else "server_error"
            code = "invalid_api_key" if problem.status == 401 else None
            return OpenAiError(problem.detail or problem.title, problem.status, kind, code=code)


async def _refuse(request: Request) -> Response:
    raise OpenAiError(f"{request.method} {request.url.path:.100} is not offered", 404, code="unknown_url")


class _OpenAiRoutes:
    """The handlers."""

    def __init__(self, parts: ServingParts) -> None:
        self._service = parts.service
        self._max_body = parts.max_body
        self._created = int(time())

    async def list_models(self, request: Request) -> Response:
        """The flows of the key, as models."""
        flows = [self._service.flows[name] for name in self._service.names(caller_of(request))]
        data = [model_object(flow.name, self._created, flow.description) for flow in flows]
        return json_response({"object": "list", "data": data})

    async def get_model(self, request: Request) -> Response:
        """One flow, as a model."""
        flow = self._service.flow(request.path_params["model"], caller_of(request))
        return json_response(model_object(flow.name, self._created, flow.description))

    async def complete_chat(self, request: Request) -> Response:
        """A flow as a chat completion, whole or as a stream."""
        call = read_chat_call(await read_json_object(request, self._max_body), session_name_of(request))
        served_call = await self._ask(request, call, Conversation(call.messages, call.session))
        if call.stream:
            return event_stream(_stream(served_call, ChatStream(tells_usage=call.tells_usage)), served_call.headers)
        answer = await answer_while_heard(request, lambda: _gather(served_call))
        return _GONE if answer is None else json_response(chat_completion(answer), headers=served_call.headers)

    async def respond(self, request: Request) -> Response:
        """A flow as a response of the Responses API, whole or as a stream."""
        body = await read_json_object(request, self._max_body)
        call = read_responses_call(body, session_name_of(request))
        session = call.session if call.previous is None else await self._find_session(call.previous, caller_of(request))
        keeps = session is None and call.store
        previous = None if call.previous is None else _run_of(call.previous)
        conversation = Conversation(call.messages, session, keeps, previous)
        served_call = await self._ask(request, call, conversation, keep_settings(call))
        settings = ResponseSettings.of(call)
        if call.stream:
            return event_stream(_stream(served_call, ResponseStream(settings)), served_call.headers)
        if call.background and not served_call.chat.unclear:
            first_answer = response_object(_begin_answer(served_call), settings, status="in_progress")
            return json_response(first_answer, headers=served_call.headers)
        answer = await answer_while_heard(request, lambda: _gather(served_call))
        return (
            _GONE if answer is None else json_response(response_object(answer, settings), headers=served_call.headers)
        )

    async def get_response(self, request: Request) -> Response:
        """How a stored response stands: the way to one in the background."""
        if request.query_params.get("stream", "").lower() == "true":
            raise OpenAiError("a stored response is told as it stands: leave `stream` out", param="stream")
        return json_response(await self._read_response(request))

    async def cancel_response(self, request: Request) -> Response:
        """Cancels the response's run; one that has ended stays as it is."""
        caller, run_id = caller_of(request), _run_of(request.path_params["response_id"])
        body = await self._read_response(request)
        if body["metadata"]["flowengine_status"] not in ENDED:
            with suppress(JournalError):  # It has ended since, or is another process's to end.
                await self._service.cancel(run_id, caller)
            body = await self._read_response(request)
        return json_response(body)

    async def _read_response(self, request: Request) -> Mapping[str, Any]:
        caller = caller_of(request)
        record = await self._service.record(_run_of(request.path_params["response_id"]), caller)
        read_settings(record)
        return stored_response(record, find_text_output(self._service.flow(start_of(record.events).flow, caller)))

    async def _find_session(self, response_id: str, caller: FlowCaller | None) -> str:
        """The conversation of an earlier response."""
        record = await self._service.record(_run_of(response_id), caller)
        session = session_of(start_of(record.events), caller)
        if session is None:
            raise OpenAiError("that response was not stored", 404, param="previous_response_id")
        return session

    async def _ask(
        self, request: Request, call: ChatCall, conversation: Conversation, settings: Mapping[str, Any] = EMPTY
    ) -> _ServedCall:
        caller, run_key = caller_of(request), run_key_of(request)
        flow = self._service.flow(call.model, caller)
        text, inputs = find_text_output(flow), _add_files(flow, call)
        chat = await begin_chat(
            self._service, call.model, conversation, caller, run_key=run_key, inputs=inputs, settings=settings
        )
        is_kept = run_key is not None or not chat.is_new or call.background
        return _ServedCall(self._service, caller, call, text, chat, is_kept)


def _add_files(flow: Flow, call: ChatCall) -> Mapping[str, Any]:
    """The inputs beside the message, with its file among them."""
    if not call.has_files:
        return call.inputs
    name = find_file_input(flow)
    if name is None:
        raise OpenAiError(f"flow '{flow.name}' takes no files: its message is text", param="messages")
    if len(call.files) > 1:
        raise OpenAiError(f"flow '{flow.name}' takes one file, found {len(call.files)}", param="messages")
    if call.files and name in call.inputs:
        raise OpenAiError(f"input '{name}' is what the message gives: leave it out of `inputs`", param="inputs")
    return {**call.inputs, name: call.files[0]} if call.files else call.inputs


def _run_of(response_id: str) -> str:
    return response_id.removeprefix("resp_")


class _ServedCall(NamedTuple):
    """A message that a run answers."""

    service: FlowService
    caller: FlowCaller | None
    call: ChatCall
    text: TextOutput
    chat: ChatRun
    is_kept: bool

    @property
    def headers(self) -> Mapping[str, str]:
        return {"flowengine-run": self.chat.run_id}

    def stopping_unheard(self) -> AbstractAsyncContextManager[None]:
        return stopping_unheard(self.service, self.chat.run_id, self.caller, is_kept=self.is_kept)


async def _gather(served_call: _ServedCall) -> ChatAnswer:
    """The whole answer."""
    answer = _begin_answer(served_call)
    text: list[str] = []
    reasoning: list[str] = []
    async with served_call.stopping_unheard(), aclosing(_tell(served_call)) as pieces:
        async for each in pieces:
            if isinstance(each, RunEnded):
                answer = answer._replace(status=each.status, tokens=each.tokens)
            else:
                (text if each[0] == "text" else reasoning).append(each[1])
    return answer._replace(text="".join(text), reasoning="".join(reasoning))


async def _stream(served_call: _ServedCall, stream: ChatStream | ResponseStream) -> AsyncGenerator[bytes]:
    answer = _begin_answer(served_call)
    try:
        async with served_call.stopping_unheard(), aclosing(_tell(served_call)) as pieces:
            for frame in stream.begin(answer):
                yield frame
            async for each in pieces:
                if isinstance(each, RunEnded):
                    frames = stream.end(answer._replace(status=each.status, tokens=each.tokens))
                else:
                    frames = stream.add_text(each[1]) if each[0] == "text" else stream.add_reasoning(each[1])
                for frame in frames:
                    yield frame
    except Exception as error:
        for frame in stream.fail(openai_error_of(error), answer):
            yield frame


def _begin_answer(served_call: _ServedCall) -> ChatAnswer:
    return ChatAnswer(served_call.chat.run_id, served_call.call.model, int(time()), "running", "", "", TokenCounts())


async def _tell(served_call: _ServedCall) -> AsyncGenerator[AnswerPiece]:
    """Yields the run's answer piece by piece; raises if there is none."""
    chat, service = served_call.chat, served_call.service
    if chat.unclear:
        yield "text", format_questions(chat.run_id, chat.unclear, unclear=True)
        yield RunEnded("waiting", {}, None, TokenCounts())
        return
    answers: set[str] = set()
    async with aclosing(follow_parts(service, chat, served_call.text, served_call.caller)) as parts:
        async for part in parts:
            match part:
                case TextBegan(is_answer=True):
                    if answers:  # What was told before is given up: the answer is written anew.
                        yield "text", "\n\n"
                    answers.add(part.id)
                case TextDelta() if part.id in answers:
                    yield "text", part.text
                case RunEnded():
                    text = await _text_of_end(served_call, part)
                    if text:
                        yield "text", f"\n\n{text}" if answers else text
                    yield part
                case _:
                    progress = _describe_progress(part) if served_call.call.tells_progress else ""
                    if progress:
                        yield "reasoning", progress


async def _text_of_end(served_call: _ServedCall, end: RunEnded) -> str:
    """Returns the text for a run that ended without its answer; raises `OpenAiError` if there is none."""
    if end.status in ("succeeded", "partial"):
        return ""
    if end.status == "waiting":
        outcome = await served_call.service.outcome(served_call.chat.run_id, served_call.caller)
        return format_questions(outcome.run_id, outcome.questions)
    why = "" if end.error is None else f": {end.error.message}"
    message = f"run {served_call.chat.run_id} {end.status}{why}"
    raise OpenAiError(message, 422, "run_error", code=f"run_{end.status}")


def _describe_progress(part: Part) -> str:
    match part:
        case StepBegan():
            return f"{part.node} …\n"
        case StepEnded():
            return f"{part.node}: {part.status}\n"
        case ToolBegan():
            return f"{part.node} calls {part.name}\n"
        case _:
            return ""
