"""Calls flows by a store on PostgreSQL, without a server: runs go into its queue, and workers go on with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from os import PathLike
from typing import Any
from urllib.parse import urlsplit

from flowengine.core import to_json_value
from flowengine.engine import Event, RunInfo, TokenStreamed
from flowengine.flow import Flow
from flowengine.journal import open_store
from flowengine.web.client.called_runs import CalledRun, ClientError, RunProgress, RunQuestion
from flowengine.web.service import NODE_STATES, FlowService, RunOutcome


class StoreBackend:
    """One store; `flows` are those that can be started, `by` says who answers."""

    def __init__(self, address: str, flows: Iterable[Flow | str | PathLike[str]], by: str) -> None:
        self._address = address
        self._flows = list(flows)
        self._by = by
        self._flow_service: FlowService | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[object]:
        store = open_store(self._address, "full")
        try:
            async with FlowService(store, self._flows) as self._flow_service:
                yield self
        finally:
            self._flow_service = None
            store.close()

    @property
    def _service(self) -> FlowService:
        if self._flow_service is None:
            raise ClientError("open the client first: `async with AsyncClient(…) as client`")
        return self._flow_service

    async def start(
        self, flow: str, inputs: Mapping[str, Any], key: str, session: str | None, labels: Mapping[str, str]
    ) -> CalledRun:
        started = await self._service.start(flow, inputs, run_key=key, session=session, labels=labels)
        return await self.get(started.run_id)

    async def get(self, run_id: str) -> CalledRun:
        return _read_outcome(await self._service.outcome(run_id))

    async def follow(self, run_id: str) -> AsyncGenerator[RunProgress]:
        async with aclosing(self._service.follow(run_id)) as pieces:
            async for _, event in pieces:
                progress = _read_event(event)
                if progress is not None:
                    yield progress
        yield RunProgress(run=await self.get(run_id))

    async def answer(self, run_id: str, question: str | None, choice: str, form: Any, comment: str) -> None:
        await self._service.answer(run_id, question, choice, form, self._by, comment=comment)

    async def cancel(self, run_id: str) -> None:
        await self._service.cancel(run_id)

    async def list_runs(self, flow: str, status: str, labels: Mapping[str, str]) -> Sequence[RunInfo]:
        return await self._service.list_runs(flow=flow, status=status, labels=labels)

    def __str__(self) -> str:
        """The store, without its password."""
        parts = urlsplit(self._address)
        return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _read_event(event: Event | TokenStreamed) -> RunProgress | None:
    if isinstance(event, TokenStreamed):
        return RunProgress(event.node, text=event.text)
    state = NODE_STATES.get(type(event))
    return None if state is None else RunProgress(getattr(event, "node", ""), state)


def _read_outcome(outcome: RunOutcome) -> CalledRun:
    return CalledRun(
        outcome.run_id,
        outcome.flow,
        outcome.status,
        to_json_value(outcome.outputs),
        None if outcome.error is None else outcome.error.message,
        outcome.failed_node,
        [RunQuestion(each.node, each.message, each.choices, each.form, each.expires) for each in outcome.questions],
    )
