"""Imports litellm, in one place, and sets what must be set before and after.

Importing it costs seconds, so that happens in a thread, once a process, and only when a model is
called or soon will be (`preload`). Settings of litellm that a user made in
the same process are left as they are.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from inspect import iscoroutinefunction
from typing import Any, Final

from flowengine.errors import ModelConfigError
from flowengine.models.litellm.event_loop import AsyncioHome

# --- The thread that imports
#
# A thread that the end of the process stops in the middle of an import keeps Python's import lock, and whatever imports
# something during finalization (a `__del__` of a library, say) waits for that lock for ever. So the import is not left
# to that: `stop` ends it before the next module it loads.


class ImportThread:
    """Runs a function that imports. As a finder it finds nothing; it is asked before each module."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._run = run
        self._stopping = False
        self._thread = threading.Thread(target=self._import, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the import up where it is under way, and wait until it has ended."""
        self._stopping = True
        self._thread.join(timeout=60)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if self._stopping and threading.current_thread() is self._thread:
            raise SystemExit  # no Exception: imported code that tries alternatives must not go on with one
        return None

    def _import(self) -> None:
        sys.meta_path.insert(0, self)
        try:
            with suppress(SystemExit):
                self._run()
        finally:
            sys.meta_path.remove(self)


_lock: Final = threading.Lock()
_import: Future[Any] | None = None
_thread: ImportThread | None = None
_ready: Any = None
_all_loaded: Final[Future[None]] = Future()

_OWN_WARNINGS: Final = (
    # It makes the coroutine that is to ask in a thread; where the call is cancelled meanwhile, nothing was sent.
    (r"coroutine '\w+\.(acompletion\w*|async_completion|async_streaming|aembedding)' was never awaited", r""),
    (r"", r"litellm(\.|$)"),
    (r".*using the `ReadOnly` qualifier", r"pydantic\._internal"),
    (r"(?s)Pydantic serializer warnings:.*\b(Message|Choices|StreamingChoices|ModelResponse|Usage)\b", r"pydantic"),
)
"""(message, module) of the warnings that litellm's own code gives rise to."""


def preload() -> None:
    """Start importing litellm in the background. Nothing happens where that was begun before."""
    _begin_import()


def litellm_ready() -> Any | None:
    """The module, or None while it is not imported with all that a first call needs."""
    return _ready if _all_loaded.done() else None


async def litellm_loaded() -> Any:
    """Load litellm, with all that the first call to most vendors would wait for; from any event loop."""

    async def wait() -> Any:
        litellm = await asyncio.shield(asyncio.wrap_future(_begin_import()))
        await asyncio.shield(asyncio.wrap_future(_all_loaded))
        return litellm

    ready = litellm_ready()
    if ready is not None:
        return ready
    silence_warnings()
    return await LITELLM_LOOP.call(wait)


async def wait_for_started_import() -> None:
    """Wait for an import that was begun; nothing is waited for, or loaded, where none was."""
    if _import is not None:
        await litellm_loaded()


def _begin_import() -> Future[Any]:
    global _import, _thread
    with _lock:
        if _import is None:
            _import = Future()
            _thread = ImportThread("import litellm", partial(_do_import, _import))
        return _import


def _do_import(future: Future[Any]) -> None:
    global _ready
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches prices from the network
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else it reads every .env it finds into os.environ
    silence_warnings()
    try:
        litellm: Any = import_module("litellm")
        import_module("litellm.main")
        litellm.suppress_debug_info = True  # else each failure prints an advertisement for its issue tracker
        _ready = litellm
        future.set_result(litellm)
        import_module("openai.resources")  # a second that the first call to most vendors would wait for
    except BaseException as error:  # in a thread of its own: the waiting tasks have to learn of it
        if future.done():
            return  # the program ends, or the openai package is not there: the first call will tell
        failure = ModelConfigError(f"litellm, through which models are called, cannot be imported: {error}")
        failure.__cause__ = error
        future.set_exception(failure)
    finally:
        _all_loaded.set_result(None)


def silence_warnings() -> None:
    """Let no warning of litellm's own code become an error in a program that treats warnings so.

    Filters are global and others reset them (pytest does between tests), so this is looked at
    before each call; it costs a comparison when they are in place.
    """
    newest = warnings.filters[0] if warnings.filters else None
    if newest is not None and newest[3] is not None and getattr(newest[3], "pattern", "") == _OWN_WARNINGS[-1][1]:
        return
    for message, module in _OWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message, module=module)


def mute_background_logging(litellm: Any) -> None:
    """Leave out litellm's log tasks for the call that the running task is about to make.

    They cost as much as our own share of a call, and they are not read unless the user registered
    callbacks or a cache with litellm; then all stays as it is.
    """
    if litellm.callbacks or litellm.success_callback or litellm._async_success_callback or litellm.cache is not None:
        return
    switch = _logging_switch()
    if switch is not None:
        switch.set(True)


@cache
def _logging_switch() -> ContextVar[bool] | None:
    """The context variable, where this version of litellm has it."""
    try:
        return import_module("litellm._internal_context").is_internal_call
    except (ImportError, AttributeError):
        return None


def _clients_of(loop: asyncio.AbstractEventLoop) -> list[Any]:
    """The HTTP clients that litellm keeps for calls on a loop; it keeps them no longer."""
    cache: Any = getattr(_ready, "in_memory_llm_clients_cache", None)
    entries: dict[str, Any] = getattr(cache, "cache_dict", {})
    mine = {key: client for key, client in list(entries.items()) if key.endswith(f"-{id(loop)}")}
    for key in mine:
        cache.delete_cache(key)
    # Round a session that the user gave to litellm there are clients that only the user may close.
    return [] if getattr(_ready, "aclient_session", None) is not None else list(mine.values())


async def _close_clients() -> None:
    for client in _clients_of(asyncio.get_running_loop()):
        closing = getattr(client, "aclose", None) or getattr(client, "close", None)
        if iscoroutinefunction(closing):
            with suppress(Exception):  # it is of no use any more, whatever it says
                await closing()


LITELLM_LOOP: Final = AsyncioHome("litellm", close=_close_clients, forget=_clients_of)
"""The loop in which every call of litellm runs: it keeps clients that belong to the loop of their first call."""


@atexit.register
def _at_exit() -> None:
    """The import first: the loop's thread may be waiting for a module that is being imported."""
    if _thread is not None:
        _thread.stop()
    LITELLM_LOOP.stop()
