"""Streams runs to pages: POST /ag-ui/FLOW speaks AG-UI, POST /ai-sdk/FLOW the UI message stream of the AI SDK.

The thread, or the chat, is the session. A page that goes away cancels the run, unless it gave an `Idempotency-Key`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from flowengine.core import EMPTY, is_map, to_json_value
from flowengine.errors import DefinitionError, InputError, did_you_mean
from flowengine.journal import times_asked
from flowengine.runs import Question
from flowengine.web.api import (
    MountedRoutes,
    ServingParts,
    caller_of,
    event_stream,
    hide_store,
    make_routes,
    run_key_of,
    stopping_unheard,
)
from flowengine.web.gate import problem_of, read_json
from flowengine.web.openai import (
    ChatRun,
    Conversation,
    OpenAiError,
    begin_chat,
    follow_parts,
    give_answer,
    read_content,
)
from flowengine.web.service import (
    FlowCaller,
    Part,
    PersonsAnswer,
    RunEnded,
    TextBegan,
    TextDelta,
    TextEnded,
    TextOutput,
    TokenCounts,
    find_text_output,
    format_questions,
)
from flowengine.web.streams.ag_ui import AG_UI_INPUT, AgUiEncoder, read_resume_answers
from flowengine.web.streams.ai_sdk import AI_SDK_HEADERS, AI_SDK_INPUT, AiSdkEncoder, read_tool_answers


def make_stream_routes(parts: ServingParts) -> MountedRoutes:
    routes = _StreamRoutes(parts)
    table = [("POST", "/ag-ui/{flow}", routes.run_agent), ("POST", "/ai-sdk/{flow}", routes.answer_chat)]
    return MountedRoutes(make_routes(table))


class _StreamRoutes:
    """The handlers."""

    def __init__(self, parts: ServingParts) -> None:
        self._service = parts.service
        self._max_body = parts.max_body

    async def run_agent(self, request: Request) -> Response:
        """A flow as the events of AG-UI."""
        body = await read_json(request, AG_UI_INPUT, self._max_body)
        resume: Sequence[Mapping[str, Any]] = body.get("resume") or ()
        answers = read_resume_answers(resume)
        props: Mapping[str, Any] = body.get("forwardedProps") or EMPTY
        inputs: Mapping[str, Any] = props.get("inputs") or EMPTY
        if resume:
            chat = await self._go_on(request, {str(each["interruptId"]).partition("/")[0] for each in resume}, answers)
        else:
            messages = [_read_message(each, each.get("content")) for each in body["messages"]]
            chat = await self._begin(request, messages, body["threadId"], inputs)
        return self._stream(request, chat, AgUiEncoder(body["threadId"], body["runId"], chat.run_id))

    async def answer_chat(self, request: Request) -> Response:
        """A flow as the stream of the AI SDK's chat."""
        body = await read_json(request, AI_SDK_INPUT, self._max_body)
        answers = read_tool_answers(body["messages"])
        if answers:
            chat = await self._go_on(request, {run_id for run_id, _ in answers}, answers)
        else:
            messages = [_read_message(each, _text_parts(each)) for each in body["messages"]]
            chat = await self._begin(request, messages, body["id"], body.get("inputs") or EMPTY)
        return self._stream(request, chat, AiSdkEncoder(chat.run_id), AI_SDK_HEADERS, b"data: [DONE]\n\n")

    async def _begin(
        self, request: Request, messages: Sequence[Mapping[str, str]], session: str, inputs: Mapping[str, Any]
    ) -> ChatRun:
        """A run for the newest message; where there is no message, for the inputs alone."""
        flow, caller, run_key = request.path_params["flow"], caller_of(request), run_key_of(request)
        turns = [each for each in messages if each["role"] in ("user", "assistant")]
        if turns and turns[-1]["role"] == "user":
            conversation = Conversation(turns, session)
            return await begin_chat(self._service, flow, conversation, caller, run_key=run_key, inputs=inputs)
        if turns or not inputs:
            raise InputError("the last message is not a user's, and answers no question")
        started = await self._service.start(flow, inputs, run_key=run_key, caller=caller, session=session, tokens=True)
        return ChatRun(started.run_id, 0, started.is_new)

    async def _go_on(
        self, request: Request, run_ids: set[str], answers: Sequence[tuple[str, PersonsAnswer]]
    ) -> ChatRun:
        """Answer what is open still; what was answered before is only told again."""
        flow, caller = request.path_params["flow"], caller_of(request)
        if len(run_ids) != 1:
            raise InputError("the answers are to questions of one run")
        [run_id] = run_ids
        record = await self._service.record(run_id, caller)
        if record.flow != flow:
            raise InputError(f"run '{run_id}' is of the flow '{record.flow}', not of '{flow:.80}'")
        position, times = len(record.events), times_asked(record.events)
        names = [each.question for _, each in answers]
        for name in names:
            if name not in times:
                raise InputError(f"run '{run_id}' has no question '{name:.80}'{did_you_mean(name[:80], times)}")
        if len(set(names)) < len(names):
            raise InputError("a question has one answer")
        waiting = {each.node for each in record.questions}
        replies = [each for _, each in answers if each.question in waiting]
        for each in replies:
            await give_answer(self._service, run_id, each, caller)
        if replies:
            return ChatRun(run_id, position, False)
        return ChatRun(run_id, position - 1, False)  # Its last event tells how it stands.

    def _stream(
        self,
        request: Request,
        chat: ChatRun,
        encoder: AgUiEncoder | AiSdkEncoder,
        headers: Mapping[str, str] | None = None,
        last: bytes = b"",
    ) -> Response:
        reply_headers = {"flowengine-run": chat.run_id, **(headers or {})}
        is_kept = run_key_of(request) is not None or not chat.is_new
        return event_stream(self._frames(request, chat, encoder, last, is_kept), reply_headers)

    async def _frames(
        self, request: Request, chat: ChatRun, encoder: AgUiEncoder | AiSdkEncoder, last: bytes, is_kept: bool
    ) -> AsyncGenerator[bytes]:
        caller = caller_of(request)
        try:
            async with (
                stopping_unheard(self._service, chat.run_id, caller, is_kept=is_kept),
                aclosing(self._parts(request.path_params["flow"], chat, caller)) as parts,
            ):
                for event in encoder.begin():
                    yield _frame(event)
                async for part, questions in parts:
                    for event in encoder.encode(part, questions):
                        yield _frame(event)
        except Exception as error:
            problem = problem_of(hide_store(error))
            for event in encoder.fail(problem.detail or problem.title):
                yield _frame(event)
        if last:
            yield last

    async def _parts(
        self, flow: str, chat: ChatRun, caller: FlowCaller | None
    ) -> AsyncGenerator[tuple[Part, Sequence[Question]]]:
        """Yields the run's parts, and at the end its questions."""
        if chat.unclear:
            text = format_questions(chat.run_id, chat.unclear, unclear=True)
            for part in (TextBegan("unclear", "", True), TextDelta("unclear", text), TextEnded("unclear")):
                yield part, ()
            yield RunEnded("waiting", {}, None, TokenCounts()), chat.unclear
            return
        text_output = self._find_text_output(flow, caller)
        async with aclosing(follow_parts(self._service, chat, text_output, caller)) as parts:
            async for part in parts:
                questions: Sequence[Question] = ()
                if isinstance(part, RunEnded) and part.status == "waiting":
                    questions = (await self._service.outcome(chat.run_id, caller)).questions
                yield part, questions

    def _find_text_output(self, flow: str, caller: FlowCaller | None) -> TextOutput | None:
        """Returns which output holds the answer's text; None if outputs are returned as they are."""
        try:
            return find_text_output(self._service.flow(flow, caller))
        except DefinitionError:
            return None


def _read_message(message: Mapping[str, Any], content: Any) -> Mapping[str, str]:
    """A message as `{role, content}`; of what is no person's and no assistant's only the role."""
    role = str(message["role"])
    if role not in ("user", "assistant"):
        return {"role": role, "content": ""}
    if role == "assistant":
        return {"role": role, "content": content if isinstance(content, str) else ""}
    try:
        return {"role": role, "content": read_content(content, "messages")}
    except OpenAiError as error:
        raise InputError(str(error)) from error


def _text_parts(message: Mapping[str, Any]) -> str | list[Any]:
    """Returns the text of a UI message: all parts of a person's, the texts of an assistant's."""
    parts: list[Any] = message["parts"]
    if message["role"] == "user":
        return parts
    return "".join(str(each.get("text", "")) for each in parts if is_map(each) and each.get("type") == "text")


def _frame(event: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(to_json_value(event)).encode() + b"\n\n"
