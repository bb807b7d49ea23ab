"""Has the flows of schedules run when they are due, for as long as the process lives. What is due is `core.schedule`'s.

Any number of processes of one store may do so at once: a tick's run has an id of its own, so it begins once. What was
decided is kept beside the runs after it was done; a process that dies in between has done what the next one does again,
which changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import time
from typing import Any, Final, Protocol, cast

import anyio
import anyio.to_thread

from flowengine.core import Schedule, ScheduleState, TickDecision, decide_ticks, describe_error, is_map
from flowengine.engine import JournalStore
from flowengine.errors import FlowEngineError, JournalError, StoreUnavailableError

LABEL: Final = "schedule"
"""The label of runs that a schedule began; its value is the schedule's name."""
_KIND: Final = "schedule"
_LONGEST_SLEEP: Final = 20.0
"""Seconds after which the clock is looked at again, whatever it said before."""
_PENDING_SLEEP: Final = 5.0
"""Seconds between two looks whether a run has ended that a tick waits for."""
SIGN_OF_LIFE: Final = 600.0
"""Seconds after which it is kept that a schedule was looked at, where nothing was due."""


class ScheduleHost(Protocol):
    """Begins and stops the runs of schedules: in this process, or by a queue."""

    async def begin(self, schedule: Schedule, run_id: str, /) -> None:
        """Begin a run; nothing where it is there already. `StoreUnavailableError` where it may succeed later."""
        ...

    async def cancel(self, run_id: str, /) -> None: ...

    async def goes_on(self, run_id: str, /) -> bool:
        """Tells whether a run is still to end."""
        ...


def recall_state(store: JournalStore, schedule: str) -> ScheduleState | None:
    """Returns the stored state of a schedule; None for a new one."""
    stored: Any = store.recall(_KIND, schedule)
    if not is_map(stored):
        return None
    decided, pending, last_run, notice = (stored[name] for name in ScheduleState._fields)
    return ScheduleState(decided, tuple(pending), last_run, notice)


class ScheduleTicker:
    """Looks at the schedules of a project, and at the clock. `tell` hears what is begun, left out or goes wrong."""

    def __init__(
        self,
        store: JournalStore,
        schedules: Sequence[Schedule],
        host: ScheduleHost,
        tell: Callable[[str, str], None] = lambda text, run_id: None,
        *,
        clock: Callable[[], float] = time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._store, self._schedules, self._host, self._tell = store, schedules, host, tell
        self._clock, self._sleep = clock, sleep

    async def run(self) -> None:
        """Until it is cancelled. The clock may be set to whatever it likes meanwhile."""
        while True:
            waits = [await self._look(each) for each in self._schedules]
            await self._sleep(max(0.05, min([_LONGEST_SLEEP, *waits])))

    async def _look(self, schedule: Schedule) -> float:
        """`look`; a store that is away for a while is looked at again. The seconds until the next look."""
        try:
            state = await self.look(schedule)
        except Exception as error:  # One schedule, or its flow's code, must not stop the others.
            self._tell(f"schedule '{schedule.name}' cannot be looked at: {describe_error(error)}", "")
            return _LONGEST_SLEEP
        now = self._clock()
        until_next = next((tick - now for tick in schedule.next_ticks(now)), _LONGEST_SLEEP)
        return min(until_next, _PENDING_SLEEP if state.pending else _LONGEST_SLEEP)

    async def look(self, schedule: Schedule) -> ScheduleState:
        """Do what is due for a schedule now."""
        earlier = await anyio.to_thread.run_sync(recall_state, self._store, schedule.name)
        now = self._clock()
        decision = decide_ticks(schedule, earlier, now, False)
        if earlier is not None and (decision.start is not None or earlier.pending):
            is_busy = bool(earlier.last_run) and await self._host.goes_on(earlier.last_run)
            decision = decide_ticks(schedule, earlier, now, is_busy)
        state = await self._do(schedule, earlier, decision)
        if state.told and (earlier is None or state.told != earlier.told):
            self._tell(f"schedule '{schedule.name}': {state.told}", "")
        is_new = earlier is None or state.decided - earlier.decided > SIGN_OF_LIFE or state.decided < earlier.decided
        has_due = earlier is not None and bool(schedule.ticks_between(earlier.decided, now))
        if earlier is None or is_new or has_due or state._replace(decided=earlier.decided) != earlier:
            await anyio.to_thread.run_sync(self._keep, schedule.name, state)
        return state

    async def _do(self, schedule: Schedule, earlier: ScheduleState | None, decision: TickDecision) -> ScheduleState:
        """Begin the run that is due; the state after it."""
        state, tick = decision.state, decision.start
        if tick is None:
            return state
        run_id = schedule.run_id(tick)
        if decision.cancels and earlier is not None:
            with suppress(JournalError):  # It may have ended meanwhile.
                await self._host.cancel(earlier.last_run)
        before = "" if earlier is None else earlier.last_run
        try:
            await self._host.begin(schedule, run_id)
        except StoreUnavailableError as error:  # It is tried again at the next look.
            message = f"{run_id} could not begin yet: {error}"
            return state._replace(pending=(tick, *state.pending), last_run=before, told=message)
        except FlowEngineError as error:
            return state._replace(last_run=before, told=f"{run_id} could not begin: {error}")
        self._tell(f"run {run_id} begins: schedule '{schedule.name}'", run_id)
        return state

    def _keep(self, name: str, state: ScheduleState) -> None:
        """Keep a state, unless another process has decided on later ticks meanwhile."""

        def change(stored: Any) -> Any:
            is_later = is_map(stored) and cast(float, stored["decided"]) > state.decided > 0
            has_jumped = is_later and stored["decided"] > self._clock() + _LONGEST_SLEEP * 3
            return stored if is_later and not has_jumped else state._asdict()

        self._store.revise(_KIND, name, change)
