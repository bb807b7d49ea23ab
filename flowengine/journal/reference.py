"""Which run a user means by `@last`, an id, or the start of one. Pure; every store asks here."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine.errors import RunNotFoundError

__all__ = ["no_such_run", "resolve"]

_SHOWN = 5


def resolve(reference: str, run_ids: Sequence[str], store: str) -> str:
    """The full id among `run_ids`, which come newest first; `store` names the place in messages.

    >>> resolve("@last", ["b7", "a1"], "runs.db"), resolve("a", ["b7", "a1"], "runs.db")
    ('b7', 'a1')
    """
    if reference == "@last" and run_ids:
        return run_ids[0]
    if reference in run_ids:
        return reference
    found = [run_id for run_id in run_ids if reference and run_id.startswith(reference)]
    if len(found) > 1:
        raise RunNotFoundError(f"'{reference}' is the start of {len(found)} runs in {store}: {_some(found)}")
    if not found:
        raise no_such_run(reference, run_ids, store)
    return found[0]


def no_such_run(reference: str, run_ids: Sequence[str], store: str) -> RunNotFoundError:
    if not run_ids:
        return RunNotFoundError(f"no run '{reference}': {store} holds no runs")
    return RunNotFoundError(f"no run '{reference}' in {store}; it holds {_some(run_ids)}")


def _some(run_ids: Sequence[str]) -> str:
    rest = len(run_ids) - _SHOWN
    return ", ".join(run_ids[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
