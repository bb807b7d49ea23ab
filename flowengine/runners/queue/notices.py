"""Defines the notices of a worker: lines for people, with what happened and to which run."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Tell", "WorkerNotice"]


class WorkerNotice(str):
    """A line; `event` is the word for what happened.

    >>> notice = WorkerNotice("run a1 begins: greet", "begins", "a1")
    >>> notice, notice.event, notice.run_id
    ('run a1 begins: greet', 'begins', 'a1')
    """

    event: str
    run_id: str | None
    """The run that it is of, None where it is of the worker."""

    def __new__(cls, text: str, event: str, run_id: str | None = None) -> WorkerNotice:
        made = super().__new__(cls, text)
        made.event, made.run_id = event, run_id
        return made


Tell = Callable[[WorkerNotice], None]
