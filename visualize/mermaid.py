"""Writes a picture as Mermaid text: containers are subgraphs.

Ids are ours (n0, n1, …), and whatever in a label could mean something is an entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from flowengine.core import TRAITS
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import LOOKS, RISKS, cut, heading, lines_of

_BRACKETS: Final[Mapping[str, tuple[str, str]]] = {
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

_HARMLESS: Final = " .,:_–…·→×✓✗○▶‖■"

_DASHES: Final[Mapping[str, str]] = {"solid": "", "dashed": ",stroke-dasharray:6 4", "dotted": ",stroke-dasharray:2 3"}


def write_mermaid(picture: Picture) -> str:
    """The picture for Mermaid.

    >>> print(write_mermaid(Picture("f", (PictureNode("end", "agent"),), ())))
    ---
    title: "f"
    ---
    flowchart TD
        n0("end<br/>agent")
    <BLANKLINE>
    """
    return "\n".join(_format_lines(picture)) + "\n"


def _format_lines(picture: Picture) -> Iterator[str]:
    names = {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}
    yield from ("---", f'title: "{_escape_title(" — ".join(heading(picture)))}"', "---", "flowchart TD")
    yield from _format_level(picture.bodies(), names, None, "    ")
    for edge in picture.edges:
        yield f"    {names[edge.source]} {_format_arrow(edge)} {names[edge.target]}"
    for status in sorted({each for node in picture.nodes if (each := node.status or node.risk)}):
        look = LOOKS.get(status) or RISKS[status]
        style = f"fill:{look.fill},stroke:{look.border},stroke-width:{look.width}px,color:#1f2a33{_DASHES[look.dash]}"
        marked = ",".join(names[node.id] for node in picture.nodes if (node.status or node.risk) == status)
        yield f"    classDef {status} {style}"
        yield f"    class {marked} {status}"


def _format_level(
    bodies: Mapping[str | None, Sequence[PictureNode]], names: Mapping[str, str], parent: str | None, indent: str
) -> Iterator[str]:
    for node in bodies[parent]:
        if node.id in bodies:
            # A title of several lines would lie below the nodes inside.
            words = escape_text(cut(" · ".join(lines_of(node)), 120))
            yield f'{indent}subgraph {names[node.id]}["{words}"]'
            yield from _format_level(bodies, names, node.id, indent + "    ")
            yield f"{indent}end"
        else:
            opening, closing = _BRACKETS[TRAITS[node.kind].shape]
            yield f"{indent}{names[node.id]}{opening}{_quote_words(node)}{closing}"


def _escape_title(text: str) -> str:
    r"""Inside of YAML's double quotes, where entities are not read.

    >>> _escape_title('a-b: "x" <b>')
    'a-b: \\U00000022x\\U00000022 \\U0000003cb\\U0000003e'
    """
    return "".join(
        each if each.isalnum() or each in _HARMLESS or each in "-—" else f"\\U{ord(each):08x}" for each in text
    )


def _quote_words(node: PictureNode) -> str:
    return f'"{"<br/>".join(escape_text(line) for line in lines_of(node))}"'


def _format_arrow(edge: PictureEdge) -> str:
    label = f'|"{escape_text(cut(" | ".join(edge.labels), 40))}"|' if edge.labels else ""
    return f"{_ARROWS[edge.state]}{label}"


def escape_text(text: str) -> str:
    """Everything but letters, digits, blanks and harmless marks as a numbered entity.

    >>> escape_text('say "hi" & 日本')
    'say #34;hi#34; #38; 日本'
    """
    return "".join(each if each.isalnum() or each in _HARMLESS else f"#{ord(each)};" for each in text)
