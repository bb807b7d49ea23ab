"""Keeps the keys by which programs call flows, beside the runs of a store: hashed, so that no store gives one away.

    fe_3f9a12c4_wbXk…    the key's id, by which it is told from others, and 32 random bytes

What a key may spend in a day is reserved in the store before a run begins and settled after it, and how often it is
used in a minute is counted there: both hold for all servers of the store together.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from time import monotonic, time
from typing import Any, Final, NamedTuple

from flowengine.core.values import thaw
from flowengine.engine.ports import JournalStore
from flowengine.errors import DefinitionError, FlowEngineError, InputError, did_you_mean
from flowengine.web.service.outcomes import FlowCaller

__all__ = ["ApiKey", "DayBudgets", "KeyRing", "QuotaError", "RequestRates"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_KIND: Final = "serve.keys"
_ALL: Final = "all"
_SPENT: Final = "serve.spent"
_ASKED: Final = "serve.asked"
_FRESH: Final = 1.0
"""Seconds for which what was read of the keys counts."""
_SHARE: Final = 10
"""A run of a flow without a limit of its own reserves that part of what is left of the day's budget, so that runs at
once never use all of it up."""
_LEAST: Final = 0.01
"""Share of the day's budget below which the rest is as good as spent."""
_ROUNDING: Final = 1e-9
"""Dollars that sums of floats may be off by."""
_SOON: Final = 2
"""Seconds until a budget that is reserved, and not spent, may be free again."""
_DAY: Final = 86_400
_MINUTE: Final = 61
"""Seconds after whose beginning all of a second is a minute ago."""


class QuotaError(FlowEngineError):
    """The key has used up what it may spend, or was used too often; `retry_after`: seconds until that may change."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ApiKey(NamedTuple):
    """The data of a key."""

    id: str
    digest: str
    """SHA-256 of the whole key: it holds 32 random bytes, so no slower hash is needed."""
    caller: FlowCaller
    added: float
    """Unix seconds."""


class KeyRing:
    """The keys of one store."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self._cached_keys: Sequence[ApiKey] = ()
        self._read = -_FRESH

    def add(
        self,
        name: str,
        *,
        flows: Sequence[str] | None = None,
        budget_usd_day: float | None = None,
        requests_per_minute: int | None = None,
    ) -> str:
        """A new key, which is shown this once. `DefinitionError` where one of that name is there."""
        if not _NAME.fullmatch(name):
            raise InputError(f"the name of a key is 1 to 64 letters, digits, _ . @ and -, found {name!r:.80}")
        key_id, word = secrets.token_hex(4), secrets.token_urlsafe(32)
        key = f"fe_{key_id}_{word}"
        entry = {
            "name": name,
            "digest": _digest(key),
            "flows": None if flows is None else list(flows),
            "budget_usd_day": budget_usd_day,
            "requests_per_minute": requests_per_minute,
            "added": time(),
        }

        def change(record: Any) -> Any:
            entries: dict[str, Any] = {} if record is None else thaw(record)
            if any(each["name"] == name for each in entries.values()):
                raise DefinitionError(f"there is a key '{name}' already: `flowengine keys remove {name}` takes it away")
            return {**entries, key_id: entry}

        self.store.revise(_KIND, _ALL, change)
        return key

    def remove(self, name: str) -> None:
        """From now on it opens nothing; servers that run have it for another second."""

        def change(record: Any) -> Any:
            entries: dict[str, Any] = {} if record is None else thaw(record)
            names = [each["name"] for each in entries.values()]
            if name not in names:
                raise DefinitionError(f"there is no key '{name}'{did_you_mean(name, names)}")
            return {key_id: each for key_id, each in entries.items() if each["name"] != name} or None

        self.store.revise(_KIND, _ALL, change)

    def list(self) -> Sequence[ApiKey]:
        """In the order in which they were added."""
        entries: Mapping[str, Any] = self.store.recall(_KIND, _ALL) or {}
        keys = [_read_key(key_id, each) for key_id, each in entries.items()]
        return sorted(keys, key=lambda key: key.added)

    @property
    def is_stale(self) -> bool:
        return monotonic() - self._read >= _FRESH

    def refresh(self) -> None:
        """Read the keys anew."""
        self._cached_keys, self._read = self.list(), monotonic()

    def find(self, text: str) -> FlowCaller | None:
        """Returns the owner of a key, as of the last `refresh`, in constant time."""
        digest = _digest(text)
        caller: FlowCaller | None = None
        for key in self._cached_keys:
            if hmac.compare_digest(key.digest, digest):
                caller = key.caller
        return caller


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _read_key(key_id: str, entry: Mapping[str, Any]) -> ApiKey:
    flows: Sequence[str] | None = entry["flows"]
    caller = FlowCaller(
        entry["name"], None if flows is None else tuple(flows), entry["budget_usd_day"], entry["requests_per_minute"]
    )
    return ApiKey(key_id, entry["digest"], caller, entry["added"])


class RequestRates:
    """Each caller's requests in the last minute, at all servers of a store.

    Requests are counted by the second, so that what is kept is small however many they are; a second counts until
    all of it is a minute ago.
    """

    def __init__(self, store: JournalStore, clock: Callable[[], float] = time) -> None:
        self._store = store
        self._clock = clock

    def count(self, caller: FlowCaller) -> None:
        """One more request; `QuotaError` where it is one too many, which is not counted."""
        most = caller.requests_per_minute
        if most is None:
            return
        now = self._clock()

        def change(record: Any) -> Any:
            before: dict[str, int] = {} if record is None else record
            recent = {second: count for second, count in before.items() if int(second) + _MINUTE > now}
            if sum(recent.values()) >= most:
                wait = max(1, ceil(min(map(int, recent)) + _MINUTE - now)) if recent else 60
                raise QuotaError(f"'{caller.name}' may ask {most} times in a minute: ask again in {wait} s", wait)
            this = str(int(now))
            return {**recent, this: recent.get(this, 0) + 1}

        self._store.revise(_ASKED, caller.name, change)


class DayBudgets:
    """Each caller's spending per day (UTC), in the store."""

    def __init__(self, store: JournalStore, clock: Callable[[], float] = time) -> None:
        self._store = store
        self._clock = clock

    def reserve(self, caller: FlowCaller, run_id: str, limit: float | None) -> tuple[float, str]:
        """The dollars that a new run may cost, which are its own until it is settled, and the day that they are of.

        `limit`: what the flow says that a run of it may cost. `QuotaError` where nothing is left today.
        """
        budget = caller.budget_usd_day or 0.0
        day, grant = self.today, 0.0

        def change(record: Any) -> Any:
            nonlocal grant
            spent, open_runs = _read_day(record)
            reserved = sum(amount for each, amount in open_runs.items() if each != run_id)
            rest, least = budget - spent - reserved, _LEAST * budget
            if rest < least and budget - spent >= least:
                text = f"the {budget:g} US dollars of '{caller.name}' for today are reserved for runs that go on"
                raise QuotaError(f"{text}: ask again in {_SOON} s", _SOON)
            if rest < least:
                wait = _DAY - int(self._clock()) % _DAY
                text = f"'{caller.name}' has spent its {budget:g} US dollars of today"
                raise QuotaError(f"{text}: the next day begins in {wait} s", wait)
            grant = rest / _SHARE if limit is None else min(limit, rest)
            return {"spent": spent, "open": {**open_runs, run_id: grant}}

        self._store.revise(_SPENT, f"{caller.name} {day}", change)
        return grant, day

    def reopen(self, caller: FlowCaller, day: str, run_id: str, limit: float, cost_usd: float) -> None:
        """A run that was settled goes on: what it may cost in all is its own again, in the place of what it has cost.

        `QuotaError` where that much of the day's budget is not left.
        """

        def change(record: Any) -> Any:
            spent, open_runs = _read_day(record)
            if run_id in open_runs:
                return record
            spent = max(0.0, spent - cost_usd)
            if spent + sum(open_runs.values()) + limit > (caller.budget_usd_day or 0.0) + _ROUNDING:
                text = f"the budget of '{caller.name}' for {day} has no {limit:g} US dollars left for run '{run_id}'"
                raise QuotaError(f"{text}: ask again in {_SOON} s, or start a new run", _SOON)
            return {"spent": spent, "open": {**open_runs, run_id: limit}}

        self._store.revise(_SPENT, f"{caller.name} {day}", change)

    def open_runs(self, caller: FlowCaller) -> Sequence[str]:
        """Runs of today that are not settled yet."""
        return list(_read_day(self._store.recall(_SPENT, f"{caller.name} {self.today}"))[1])

    def settle(self, caller: str, day: str, run_id: str, cost_usd: float) -> None:
        """The run has ended, or did not begin; more than once does no harm."""

        def change(record: Any) -> Any:
            spent, open_runs = _read_day(record)
            if run_id not in open_runs:
                return record  # It was settled before.
            del open_runs[run_id]
            return {"spent": spent + cost_usd, "open": open_runs}

        self._store.revise(_SPENT, f"{caller} {day}", change)

    def read_spending(self, caller: str) -> tuple[float, float]:
        """Returns today's spending and reservations."""
        spent, open_runs = _read_day(self._store.recall(_SPENT, f"{caller} {self.today}"))
        return spent, sum(open_runs.values())

    @property
    def today(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()


def _read_day(record: Any) -> tuple[float, dict[str, float]]:
    day: Any = {} if record is None else thaw(record)
    return day.get("spent", 0.0), dict(day.get("open", {}))
