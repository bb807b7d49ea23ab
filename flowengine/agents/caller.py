"""Calls an agent's model while the agent runs: settings, gateway and model, put together.

It knows how a question becomes a request and when an answer counts as one. What is asked is the
agents' matter; retries of failed calls are the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, Final, NamedTuple

from anyio import to_thread

from flowengine.agents.model_environment import check_taken, open_model
from flowengine.agents.prompt import Subject, add_schema, check_files, open_files
from flowengine.agents.settings import CallSettings, arguments_of
from flowengine.agents.standalone import DirectGateway, run_sync
from flowengine.agents.structured import AnswerShape, StructuredAnswer, UnfitError, UnusableAnswerError, parse_answer
from flowengine.agents.tool_loop import ToolLoop, ToolLoopRequest, without_tools
from flowengine.agents.vendor_cache import explain_unused_cache, note_prompt
from flowengine.core import Context, Gateway, Messages, Notice
from flowengine.errors import DefinitionError, FlowEngineError, InputError, OutputError, RunError, refuse_other_kind
from flowengine.models import FINISH_REASONS, Message, Model, PromptCache, Request, default_options, supports_schema

_MOST_INLINE: Final = 500
"""Characters of an answer that is read at once: its values are too few to take long, whatever their schema."""


class Caller(NamedTuple):
    """Asks one model, with one agent's settings, through one gateway."""

    gateway: Gateway
    model: Model
    settings: CallSettings
    words: Messages
    loop: Callable[[], ToolLoop] = without_tools
    """Makes the tool loop of one generation."""

    def request(self, messages: Sequence[Message]) -> Request:
        settings = self.settings
        options, around = {**default_options(self.model), **settings.extra}, settings.surroundings
        is_planned = around.repeats or self.loop is not without_tools
        return Request(
            model=self.model.name,
            messages=tuple(messages),
            temperature=settings.temperature_beside(options),
            max_tokens=settings.max_tokens,
            timeout=settings.timeout,
            extra=options,
            cache=note_prompt(
                PromptCache.of(settings.prompt_cache, around.flow, settings.agent), is_planned=is_planned
            ),
        )

    async def answer(
        self,
        messages: Sequence[Message],
        shape: AnswerShape | None,
        purpose: str,
        loop: ToolLoop | None = None,
        first: ToolLoopRequest | None = None,
    ) -> StructuredAnswer:
        """Free text, or a value of the shape. `loop`: one that has begun already; `first`: the text that it gave."""
        loop = loop or self.loop()
        if shape is None:
            answer = await self._text(messages, purpose, loop, first)
        else:
            answer = await self._value(messages, shape, purpose, loop)
        if answer.reply.finish_reason and answer.reply.finish_reason not in FINISH_REASONS:
            await self.gateway.note(Notice(_UNKNOWN_REASON.format(reason=answer.reply.finish_reason)))
        if self.settings.prompt_cache is not None and (
            explanation := explain_unused_cache(answer.reply, self.model.name)
        ):
            await self.gateway.note(Notice(explanation))
        return answer

    async def _value(
        self, messages: Sequence[Message], shape: AnswerShape, purpose: str, loop: ToolLoop
    ) -> StructuredAnswer:
        """Ask until the answer fits the shape, at most `max_retries` times more than once.

        What is wrong with an answer is fed back as a user message after it; only the last bad answer is
        kept in the chat, and all results of tools. An empty answer is asked for again with the same request.
        Where the vendor does not enforce schemas, or not beside tools, the prompt carries the schema too.
        """
        first = replace(self.request(messages), response_schema=shape.schema, response_name=shape.name)
        if loop.is_open or not await supports_schema(self.model):
            first = replace(first, messages=add_schema(self.words, first.messages, shape.schema))
        current, calls, added = first, 0, ()
        while True:
            reply, more = await loop.ask(self.gateway, self.model, current, purpose=purpose)
            calls, added = calls + 1, (*added, *more)
            try:
                # A long answer is read beside the event loop: it is a stranger's, and so may the patterns be.
                is_long = len(reply.content) > _MOST_INLINE
                value = await to_thread.run_sync(parse_answer, reply, shape) if is_long else parse_answer(reply, shape)
                return StructuredAnswer(value, reply, calls, added)
            except UnfitError as error:
                problem = str(error)
            if calls > self.settings.max_retries:
                raise UnusableAnswerError(reply.content, problem, calls)
            current = first = replace(first, messages=(*first.messages, *more))
            if reply.content.strip():
                correction = Message("user", self.words("structured.correction", problem=problem))
                current = replace(first, messages=(*first.messages, Message("assistant", reply.content), correction))

    async def _text(
        self, messages: Sequence[Message], purpose: str, loop: ToolLoop, first: ToolLoopRequest | None
    ) -> StructuredAnswer:
        """An empty answer is asked for once more (not where `max_retries` is 0), then it is an `OutputError`. One that
        was cut off before it said anything would be again."""
        calls_left = min(2, 1 + self.settings.max_retries)
        request, added = self.request(messages), ()
        for call in range(1, calls_left + 1):
            reply, more = first or await loop.ask(self.gateway, self.model, request, purpose=purpose)
            first, added = None, (*added, *more)
            if reply.content.strip():
                return StructuredAnswer(reply.content, reply, call, added)
            if reply.finish_reason == "length":
                raise OutputError(
                    f"model '{self.model.name}' was cut off before it said anything: it reached its "
                    f"`max_tokens`, in which what it thinks counts too"
                )
            request = replace(request, messages=(*request.messages, *more))
        raise OutputError(f"model '{self.model.name}' gave an empty answer, in {calls_left} call(s)")


_UNKNOWN_REASON: Final = "the answer ended for the reason '{reason}', which is not known here: it may not be whole"


async def open_caller(
    settings: CallSettings,
    gateway: Gateway | None,
    words: Messages,
    loop: Callable[[], ToolLoop] = without_tools,
) -> Caller:
    """The caller for one run; tells the gateway when no model was chosen and a stand-in answers."""
    model, notice = open_model(settings)
    check_taken(
        model,
        settings,
        has_tools=loop is not without_tools,
        is_first=gateway is None or isinstance(gateway, DirectGateway),
    )
    gateway = DirectGateway() if gateway is None else gateway
    if notice:
        await gateway.note(Notice(notice))
    return Caller(gateway, model, settings, words, loop)


def context_of(context: Context | None) -> Context:
    """The context that an agent is run with; a new one where none is given."""
    refuse_other_kind(context, (Context, NoneType), "an agent is run with a Context", InputError)
    return Context() if context is None else context


def subject_of(context: Context, input_text: str | None, target: Any) -> Subject:
    """Returns the text to judge or route: the target if given, else the context's last generation, else the input.

    The last prompt goes with the last generation only.
    """
    state = context.shared_state
    last = state.get("_last_generation")
    prompt = state.get("_last_prompt")
    if target is not None:
        return Subject(target, prompt if target == last else None)
    if last is not None:
        return Subject(last, prompt)
    if input_text is not None:
        return Subject(input_text)
    raise RunError(
        "there is nothing to look at: the context holds no generation, and neither input nor target is given"
    )


class SubjectAgent:
    """Looks at one text, in one structured call: what judges and routers share."""

    name: str
    settings: CallSettings
    words: Messages

    async def run_async(
        self,
        input_text: str | None = None,
        context: Context | None = None,
        *,
        target: Any = None,
        gateway: Gateway | None = None,
        attach: Sequence[Any] = (),
        **options: Any,
    ) -> Context:
        """The context with the `evaluation_result` of a judge, the `routing_result` of a router; it is also its
        `result`.

        Looked at is the `target`, else the context's last generation with its prompt, else the input text. `options`
        are for this call's model call (`temperature`, `model`, what else the vendor takes). `attach`: files that the
        model sees with it: a `Path`, bytes, or a file of a run.
        """
        with naming(self.name):
            chat = context_of(context)
            subject = subject_of(chat, input_text, target)
            subject = subject._replace(attachments=await open_files(attach)) if attach else subject
        return chat.with_(**await self._look(subject, gateway, options))

    def run(
        self, input_text: str | None = None, context: Context | None = None, *, target: Any = None, **options: Any
    ) -> Context:
        """`run_async` for synchronous code, inside or outside a running event loop."""
        return run_sync(lambda: self.run_async(input_text, context, target=target, **options))

    async def _look(self, subject: Subject, gateway: Gateway | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what is new in the context."""
        raise NotImplementedError

    async def _open_caller(self, subject: Subject, gateway: Gateway | None, options: Mapping[str, Any]) -> Caller:
        caller = await open_caller(self.settings.with_options(options, arguments_of(type(self))), gateway, self.words)
        if subject.attachments:
            check_files(caller.model, subject.attachments)
        return caller


class naming:  # noqa: N801 - used as a statement, like `suppress`
    """Put the agent's name before the message of every error that passes, whatever its class and attributes."""

    __slots__ = ("_agent",)

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def __enter__(self) -> None:
        """Nothing to do before an error comes."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RunError | DefinitionError):
            _prefix_error(error, f"agent '{self._agent}': ")


def _prefix_error(error: FlowEngineError, prefix: str) -> None:
    # In place: a copy would have to know every subclass's constructor, and would lose the traceback.
    message = str(error)
    if not message.startswith("agent '"):
        error.args = (prefix + message, *error.args[1:])
