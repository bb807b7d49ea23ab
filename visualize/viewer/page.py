"""Makes the frame of every page.

Pages load one script and one style sheet of ours and nothing else; the server sends `CSP` with each of them.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Final
from urllib.parse import quote

from visualize.icons import HEATS, SIGNS, TAB_SHAPES
from visualize.style import DASHES, LOOKS, PLAIN, Look
from visualize.viewer.html import Child, Markup, element, flows_url, join, runs_url, static_url, whole
from visualize.viewer.parts import badge_text
from visualize.viewer.scripts import read_static, script

# --- Script and style sheet

STYLES: Final = ("viewer.css", "graph.css")
ASSETS: Final = {"viewer.js": "text/javascript; charset=utf-8", "viewer.css": "text/css; charset=utf-8"}
"""Name behind `/static/` → its media type."""


def asset(name: str) -> tuple[bytes, str]:
    """The file behind `/static/` and its media type; `KeyError` where there is none."""
    return {"viewer.js": script, "viewer.css": style_sheet}[name]().encode(), ASSETS[name]


@cache
def style_sheet() -> str:
    """The style sheet, with the looks of the statuses from the one table that all pictures share."""
    looks = {"plain": PLAIN, "paused": LOOKS["waiting"], **LOOKS}
    day = [_write_rules(name, look, look.border, look.fill) for name, look in looks.items()]
    night = [_write_rules(name, look, *look.night) for name, look in looks.items()]
    day += [
        f".heat-{level} > path:first-of-type {{ fill: {fill} !important; }}" for level, (fill, _) in enumerate(HEATS)
    ]
    night += [
        f".heat-{level} > path:first-of-type {{ fill: {fill} !important; }}" for level, (_, fill) in enumerate(HEATS)
    ]
    signs = [f".k-{name or 'other'} .accent {{ fill: {sign.accent}; }}" for name, sign in SIGNS.items()]
    ours = [read_static(name) for name in STYLES]
    return "\n".join([*ours, *signs, *day, "@media screen and (prefers-color-scheme: dark) {", *night, "}", ""])


def inline_source(text: str) -> str:
    """Returns the content security policy's hash of an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _write_rules(status: str, look: Look, border: str, fill: str) -> str:
    stroke = f"stroke: {border}; stroke-width: {look.width}; stroke-dasharray: {DASHES[look.dash]}; fill: {fill}"
    return (
        f".node.s-{status} > path {{ {stroke}; }}\n"
        f".badge.s-{status}, .bar.s-{status} {{ border: {max(1.0, look.width / 1.5):.1f}px {look.dash} {border}; "
        f"background-color: {fill}; }}\n"
        f".glyph.s-{status} {{ color: {border}; }}"
    )


CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The `Content-Security-Policy` that pages are made for."""

_NO_ICON: Final = "data:,"
"""Browsers would ask for one otherwise."""


def _draw_icon(status: str) -> str:
    """The icon of a tab, which says how the run stands; a plain dot where there is no run."""
    look = LOOKS.get(status)
    colour = "#7a8a94" if look is None else look.border
    shape = TAB_SHAPES.get(status, TAB_SHAPES[""])
    group = f"<g fill='{colour}' stroke='{colour}'>{shape}</g>"
    image = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>{group}</svg>"
    return f"data:image/svg+xml,{quote(image)}"


def page(title: str, *children: Child, class_: str = "", status: str = "") -> str:
    """A whole page of the viewer. `status`: of the run that it shows."""
    head = (
        element("link", rel="stylesheet", href=static_url("viewer.css")),
        element("script", src=static_url("viewer.js"), defer=True),
    )
    links = [element("a", name, href=url) for name, url in (("Runs", runs_url()), ("Flows", flows_url()))]
    top = element("nav", element("strong", "FlowEngine"), links, class_="top")
    return _write_document(title, head, top, children, class_, status)


def bare_page(title: str, style: str, *children: Child) -> str:
    """A page for somebody who may see nothing else: no script, no links. `style`: where its style sheet is."""
    return _write_document(title, element("link", rel="stylesheet", href=style), None, children, "", None)


def bare_file(title: str, style: str, *children: Child) -> str:
    """The same as one file: `style` is the style sheet itself."""
    return _write_document(title, _file_head(style), None, children, "", None)


def file_page(title: str, *children: Child, class_: str = "", status: str = "") -> str:
    """A page that is one file: script and style are in it, and nothing else may be loaded."""
    head = _file_head(style_sheet(), f"script-src {inline_source(script())}; ")
    return _write_document(
        title, head, None, (*children, element("script", Markup(script()))), f"{class_} file".strip(), status
    )


def _file_head(style: str, scripts: str = "") -> Child:
    policy = f"default-src 'none'; style-src {inline_source(style)}; {scripts}img-src data:; base-uri 'none'"
    return element("meta", http_equiv="Content-Security-Policy", content=policy), element("style", Markup(style))


def _write_document(title: str, head: Child, top: Child, children: Child, class_: str, status: str | None) -> str:
    """`status`: None for a page without an icon."""
    name = f"{badge_text(status)[0]} {title}" if status else title
    metas = (
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href=_NO_ICON if status is None else _draw_icon(status), id="icon"),
        element("title", f"{name} · FlowEngine"),
    )
    body = element("body", top, children, class_=class_ or None)
    text = join(["\n", element("html", element("head", metas, head), "\n", body, lang="en"), "\n"])
    return whole(f"<!doctype html>{text}")
