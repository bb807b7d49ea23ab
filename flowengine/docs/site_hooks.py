"""Hooks of the site's build (`mkdocs.yml`): every page as Markdown beside its HTML, and `llms.txt`, which lists them.

The pages are written for readers of the files as they are, so lists in them are indented as far as their text. The
site's renderer wants four blanks a level, which `indent_by_four` gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from posixpath import relpath
from typing import Any, Final

_ITEM: Final = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)]) +(?=\S)")
_FENCE: Final = re.compile(r" *(`{3,}|~{3,})")
_BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_pages: list[Any] = []
"""Those of the navigation of this build, in its order."""


def on_nav(nav: Any, **_: Any) -> None:
    _pages[:] = nav.pages


def on_page_markdown(markdown: str, **_: Any) -> str:
    return indent_by_four(markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Name the page's Markdown in its head, for programs that read it."""
    address = relpath(page.file.src_uri, page.url or ".")
    return output.replace("</head>", f'<link rel="alternate" type="text/markdown" href="{address}"></head>', 1)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the Markdown of every page, and `llms.txt`."""
    site = Path(config.site_dir)
    for page in _pages:
        file = site / page.file.src_uri
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page.file.content_string, "utf-8")
    about, address = config.site_description or "", config.site_url or ""
    (site / "llms.txt").write_text(write_index(config.site_name, about, address, _pages), "utf-8")


def write_index(name: str, about: str, address: str, pages: Iterable[Any]) -> str:
    """`llms.txt`: each page with its first sentence, in the sections of the navigation (https://llmstxt.org).

    `address`: that of the site, with a slash at its end; empty: links are relative.
    """
    lines, section = [f"# {name}", "", f"> {about}"], None
    for page in pages:
        above = [str(each.title) for each in page.ancestors]
        top = above[-1] if above else "Pages"
        if top != section:
            section = top
            lines += ["", f"## {section}", ""]
        lines.append(f"- [{page.title}]({address}{page.file.src_uri}): {_first_sentence(page.file.content_string)}")
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    """The first sentence of a page's text.

    >>> _first_sentence("# Tea\\n\\nIt is [made](how.md) of leaves: green ones. And of water.")
    'It is made of leaves: green ones.'
    """
    paragraphs = (" ".join(each.split()) for each in _BLOCK.sub("", text).split("\n\n"))
    plain = next((each for each in paragraphs if each and not each.startswith(("#", "|", "!", "-", ">"))), "")
    said = re.match(r".+?\.(?= |$)", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", plain))
    return f"{plain.rstrip(':')}." if said is None else said[0]


def indent_by_four(text: str) -> str:
    """Indent what belongs to a list's item by four blanks for each level, and begin each list after an empty line.

    >>> print(indent_by_four("1. one\\n   - two\\n     goes on\\n\\nend"))
    1. one
        - two
            goes on
    <BLANKLINE>
    end
    """
    lines: list[str] = []
    offsets: list[int] = []
    fence = ""
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if fence or not line.strip():
            lines.append(_move_line(line, offsets))
            fence = "" if line.strip() == fence else fence
            continue
        while offsets and indent < offsets[-1]:
            offsets.pop()
        moved = _move_line(line, offsets)
        content = line[offsets[-1] if offsets else 0 :]
        item, opened = _ITEM.match(content), _FENCE.match(content)
        if item is not None:
            if not offsets and lines and lines[-1] and not lines[-1].startswith(" ") and not _ITEM.match(lines[-1]):
                lines.append("")
            moved = f"{'    ' * len(offsets)}{content.lstrip(' ')}"
            offsets.append((offsets[-1] if offsets else 0) + item.end())
        elif opened is not None:
            fence = opened[1]
        lines.append(moved)
    return "\n".join(lines)


def _move_line(line: str, offsets: list[int]) -> str:
    return f"{'    ' * len(offsets)}{line[offsets[-1] if offsets else 0 :]}" if line.strip() else ""
