"""Keeps the keys by which programs call flows, beside the runs of a store: hashed, so that no store gives one away.

    fe_3f9a12c4_wbXk…    the key's id, by which it is told from others, and 32 random bytes

How often a key is used in a minute is counted there too, for all servers of the store together.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from time import monotonic, time
from typing import Any, Final, NamedTuple

from flowengine.core import thaw
from flowengine.engine import JournalStore
from flowengine.errors import DefinitionError, InputError, did_you_mean
from flowengine.web.service import FlowCaller, QuotaError

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_KIND: Final = "serve.keys"
_ALL: Final = "all"
_ASKED: Final = "serve.asked"
_FRESH: Final = 1.0
"""Seconds for which what was read of the keys counts."""
_MINUTE: Final = 61
"""Seconds after whose beginning all of a second is a minute ago."""


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
