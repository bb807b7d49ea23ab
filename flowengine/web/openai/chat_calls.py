"""Turns a chat's message into a run, or into the answer to what a run of the same conversation waits for.

A conversation has a name, or is what its messages say it is. A named one is a session: what its runs remember is there
for the next. Of one without a name the messages that came before are given to the run as its conversation, so nothing
is mixed up where a person edits an earlier message, or where two conversations begin alike.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, Final, NamedTuple

import anyio.to_thread

from flowengine.core import EMPTY
from flowengine.engine import RunStarted
from flowengine.errors import ApprovalError, InputError
from flowengine.runs import Question
from flowengine.runtime import StoppingError
from flowengine.web.service import (
    ENDED,
    FlowCaller,
    FlowService,
    KeyReusedError,
    Part,
    PartReader,
    PersonsAnswer,
    RunEnded,
    TextOutput,
    find_message_input,
    may_ask,
    read_answer,
    start_of,
)

_LABEL: Final = "conversation"
"""The label of a run that tells the conversation that it was started in."""
_NAME_LENGTH: Final = 32
_ANSWER: Final = "serve.answer"
_PASSING: Final = "passing_session"
"""The setting of a run whose session ends with it: its messages will say again what was said."""


class Conversation(NamedTuple):
    """A message's conversation."""

    messages: Sequence[Mapping[str, str]]
    """`{role, content}`, the newest message, a person's, at the end."""
    session: str | None
    """Its name; None: it has none."""
    keeps_session: bool = False
    """Whether one without a name gets one, by which it goes on."""
    previous: str | None = None
    """The run that gave the answer before, where the message says so."""


class ChatRun(NamedTuple):
    """The run that answers a message."""

    run_id: str
    after: int
    """The position from which on the events are this message's."""
    is_new: bool
    unclear: Sequence[Question] = ()
    """Questions that stay open, since the message was no clear answer."""


def _inputs_of_chat(
    message: str | None, history: str | None, messages: Sequence[Mapping[str, str]], others: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The inputs of a run: the newest message, the conversation, and what the caller gave beside them."""
    own = {name for name in (message, history) if name is not None}
    twice = sorted(own & others.keys())
    if twice:
        raise InputError(f"input '{twice[0]}' is what the messages give: leave it out of `inputs`")
    inputs = dict(others)
    if message is not None:
        inputs[message] = messages[-1]["content"]
    if history is not None:
        inputs[history] = [dict(each) for each in messages]
    return inputs


async def begin_chat(
    service: FlowService,
    flow: str,
    conversation: Conversation,
    caller: FlowCaller | None,
    *,
    run_key: str | None = None,
    inputs: Mapping[str, Any] = EMPTY,
    settings: Mapping[str, Any] = EMPTY,
) -> ChatRun:
    """Answer with the message what a run of the conversation waits for; else start one with it.

    `settings`: kept with a run that is started.
    """
    message, history = find_message_input(service.flow(flow, caller))
    newest = conversation.messages[-1]["content"]
    given_before = None if run_key is None else _KeyedAnswer(service, flow, run_key, newest, caller)
    waiting = None if given_before is None else await given_before.find()
    if waiting is None and may_ask(service.flow(flow, caller)):
        waiting = await _find_waiting(service, flow, conversation, caller)
        if waiting is not None and given_before is not None:
            await given_before.keep(waiting)
    if waiting is not None:
        return await _answer_in_chat(service, waiting, newest, caller)
    values = _inputs_of_chat(message, history, conversation.messages, inputs)
    session = conversation.session
    history_before = _exchanges(conversation.messages[:-1]) if session is None else []
    if session is None and (history_before or conversation.keeps_session):
        session = f"chat-{token_hex(12) if run_key is None else _digest([run_key, *conversation.messages])}"
        await _seed_session(service, session, history_before, caller)
    labels = {_LABEL: _name_of(conversation.session, conversation.messages)}
    is_passing = conversation.session is None and not conversation.keeps_session
    started = await service.start(
        flow,
        values,
        run_key=run_key,
        caller=caller,
        labels=labels,
        session=session,
        tokens=True,
        settings={**settings, **({_PASSING: True} if is_passing and session is not None else EMPTY)},
    )
    return ChatRun(started.run_id, 0, started.is_new)


async def _answer_in_chat(service: FlowService, run_id: str, message: str, caller: FlowCaller | None) -> ChatRun:
    """Answer what the run waits for, where the message says clearly how."""
    record = await service.record(run_id, caller)
    position, questions = len(record.events), record.questions
    if not questions:  # It was answered before, by the same call: how the run stands is told again.
        return ChatRun(run_id, position - 1, False)
    answer = read_answer(questions, message)
    if answer is None:
        return ChatRun(run_id, position, False, questions)
    await give_answer(service, run_id, answer, caller)
    return ChatRun(run_id, position, False)


class _KeyedAnswer:
    """An answer whose call has a key: the same call again finds the run that it has answered, and starts none."""

    def __init__(self, service: FlowService, flow: str, run_key: str, message: str, caller: FlowCaller | None) -> None:
        self._store = service.store
        self._name = _digest([None if caller is None else caller.name, flow, run_key])
        self._message = _digest([message])

    async def find(self) -> str | None:
        """The run; `KeyReusedError` where the key was given with another message."""
        record: Any = await anyio.to_thread.run_sync(self._store.recall, _ANSWER, self._name)
        if record is not None and record["message"] != self._message:
            raise KeyReusedError("the key is another answer's")
        return None if record is None else record["run_id"]

    async def keep(self, run_id: str) -> None:
        """Before it is given, so that no crash parts the two: an answer that was not taken is given again."""
        entry = {"run_id": run_id, "message": self._message}
        await anyio.to_thread.run_sync(lambda: self._store.revise(_ANSWER, self._name, lambda record: entry))


async def give_answer(service: FlowService, run_id: str, answer: PersonsAnswer, caller: FlowCaller | None) -> None:
    by = "" if caller is None else caller.name
    try:
        await service.answer(
            run_id, answer.question, answer.choice, answer.values, by, comment=answer.comment, caller=caller
        )
    except ApprovalError as error:
        raise InputError(str(error)) from error


async def follow_parts(
    service: FlowService, chat: ChatRun, text: TextOutput | None, caller: FlowCaller | None
) -> AsyncGenerator[Part]:
    """Yields the run's parts after the message, until it ends or waits."""
    reader = PartReader(text)
    started = None if chat.after == 0 else start_of((await service.record(chat.run_id, caller)).events)
    async for _, event in service.follow(chat.run_id, chat.after, caller=caller):
        if isinstance(event, RunStarted):
            started = event
        for part in reader.read(event):
            yield part
            if isinstance(part, RunEnded):
                if part.status in ENDED and started is not None and started.settings.get(_PASSING):
                    await _revise_session(service, str(started.settings["session"]), lambda record: None)
                return
    raise StoppingError(f"the server stops: run '{chat.run_id}' goes on at its next start")


def session_of(started: RunStarted, caller: FlowCaller | None) -> str | None:
    """The name of a run's session as its caller gave it."""
    session: Any = started.settings.get("session")
    prefix = "" if caller is None else f"{caller.name}/"
    return session.removeprefix(prefix) if isinstance(session, str) and session.startswith(prefix) else None


async def _find_waiting(
    service: FlowService, flow: str, conversation: Conversation, caller: FlowCaller | None
) -> str | None:
    """The run of the conversation that waits, the newest one."""
    previous = conversation.previous
    if previous is not None:  # The first run of a conversation has no label of the name that it got itself.
        before = await service.outcome(previous, caller)
        if (before.flow, before.status) == (flow, "waiting"):
            return previous
    if conversation.session is not None:
        names = {_name_of(conversation.session, ())}
    else:  # The run was started by an earlier message: the conversation ended with it then.
        names = set(_earlier_names(conversation.messages))
    if not names:
        return None
    waiting = await service.list_runs(caller, flow=flow, status="waiting", limit=10_000)
    return next((each.run_id for each in waiting if each.labels.get(_LABEL) in names), None)


def _name_of(session: str | None, messages: Sequence[Mapping[str, str]]) -> str:
    """Returns the conversation's identity as a label."""
    return _digest(["session", session] if session is not None else ["messages", *map(dict, messages)])


def _earlier_names(messages: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The conversation's name after each earlier message of a person; each message is read once.

    >>> said = [{"role": "user", "content": each} for each in "abc"]
    >>> list(_earlier_names(said)) == [_name_of(None, said[:end]) for end in (1, 2)]
    True
    """
    text = hashlib.sha256(b'["messages"')
    for each in messages[:-1]:
        text.update(f", {json.dumps(dict(each), sort_keys=True)}".encode())
        if each["role"] == "user":
            whole = text.copy()
            whole.update(b"]")
            yield whole.hexdigest()[:_NAME_LENGTH]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()[:_NAME_LENGTH]


def _exchanges(messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, Any]]:
    """Returns the exchanges of a session: each answer with its message.

    >>> said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    >>> [(each["user_input"], each["result"]) for each in _exchanges(said)]
    [('Hi', 'Hello!')]
    """
    exchanges: list[Mapping[str, Any]] = []
    texts: list[str] = []
    for each in messages:
        if each["role"] == "user":
            texts.append(each["content"])
        elif each["role"] == "assistant" and texts:
            exchanges.append({"user_input": "\n".join(texts), "result": each["content"], "timestamp": ""})
            texts = []
    return exchanges


async def _seed_session(
    service: FlowService, session: str, exchanges: Sequence[Mapping[str, Any]], caller: FlowCaller | None
) -> None:
    """Let the session's next run begin with what was said."""
    if not exchanges:
        return
    name = session if caller is None else f"{caller.name}/{session}"
    entry = {"conversation": list(exchanges)}
    await _revise_session(service, name, lambda record: record or entry)


async def _revise_session(service: FlowService, name: str, change: Callable[[Any], Any]) -> None:
    await anyio.to_thread.run_sync(service.store.revise, "session", name, change)
