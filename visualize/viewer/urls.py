"""Where pages are. One place for the server's routes and for the links between pages.

A server that is mounted below another one's path says so in `ROOT` while it makes a page.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final
from urllib.parse import quote, urlencode

__all__ = [
    "ROOT",
    "approve_url",
    "cancel_url",
    "compare_form_url",
    "compare_url",
    "events_url",
    "flow_url",
    "flows_url",
    "panel_url",
    "place",
    "run_url",
    "runs_url",
    "start_url",
    "static_url",
]

ROOT: Final[ContextVar[str]] = ContextVar("ROOT", default="")
"""The path below which the pages are: nothing, or `/viewer`."""


def runs_url() -> str:
    return f"{ROOT.get()}/"


def flows_url() -> str:
    return f"{ROOT.get()}/flows"


def run_url(run_id: str, node: str | None = None, at: int | None = None) -> str:
    """A run's page, at a node and a moment.

    >>> run_url("r1", "polish.round[2].judge", 7)
    '/runs/r1#node=polish.round%5B2%5D.judge&at=7'
    """
    return f"{ROOT.get()}/runs/{_part(run_id)}{place(node, at)}"


def place(node: str | None = None, at: int | None = None) -> str:
    """The part of a run's address behind the path: what our script opens the page at."""
    known = {name: value for name, value in (("node", node), ("at", at)) if value is not None}
    return f"#{urlencode(known, errors='replace', quote_via=quote)}" if known else ""


def events_url(run_id: str, after: int = 0) -> str:
    """Server-sent events from a position on."""
    return f"{ROOT.get()}/runs/{_part(run_id)}/events?after={after}"


def panel_url(run_id: str, node: str = "") -> str:
    return f"{ROOT.get()}/runs/{_part(run_id)}/nodes/{_part(node)}"


def approve_url(run_id: str, node: str) -> str:
    return f"{ROOT.get()}/runs/{_part(run_id)}/approve/{_part(node)}"


def cancel_url(run_id: str) -> str:
    return f"{ROOT.get()}/runs/{_part(run_id)}/cancel"


def compare_form_url() -> str:
    return f"{ROOT.get()}/compare"


def compare_url(a: str, b: str) -> str:
    return f"{compare_form_url()}?{urlencode({'a': a, 'b': b}, errors='replace')}"


def flow_url(name: str) -> str:
    return f"{flows_url()}/{_part(name)}"


def start_url(name: str) -> str:
    return f"{flow_url(name)}/start"


def static_url(name: str) -> str:
    return f"{ROOT.get()}/static/{name}"


def _part(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="", errors="replace")
