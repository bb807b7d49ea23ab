"""HTML made of calls: whatever is text is escaped, and what is HTML already has a type of its own.

    element("a", "1 < 2", href="/runs/x")   →   <a href="/runs/x">1 &lt; 2</a>

There is no way to put text into a page unescaped but to say `Markup`, which only this package's own
constants do.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, Final, TypeAlias

from visualize.plain import compact

__all__ = ["Child", "Markup", "data_block", "element", "join", "whole"]


class Markup(str):
    """HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
"""What stands inside an element: text, numbers, `Markup`, nothing, or several of these."""

_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})


def element(tag: str, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element; `class_` is `class` and `data_seq` is `data-seq`; None and False leave an attribute out.

    >>> element("p", "<script>", element("b", "ok"), class_="x", hidden=True)
    '<p class="x" hidden>&lt;script&gt;<b>ok</b></p>'
    """
    said = "".join(_attribute(name, value) for name, value in attributes.items())
    return Markup(f"<{tag}{said}>" if tag in _VOID else f"<{tag}{said}>{join(children)}</{tag}>")


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


def _attribute(name: str, value: str | float | bool | None) -> str:
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
