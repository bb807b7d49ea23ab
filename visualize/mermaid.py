"""A picture as Mermaid text. Ids are ours (n0, n1, …); whatever in a label could mean something is an entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import LOOKS, SHAPES, cut, heading, lines_of

__all__ = ["escaped", "to_mermaid"]

_SHAPES: Final[Mapping[str, tuple[str, str]]] = {
    "rounded": ("(", ")"),
    "hexagon": ("{{", "}}"),
    "diamond": ("{", "}"),
    "octagon": ("([", "])"),
    "rectangle": ("[", "]"),
    "stack": ("[[", "]]"),
    "folder": ("[[", "]]"),
    "house": ("[/", "\\]"),
}

_ARROWS: Final[Mapping[str, str]] = {"declared": "-->", "taken": "==>", "not_taken": "-.->", "undecided": "-.->"}

_DASHES: Final[Mapping[str, str]] = {"solid": "", "dashed": ",stroke-dasharray:6 4", "dotted": ",stroke-dasharray:2 3"}


def to_mermaid(picture: Picture) -> str:
    """The picture for Mermaid.

    >>> print(to_mermaid(Picture("f", (PictureNode("end", "agent"),), ())))
    ---
    title: "f"
    ---
    flowchart TD
        n0("end<br/>agent")
    <BLANKLINE>
    """
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    names = {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}
    title = " — ".join(heading(picture)).replace("\\", "/").replace('"', "'")
    yield from ("---", f'title: "{title}"', "---", "flowchart TD")
    for node in picture.nodes:
        yield f"    {names[node.id]}{_node(node)}"
    for edge in picture.edges:
        yield f"    {names[edge.source]} {_arrow(edge)} {names[edge.target]}"
    for status in sorted({node.status for node in picture.nodes if node.status}):
        look = LOOKS[status]
        style = f"fill:{look.fill},stroke:{look.border},stroke-width:{look.width}px,color:#1f2a33{_DASHES[look.dash]}"
        members = ",".join(names[node.id] for node in picture.nodes if node.status == status)
        yield f"    classDef {status} {style}"
        yield f"    class {members} {status}"


def _node(node: PictureNode) -> str:
    opening, closing = _SHAPES[SHAPES.get(node.kind, "rectangle")]
    return f'{opening}"{"<br/>".join(escaped(line) for line in lines_of(node))}"{closing}'


def _arrow(edge: PictureEdge) -> str:
    label = f'|"{escaped(cut(" | ".join(edge.labels), 40))}"|' if edge.labels else ""
    return f"{_ARROWS[edge.state]}{label}"


def escaped(text: str) -> str:
    """Everything but letters, digits, blanks and harmless marks as a numbered entity.

    >>> escaped('say "hi" & 日本')
    'say #34;hi#34; #38; 日本'
    """
    return "".join(each if each.isalnum() or each in " .,:_–…·→✓✗○▶‖■" else f"#{ord(each)};" for each in text)
