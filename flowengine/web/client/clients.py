"""The clients: one for programs with an event loop, and one round it for all others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack, aclosing
from functools import wraps
from os import PathLike
from queue import SimpleQueue
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from flowengine.core import EMPTY
from flowengine.engine import RunInfo
from flowengine.web.client.called_runs import CalledRun, ClientError, RunProgress
from flowengine.web.client.server_backend import ServerBackend, pause_before

if TYPE_CHECKING:
    from flowengine.flow import Flow
    from flowengine.web.client.store_backend import StoreBackend

P = ParamSpec("P")
T = TypeVar("T")

_TRIES: Final = 5
"""How often a connection that broke is opened anew, while nothing is told."""


class AsyncClient:
    """Calls flows: `async with AsyncClient("http://127.0.0.1:8000", key="…") as client`."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        flows: Iterable[Flow | str | PathLike[str]] = (),
        by: str = "",
    ) -> None:
        """`base_url`: a server's address, or a PostgreSQL store's. `key`: what the server lets in.

        With a store: `flows` are those that can be started, as objects, files or folders, and `by` says who answers.
        """
        self._stack = AsyncExitStack()
        self._backend: ServerBackend | StoreBackend
        if base_url.startswith(("http://", "https://")):
            self._backend = ServerBackend(base_url, key)
        elif base_url.startswith(("postgresql://", "postgres://")):
            from flowengine.web.client.store_backend import StoreBackend  # Needs the extra `queue`.

            self._backend = StoreBackend(base_url, flows, by)
        else:
            scheme = base_url.partition("://")[0]
            raise ClientError(f"an address begins with http://, https:// or postgresql://, not with '{scheme:.20}'")

    async def __aenter__(self) -> AsyncClient:
        await self._stack.enter_async_context(self._backend.connect())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def start(
        self,
        flow: str,
        inputs: Mapping[str, Any] = EMPTY,
        *,
        key: str | None = None,
        session: str | None = None,
        labels: Mapping[str, str] = EMPTY,
    ) -> CalledRun:
        """Start a run and do not wait for it. `key`: a repeated start with it finds the run that there is.

        `session`: the conversation that the run belongs to. `labels`: short texts by which it is found again.
        """
        return await self._backend.start(flow, inputs, key or token_hex(16), session, labels)

    async def run(
        self,
        flow: str,
        inputs: Mapping[str, Any] = EMPTY,
        *,
        key: str | None = None,
        session: str | None = None,
        labels: Mapping[str, str] = EMPTY,
    ) -> CalledRun:
        """Start a run, and wait until it has ended or waits for a person."""
        started = await self.start(flow, inputs, key=key, session=session, labels=labels)
        return started if started.is_settled else await self.wait(started.run_id)

    async def get(self, run_id: str) -> CalledRun:
        """Returns the run's current state."""
        return await self._backend.get(run_id)

    async def wait(self, run_id: str, *, timeout: float | None = None) -> CalledRun:
        """Waits until the run ends or asks a person, and returns its state.

        `timeout`: seconds after which a `TimeoutError` says so; the run goes on, and can be waited for again.
        """
        with anyio.move_on_after(timeout):
            return await self._wait(run_id)
        raise TimeoutError(f"run {run_id} has neither ended nor asked anybody after {timeout} s; it goes on")

    async def _wait(self, run_id: str) -> CalledRun:
        attempt = most = 0
        while attempt < _TRIES:
            attempt, states = attempt + 1, 0
            try:
                async with aclosing(self.follow(run_id)) as progress:
                    async for each in progress:
                        if each.run is not None and each.run.is_settled:
                            return each.run
                        states += bool(each.state)
                        if each.text or states > most:  # It is new, and no repetition of the run's beginning.
                            attempt, most = 1, max(most, states)
            except ClientError as error:
                if error.status or attempt == _TRIES:
                    raise
            await anyio.sleep(pause_before(attempt + 1))
        return await self.get(run_id)

    async def follow(self, run_id: str) -> AsyncGenerator[RunProgress]:
        """Yields the run's progress from its beginning until it ends or waits, and last its state."""
        async with aclosing(self._backend.follow(run_id)) as progress:
            async for each in progress:
                yield each

    async def answer(
        self, run_id: str, choice: str, *, question: str | None = None, form: Any = None, comment: str = ""
    ) -> None:
        """Answer what a run waits for, which then goes on. `question` may be left out where it waits with one."""
        await self._backend.answer(run_id, question, choice, form, comment)

    async def cancel(self, run_id: str) -> None:
        await self._backend.cancel(run_id)

    async def list_runs(
        self, *, flow: str = "", status: str = "", labels: Mapping[str, str] = EMPTY
    ) -> Sequence[RunInfo]:
        """The runs that are asked for, the newest first."""
        return await self._backend.list_runs(flow, status, labels)

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._backend}>"


def _sync(method: Callable[Concatenate[AsyncClient, P], Awaitable[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method for programs without an event loop."""

    @wraps(method)
    def call(self: Client, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        work = self._do  # pyright: ignore[reportPrivateUsage] - it makes the methods of this module's own class
        return work(lambda client: method(client, *arguments, **keywords))

    return call


class Client:
    """`AsyncClient` for programs without an event loop: `with Client("http://127.0.0.1:8000", key="…") as client`."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        flows: Iterable[Flow | str | PathLike[str]] = (),
        by: str = "",
    ) -> None:
        """Takes the arguments of `AsyncClient`."""
        self._client = AsyncClient(base_url, key=key, flows=flows, by=by)
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._following = set[Future[None]]()
        """Calls of `follow` under way: the client's end would wait for them."""

    def __enter__(self) -> Client:
        with ExitStack() as opening:  # Closed again where the client cannot be opened.
            portal = opening.enter_context(start_blocking_portal())
            opening.enter_context(portal.wrap_async_context_manager(self._client))
            self._stack = opening.pop_all()
        self._portal = portal
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = None
        for each in list(self._following):
            each.cancel()
        self._stack.__exit__(kind, error, trace)

    start = _sync(AsyncClient.start)
    run = _sync(AsyncClient.run)
    get = _sync(AsyncClient.get)
    wait = _sync(AsyncClient.wait)
    answer = _sync(AsyncClient.answer)
    cancel = _sync(AsyncClient.cancel)
    list_runs = _sync(AsyncClient.list_runs)

    def follow(self, run_id: str) -> Generator[RunProgress]:
        """Yields like `AsyncClient.follow`."""
        queue = SimpleQueue[RunProgress | Exception | None]()

        async def pump() -> None:
            try:
                async with aclosing(self._client.follow(run_id)) as pieces:
                    async for piece in pieces:
                        queue.put(piece)
                queue.put(None)
            except Exception as error:
                queue.put(error)
            except BaseException:
                queue.put(ClientError(f"the client was closed before run {run_id} was followed to its end"))
                raise

        pumping = self._open_portal().start_task_soon(pump)
        self._following.add(pumping)
        try:
            while (each := queue.get()) is not None:
                if isinstance(each, Exception):
                    raise each
                yield each
        finally:
            self._following.discard(pumping)
            pumping.cancel()

    def _do(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        return self._open_portal().call(work, self._client)

    def _open_portal(self) -> BlockingPortal:
        if self._portal is None:
            raise ClientError("open the client first: `with Client(…) as client`")
        return self._portal

    def __repr__(self) -> str:
        return f"<{repr(self._client)[1:-1].removeprefix('Async')}>"
