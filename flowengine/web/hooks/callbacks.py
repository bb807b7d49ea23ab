"""Tells other programs, at addresses that they gave, when a run has ended or asks: signed as Standard Webhooks says,
tried again for as long as that says, and written down with each try, beside the run.

What is to be told is in the store before the run begins, so it is told although the server dies; several servers of
one store take turns. An address has to be allowed by the project (`allow_callbacks`), and what its host leads to is
judged as for `http` nodes, each time.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import time
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread

from flowengine.core import EMPTY, allowed_url, dumps, thaw
from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError, InputError, RunNotFoundError
from flowengine.journal import NEVER_BEGAN_AFTER
from flowengine.nodes import HttpRequest, HttpSender, Sender
from flowengine.runs import RunRecord
from flowengine.runtime import DrivenRun
from flowengine.web.api import to_run_state
from flowengine.web.hooks.signatures import read_secrets, sign_message
from flowengine.web.service import FlowService, RunOutcome, format_date
from visualize.viewer import whole

SECRET: Final = "FLOWENGINE_CALLBACK_SECRET"
"""The variable with the secret (`whsec_…`), or several with spaces between."""

_LOG: Final = logging.getLogger("flowengine.serving")
_KIND: Final = "serve.callbacks"
_OPEN: Final = "open"
_PAUSES: Final = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds until the next try, after each that failed; then it is given up."""
_LEASE: Final = 60.0
"""Seconds for which a run's messages are one server's."""
_SECONDS: Final = 20.0
"""For one try."""
_LOOK: Final = 2.0
"""Seconds between two looks for runs that ended elsewhere, and for tries that are due."""
_LONGEST_LOOK: Final = 30.0
"""The longest time between two looks for a run that has nothing to tell yet."""
_MAX_PARALLEL: Final = 8
"""Runs of which others are told at the same time."""
_MAX_URL: Final = 2_000


class _Message(NamedTuple):
    """One thing to tell of a run; its id is the same at each try and for each server."""

    id: str
    type: str
    data: Mapping[str, Any]
    is_last: bool = False


class CallbackSender:
    """Sends the call-backs of the runs of one store; `run` sends until it is cancelled."""

    def __init__(
        self,
        service: FlowService,
        allowed: Sequence[str],
        environ: Mapping[str, str],
        *,
        sender: Sender | None = None,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        """`allowed`: beginnings of addresses, as in `allow_callbacks`. Raises for a secret that is none."""
        secrets = environ.get(SECRET, "")
        self._secrets: Sequence[bytes] = read_secrets(secrets, standard=True) if secrets.strip() else ()
        self._service = service
        self._store: JournalStore = service.store
        self._allowed = tuple(allowed)
        self._sender: Sender = sender or HttpSender(self._allowed, environ)
        self._pauses = pauses
        self._bell = anyio.Event()
        self._expected: set[str] = set()
        """Runs of which somebody is to be told, as they were last looked for, and those that have begun here since."""
        self._quiet: dict[str, tuple[float, float]] = {}
        """Run that has nothing to tell yet → when it is looked at again, and the pause before that."""
        service.driver.tell(self._hear)

    @property
    def are_sent(self) -> bool:
        """Whether there is a secret to sign them with, and an address that may be told."""
        return bool(self._secrets and self._allowed)

    def check(self, url: str) -> None:
        """Raise `InputError` for an address that is not told anything."""
        if not self._secrets:
            raise InputError(f"this server sends no callbacks: its environment has no {SECRET}")
        if len(url) > _MAX_URL or not url.isascii() or not url.isprintable():
            raise InputError("the address of a call-back is at most 2,000 printable characters")
        if allowed_url(url, self._allowed) is None:
            raise InputError("the address of the call-back is not allowed: list its beginning in `allow_callbacks`")

    @asynccontextmanager
    async def expecting(self, url: str, run_id: str) -> AsyncGenerator[None]:
        """The run begins inside: that address is told of it from then on."""
        await anyio.to_thread.run_sync(self._expect, run_id, url)
        self._expected.add(run_id)
        try:
            yield
        except BaseException:
            with anyio.CancelScope(shield=True):
                try:
                    await self._service.outcome(run_id)  # Another server may have begun the run of the same key.
                except RunNotFoundError:
                    await anyio.to_thread.run_sync(self._forget, run_id)
            raise

    def _expect(self, run_id: str, url: str) -> None:
        def expect(record: Mapping[str, Any] | None) -> Mapping[str, Any]:
            return {"url": url, "messages": {}, **(record or EMPTY), "expected": time()}

        self._store.revise(_KIND, run_id, expect)
        self._revise_open(run_id, 0.0)

    def _forget(self, run_id: str) -> None:
        self._store.revise(_KIND, run_id, lambda record: None)
        self._revise_open(run_id, None)

    def record(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """Returns the callbacks of a run, each with its attempts."""
        state = self._store.recall(_KIND, run_id)
        messages: Mapping[str, Any] = {} if state is None else thaw(state)["messages"]
        return [{"id": message_id, **each} for message_id, each in messages.items()]

    async def run(self) -> None:
        """Send what is due, whenever a run of this process ends and every few seconds."""
        is_away = False
        while True:
            self._bell = anyio.Event()
            try:
                await self._send_due()
                is_away = False
            except FlowEngineError as error:  # A store that is away for a while, which is told once.
                if not is_away:
                    _LOG.error("call-backs: %s", error)
                is_away = True
            with anyio.move_on_after(_LOOK):
                await self._bell.wait()

    def _hear(self, driven: DrivenRun) -> None:
        """A run has stopped here: it may have something to tell. Most have not, and nothing is looked for."""
        self._quiet.pop(driven.run_id, None)
        if driven.run_id in self._expected:
            self._bell.set()

    async def _send_due(self) -> None:
        before = {*self._expected}
        due_times: Mapping[str, float] = await anyio.to_thread.run_sync(self._store.recall, _KIND, _OPEN) or {}
        now, limiter = time(), anyio.CapacityLimiter(_MAX_PARALLEL)
        self._expected = {*due_times, *(self._expected - before)}
        self._quiet = {run_id: each for run_id, each in self._quiet.items() if run_id in due_times}
        async with anyio.create_task_group() as tasks:
            for run_id, due in due_times.items():
                if not _is_leased(due, now) and self._quiet.get(run_id, (0.0, 0.0))[0] <= now:
                    tasks.start_soon(self._tell_logged, run_id, limiter)

    async def _tell_logged(self, run_id: str, limiter: anyio.CapacityLimiter) -> None:
        try:
            async with limiter:
                await self._tell(run_id)
        except Exception as error:
            _LOG.error("call-back of run %s: %s", run_id, type(error).__name__)

    async def _tell(self, run_id: str) -> None:
        """Tell what is due of a run, unless another server does."""
        try:
            record = await self._service.record(run_id)
        except RunNotFoundError:  # It is about to begin, or its server died just then, or it was removed.
            entry = await anyio.to_thread.run_sync(self._store.recall, _KIND, run_id)
            if (entry or EMPTY).get("expected", 0.0) < time() - NEVER_BEGAN_AFTER:
                await anyio.to_thread.run_sync(self._forget, run_id)
            self._look_later(run_id)
            return
        entry = await anyio.to_thread.run_sync(self._store.recall, _KIND, run_id)
        if entry is None:
            await anyio.to_thread.run_sync(self._revise_open, run_id, None)
            return
        if not self._pending(record, thaw(entry))[0]:
            self._look_later(run_id)
            return
        if not await anyio.to_thread.run_sync(self._lease, run_id):
            return
        state: dict[str, Any] = thaw(await anyio.to_thread.run_sync(self._store.recall, _KIND, run_id))
        pending, due = self._pending(record, state)  # As another server has left them.
        has_ended = any(each.is_last for each in self._messages(record))
        for message in pending:
            reply = await self._try(state["url"], message)
            entry_after = await anyio.to_thread.run_sync(partial(self._note, run_id, message, reply))
            if not _is_done(entry_after):
                due.append(entry_after["next"])
        next_due = min(due) if due else None if has_ended else 0.0
        await anyio.to_thread.run_sync(self._revise_open, run_id, next_due)

    def _look_later(self, run_id: str) -> None:
        """There is nothing to tell yet."""
        pause = min(2 * self._quiet.get(run_id, (0.0, _LOOK / 2))[1], _LONGEST_LOOK)
        self._quiet[run_id] = time() + pause, pause

    async def _try(self, url: str, message: _Message) -> str:
        """Send once; the answer's status, or what went wrong."""
        at = int(time())
        body = whole(dumps({"type": message.type, "timestamp": format_date(at), "data": message.data})).encode()
        headers = {
            "content-type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": str(at),
            "webhook-signature": sign_message(self._secrets, message.id, at, body),
        }
        try:
            with anyio.fail_after(_SECONDS):
                exchange = await self._sender.send(HttpRequest("POST", url, headers, content=body), _SECONDS)
        except TimeoutError:
            return f"no answer within {_SECONDS:g} s"
        except FlowEngineError as error:
            return str(error)[:300]
        return str(exchange.answer.status)

    def _pending(self, record: RunRecord, state: Mapping[str, Any]) -> tuple[Sequence[_Message], list[float]]:
        """Returns the messages to be sent now, and the due times of the others that no server has taken yet."""
        messages = state["messages"]
        tries = [
            (each, messages.get(each.id, {}).get("next", 0.0))
            for each in self._messages(record)
            if not _is_done(messages.get(each.id))
        ]
        now = time()
        return [each for each, at in tries if at <= now], [at for _, at in tries if at > now]

    def _messages(self, record: RunRecord) -> Iterator[_Message]:
        """Yields the messages that a run has so far."""
        outcome = RunOutcome.of(record.events)
        body = to_run_state(outcome)
        for question in outcome.questions:
            place = hashlib.sha256(f"{question.node} {question.asked!r}".encode()).hexdigest()[:12]
            yield _Message(f"{outcome.run_id}.{place}", "run.question", body)
        if outcome.has_ended:
            yield _Message(f"{outcome.run_id}.{len(record.events)}", f"run.{outcome.status}", body, is_last=True)

    def _note(self, run_id: str, message: _Message, reply: str) -> Mapping[str, Any]:
        """Write a try down; what is known of the message then."""
        entry: dict[str, Any] = {}

        def change(record: Any) -> Any:
            nonlocal entry
            state: dict[str, Any] = thaw(record)
            entry = state["messages"].setdefault(message.id, {"type": message.type, "tries": [], "state": "open"})
            entry["tries"].append({"at": time(), "answer": reply})
            count = len(entry["tries"])
            if len(reply) == 3 and reply.startswith("2"):
                entry["state"] = "delivered"
            elif count > len(self._pauses):
                entry["state"] = "given up"
                _LOG.error("call-back of run %s is given up after %d tries: %s", run_id, count, reply)
            else:
                entry["next"] = time() + self._pauses[count - 1]
            return state

        self._store.revise(_KIND, run_id, change)
        return entry

    def _lease(self, run_id: str) -> bool:
        """Tells whether the run's messages are this server's for a while."""
        is_ours = False

        def change(record: Any) -> Any:
            nonlocal is_ours
            state: dict[str, float] = thaw(record) if record else {}
            is_ours = run_id in state and not _is_leased(state[run_id], time())
            return {**state, run_id: time() + _LEASE} if is_ours else state or None

        self._store.revise(_KIND, _OPEN, change)
        return is_ours

    def _revise_open(self, run_id: str, due: float | None) -> None:
        """Updates when the run is looked at again."""

        def change(record: Any) -> Any:
            state: dict[str, float] = thaw(record) if record else {}
            rest = {each: at for each, at in state.items() if each != run_id}
            return {**rest, run_id: due} if due is not None else rest or None

        self._store.revise(_KIND, _OPEN, change)


def _is_leased(due: float, now: float) -> bool:
    """Whether another server may be at the messages of a run; where the next try is later, it is none's: what is new is
    told before."""
    return now < due <= now + 2 * _LEASE


def _is_done(message: Mapping[str, Any] | None) -> bool:
    return message is not None and message["state"] != "open"
