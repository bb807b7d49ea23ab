"""Builds HTML from calls: text is escaped, and what is HTML already has a type of its own. It makes addresses too.

    element("a", "1 < 2", href="/runs/x")   →   <a href="/runs/x">1 &lt; 2</a>

There is no way to put text into a page unescaped but to say `Markup`, which only this package's own
constants do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from html import escape
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from visualize.plain import compact

# --- Addresses of pages

ROOT: Final[ContextVar[str]] = ContextVar("ROOT", default="")
"""The path below which the pages are: nothing, or `/viewer`."""


def runs_url() -> str:
    return f"{ROOT.get()}/"


def session_url(session: str) -> str:
    """The runs of a session."""
    return f"{runs_url()}?{urlencode({'session': session}, errors='replace')}"


def flows_url() -> str:
    return f"{ROOT.get()}/flows"


def run_url(run_id: str, node: str | None = None, at: int | None = None) -> str:
    """A run's page, at a node and a moment.

    >>> run_url("r1", "polish.round[2].judge", 7)
    '/runs/r1#node=polish.round%5B2%5D.judge&at=7'
    """
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}{place(node, at)}"


def place(node: str | None = None, at: int | None = None) -> str:
    """The part of a run's address behind the path: what our script opens the page at."""
    arguments = {name: value for name, value in (("node", node), ("at", at)) if value is not None}
    return f"#{urlencode(arguments, errors='replace', quote_via=quote)}" if arguments else ""


def bundle_url(run_id: str, node: str | None = None) -> str:
    """A run among those of a page that is one file.

    >>> bundle_url("r1", "ask")
    '#run=r1&node=ask'
    """
    at_node = place(node)
    return f"#run={_quote_part(run_id)}{f'&{at_node[1:]}' if at_node else ''}"


def events_url(run_id: str, after: int = 0) -> str:
    """Server-sent events from a position on."""
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/events?after={after}"


def panel_url(run_id: str, node: str = "") -> str:
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/nodes/{_quote_part(node)}"


def times_url(run_id: str) -> str:
    """Returns the address of a run's time report."""
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/times"


def file_url(run_id: str, blob: str) -> str:
    """The content of a file of a run."""
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/files/{_quote_part(blob)}"


def approve_url(run_id: str, node: str) -> str:
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/approve/{_quote_part(node)}"


def cancel_url(run_id: str) -> str:
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/cancel"


def action_url(run_id: str, action: str, node: str | None = None) -> str:
    """The form of something that can be done with a run, or from one of its nodes on; it posts to the same address."""
    about = f"?{urlencode({'node': node}, errors='replace', quote_via=quote)}" if node is not None else ""
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/act/{_quote_part(action)}{about}"


def play_url(run_id: str, call: int, tried: str | None = None) -> str:
    """The playground of the call of a model that is the event at a position of the run."""
    about = {"call": call, **({} if tried is None else {"tried": tried})}
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/play?{urlencode(about, errors='replace')}"


def notes_url(run_id: str) -> str:
    """Returns the address for posting notes, marks and scores of a run."""
    return f"{ROOT.get()}/runs/{_quote_part(run_id)}/notes"


def selection_url() -> str:
    """Returns the address for posting actions on chosen runs."""
    return f"{ROOT.get()}/selection"


def export_url(run_id: str) -> str:
    """A run as a page that is one file."""
    return f"{selection_url()}?{urlencode({'do': 'page', 'run': run_id}, errors='replace')}"


def compare_form_url() -> str:
    return f"{ROOT.get()}/compare"


def compare_url(a: str, b: str) -> str:
    return f"{compare_form_url()}?{urlencode({'a': a, 'b': b}, errors='replace')}"


def compare_many_url(runs: Sequence[str]) -> str:
    """The table of up to ten runs; of two their page.

    >>> compare_many_url(["r1", "r2", "r3"])
    '/compare?run=r1&run=r2&run=r3'
    """
    return f"{compare_form_url()}?{urlencode([('run', each) for each in runs], errors='replace')}"


def flow_url(name: str) -> str:
    return f"{flows_url()}/{_quote_part(name)}"


def start_url(name: str) -> str:
    return f"{flow_url(name)}/start"


def static_url(name: str) -> str:
    return f"{ROOT.get()}/static/{name}"


def _quote_part(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="", errors="replace")


class Markup(str):
    """HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
"""The content of an element: text, numbers, `Markup`, nothing, or several of these."""

_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})


def element(tag: str, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element; `class_` is `class` and `data_seq` is `data-seq`; None and False leave an attribute out.

    >>> element("p", "<script>", element("b", "ok"), class_="x", hidden=True)
    '<p class="x" hidden>&lt;script&gt;<b>ok</b></p>'
    """
    attribute_text = "".join(_format_attribute(name, value) for name, value in attributes.items())
    return Markup(f"<{tag}{attribute_text}>" if tag in _VOID else f"<{tag}{attribute_text}>{join(children)}</{tag}>")


def join(children: Child) -> Markup:
    """Children one after the other, without an element round them."""
    if isinstance(children, Markup):
        return children
    if children is None:
        return Markup("")
    if isinstance(children, str):
        return Markup(escape(children, quote=False))
    if isinstance(children, (int, float)):
        return Markup(str(children))
    return Markup("".join([join(each) for each in children]))


def _format_attribute(name: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def data_block(name: str, value: Any) -> Markup:
    """Data for our script, as a block that no browser runs; it cannot be closed from inside.

    >>> data_block("x", "</script>")
    '<script type="application/json" id="x">"\\\\u003c/script>"</script>'
    """
    text = compact(value).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{escape(name)}">{text}</script>')


def whole(text: str) -> str:
    """The text as it can be encoded: halves of surrogate pairs, which some models produce, become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
