"""Says when a schedule's flow is to run, and what becomes of each of its ticks. Pure: times in, decisions out.

A tick is a moment that the schedule's cron expression names, as Unix seconds. The run of a tick has an id made of both
(`name@time`), so a tick is one run however many processes decide on it. Nothing here starts, looks at or stores a run.

1. Ticks that are at most `LATE` seconds old are on time. Older ones were missed: no process looked, or the clock was
   set forward. `catch_up` says what becomes of them; what it lets run does so one after the other, the oldest first.
2. A tick whose schedule has a run that still goes on is left out, waits for its end, or has it cancelled (`overlap`).
3. Ticks before the moment that was decided on last are over. A clock that was set back by much forgets that moment;
   the ids of runs keep ticks from running twice.
4. Where clocks are set forward (daylight-saving time), a tick in the hour that is not there runs at its end; where they
   are set back, one at a fixed time runs once, the first time. One with a `*` in its minutes or hours runs whenever
   the clock shows it. So Debian's cron does it, and cronsim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from flowengine.errors import did_you_mean

if TYPE_CHECKING:
    from cronsim import CronSim

LATE: Final = 60.0
"""Seconds that a tick may be late without having been missed."""
_MOST: Final = 100
"""Ticks that may wait, and that are caught up at once; of more, the newest."""

Overlap = Literal["skip", "queue", "cancel"]


@dataclass(frozen=True)
class Schedule:
    """An entry of `schedules` in a project file."""

    name: str
    """How its runs begin; left out, the name of the flow's file."""
    flow: str
    """Its file, below the project's root."""
    cron: str
    """When it runs: minute, hour, day, month, weekday."""
    timezone: str = "UTC"
    """The time zone of `cron`."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The inputs of each of its runs."""
    overlap: Overlap = "skip"
    """The answer to a tick while the run before still goes on: `skip` it, `queue` it, or `cancel` the run before."""
    catch_up: bool | Literal["last"] = False
    """Whether missed ticks run: all, the last one alone, or none."""
    queue: str = "default"
    """The queue that workers take its runs from."""

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def run_id(self, tick: float) -> str:
        """The id of the run of a tick.

        >>> Schedule("report", "report.yaml", "0 7 * * *").run_id(0.0)
        'report@19700101T0000Z'
        """
        return f"{self.name}@{datetime.fromtimestamp(tick, UTC):%Y%m%dT%H%MZ}"

    def next_ticks(self, after: float) -> Iterator[float]:
        """The ticks after a moment, without end."""
        return (each.timestamp() for each in self._simulate(after))

    def ticks_between(self, after: float, until: float) -> Sequence[float]:
        """The ticks after a moment and up to another, in order; of very many the newest."""
        # The library looks back from a moment, that not included.
        back = (each.timestamp() for each in self._simulate(until + 1, reverse=True))
        ticks = islice(takewhile(lambda tick: tick > after, (each for each in back if each <= until)), _MOST)
        return sorted(ticks)

    def _simulate(self, at: float, *, reverse: bool = False) -> CronSim:
        from cronsim import CronSim  # Few processes have schedules.

        return CronSim(self.cron, datetime.fromtimestamp(at, self._zone), reverse=reverse)


class ScheduleState(NamedTuple):
    """The stored state of a schedule."""

    decided: float
    """Up to when its ticks are decided on."""
    pending: Sequence[float] = ()
    """Ticks that run one after the other, once the run before has ended."""
    last_run: str = ""
    """Id of the run that began last."""
    told: str = ""
    """The fate of the last tick that did not run."""


class TickDecision(NamedTuple):
    """The actions that a schedule needs now."""

    state: ScheduleState
    """The state once that is done."""
    start: float | None = None
    """The tick whose run is to begin."""
    cancels: bool = False
    """Whether the run before it is to be cancelled first."""


def decide_ticks(schedule: Schedule, state_before: ScheduleState | None, now: float, is_busy: bool) -> TickDecision:
    """Decides which ticks are due.

    `state_before`: None for a new schedule, which has missed nothing; `is_busy`: whether the last run still runs.
    """
    if state_before is None:
        return TickDecision(ScheduleState(now))
    decided = now if state_before.decided > now + LATE else state_before.decided
    due = schedule.ticks_between(min(decided, now), now)
    fresh = [each for each in due if now - each <= LATE]
    missed = [each for each in due if now - each > LATE]
    message, caught = state_before.told, missed if schedule.catch_up is True else []
    if schedule.catch_up == "last" and missed and not fresh:
        caught = missed[-1:]
    if gaps := [each for each in missed if each not in caught]:
        message = f"{schedule.run_id(gaps[-1])} was missed"
    pending, start, cancels = [*state_before.pending, *caught], None, False
    for tick in fresh:
        if not (is_busy or pending or start is not None):
            start = tick
        elif schedule.overlap == "queue":
            pending.append(tick)
        elif schedule.overlap == "cancel":
            start, cancels, pending = tick, is_busy, []
        else:
            message = f"{schedule.run_id(tick)} was skipped: the run before it went on"
    if start is None and not is_busy and pending:
        start, *pending = pending
    if len(pending) > _MOST:
        message = f"{schedule.run_id(pending[0])} was skipped: {_MOST} others wait"
    state = ScheduleState(max(decided, now), tuple(pending[-_MOST:]), state_before.last_run, message)
    return TickDecision(state if start is None else state._replace(last_run=schedule.run_id(start)), start, cancels)


def find_cron_problem(expression: str) -> str | None:
    """Explains why a text is not a cron expression; None if it is one.

    >>> find_cron_problem("0 7 * * MON-FRI"), find_cron_problem("0 25 * * *")
    (None, 'bad hour')
    """
    from cronsim import CronSim, CronSimError

    if len(expression.split()) != 5:
        return "it has five fields: minute, hour, day of the month, month, day of the week"
    try:
        CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return str(error).lower()
    return None


def find_zone_problem(name: str) -> str | None:
    """Explains why a time zone is unknown here; None if it is known."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"there is no such time zone here{did_you_mean(name, available_timezones())}"
    return None
