"""Notices when an event loop is held, and tells which code held it.

A loop that is held answers nobody: no other run goes on, no request is read, no signal is heard. The loop has a call of
its own to make a hundred times a second; while that is late, a thread beside it looks at what the loop's thread does.
Works on asyncio and on trio; knows nothing of what the loop is for.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time
from traceback import walk_stack
from types import FrameType
from typing import Any, Final, NamedTuple, cast

LIMIT: Final = 0.1
"""Seconds that one piece of work may keep an event loop from everything else."""
_PAUSE: Final = 0.01
"""Seconds between two beats of the loop."""
_MOST_FRAMES: Final = 5
_ROOT: Final = Path(__file__).parents[2]
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN: Final = tuple(str(_ROOT / name) for name in ("flowengine", "visualize"))
_WAITS: Final = frozenset({"select", "get_events"})
"""Functions in which the loops of asyncio and trio wait for something to do."""


class LoopHold(NamedTuple):
    """A time in which an event loop did nothing else."""

    seconds: float
    """By the clock; of a hold that goes on, until now."""
    cpu_seconds: float | None
    """The thread's processor time, which a busy machine does not change; None while the hold goes on."""
    places: tuple[str, ...]
    """What the loop's thread was in when it was looked at, most of the times; the innermost call first, the calls of
    libraries left out behind it. Empty where it was seen only afterwards."""

    def __str__(self) -> str:
        where = " < ".join(self.places) or "unknown code"
        if self.cpu_seconds is None:
            return f"the event loop is held, for {self.seconds:.2f} s until now: {where}"
        return f"the event loop was held for {self.seconds:.2f} s, {self.cpu_seconds:.2f} s of it at work: {where}"


@contextmanager
def watch_this_loop(tell: Callable[[LoopHold], object], limit: float = LIMIT) -> Generator[None]:
    """Watches the loop that runs the caller, until the block ends.

    `tell`: called when a hold has reached the limit, in another thread, and once more when it has ended, in the loop.
    """
    watch = _Watch(tell, limit)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(self, tell: Callable[[LoopHold], object], limit: float) -> None:
        self._tell = tell
        self._limit = limit
        self._watched = threading.get_ident()
        self._beat = self._now()
        self._place_counts: Counter[tuple[str, ...]] = Counter()
        """The places of the loop's thread since the beat, with how often each was seen."""
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="flowengine-loop-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._stop_beats = _call_again_and_again(self._tell_late_beat)

    def stop(self) -> None:
        self._stop_beats()
        self._has_ended.set()
        self._thread.join()
        self._tell_late_beat()

    @staticmethod
    def _now() -> tuple[float, float]:
        """By the clock, and of this thread's work."""
        return perf_counter(), thread_time()

    def _tell_late_beat(self) -> None:
        """Runs in the loop."""
        (since, worked), self._beat = self._beat, self._now()
        seconds, cpu_seconds = self._beat[0] - since, self._beat[1] - worked
        counts, self._place_counts = self._place_counts, Counter()
        if counts or cpu_seconds > self._limit:
            places = counts.most_common(1)[0][0] if counts else ()
            self._tell(LoopHold(seconds, cpu_seconds, places))

    def _look_on(self) -> None:
        """Runs in the thread beside it."""
        while not self._has_ended.wait(max(_PAUSE, self._beat[0] + self._limit - perf_counter())):
            since, counts = self._beat[0], self._place_counts
            places = _find_places(vars(sys)["_current_frames"]().get(self._watched))
            if places and perf_counter() - since > self._limit and counts is self._place_counts:
                if not counts:
                    self._tell(LoopHold(perf_counter() - since, None, places))
                counts[places] += 1


def _call_again_and_again(call: Callable[[], None]) -> Callable[[], None]:
    """Makes a call in the caller's loop as often as that can, with a pause each time; returns what ends that."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():  # first: trio may be a guest inside an asyncio loop
        scope = trio.CancelScope()

        async def go_on() -> None:
            with scope:
                while True:
                    await trio.sleep(_PAUSE)
                    call()

        trio.lowlevel.spawn_system_task(go_on)
        return cast("Callable[[], None]", scope.cancel)

    def call_and_wait() -> None:
        nonlocal handle
        call()
        handle = loop.call_later(_PAUSE, call_and_wait)

    loop = asyncio.get_running_loop()
    handle = loop.call_later(_PAUSE, call_and_wait)
    return lambda: handle.cancel()


def _find_places(frame: FrameType | None) -> tuple[str, ...]:
    """Returns the calls that hold the loop, the innermost first; none where it waits for something to do."""
    if frame is None or frame.f_code.co_name in _WAITS:
        return ()
    places: list[str] = []
    for each, line in walk_stack(frame):
        file = each.f_code.co_filename
        if not places or file.startswith(_OWN) or not file.startswith((*_LIBRARIES, "<")):
            places.append(f"{_shorten(file)}:{line} {each.f_code.co_qualname}")
    return tuple(places[:_MOST_FRAMES])


def _shorten(file: str) -> str:
    for root in (str(_ROOT), *_LIBRARIES):
        if file.startswith(root):
            return file[len(root) + 1 :]
    return file
