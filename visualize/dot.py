"""Writes a picture as DOT text. Every label is data: nothing in it is read as DOT, as an escape or as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from flowengine.core.node_traits import traits_of
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import cut, heading, lines_of, look_of, tooltip_of

__all__ = ["quoted", "to_dot"]

_SHAPES: Final[Mapping[str, str]] = {
    "rounded": 'shape=box style="rounded,filled',
    "hexagon": 'shape=hexagon margin="0.02,0.01" style="filled',
    "diamond": 'shape=box style="diagonals,filled',
    "octagon": 'shape=octagon margin="0.05,0.02" style="filled',
    "rectangle": 'shape=box style="filled',
    "stack": 'shape=box3d style="filled',
    "folder": 'shape=folder style="filled',
    "house": 'shape=house style="filled',
}

_EDGES: Final[Mapping[str, str]] = {
    "declared": 'color="#5b6770" fontcolor="#38424a"',
    "taken": 'color="#1f2a33" fontcolor="#1f2a33" penwidth=1.8',
    "not_taken": 'color="#a9b2b8" fontcolor="#7b868d" style=dashed arrowhead=empty',
    "undecided": 'color="#a9b2b8" fontcolor="#7b868d" style=dotted',
}


def to_dot(picture: Picture) -> str:
    """The picture for Graphviz; containers are clusters.

    >>> print(to_dot(Picture("f", (PictureNode("a", "agent"),), ())).splitlines()[0])
    digraph {
    """
    return "\n".join(_Lines(picture).document()) + "\n"


class _Lines:
    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._names = {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}
        self._members: dict[str | None, list[PictureNode]] = {}
        for node in picture.nodes:
            self._members.setdefault(node.parent, []).append(node)

    def document(self) -> Iterator[str]:
        yield "digraph {"
        yield f"  graph [label={quoted(heading(self._picture))} labelloc=t fontsize=15 rankdir=TB nodesep=0.35"
        yield '    ranksep=0.5 fontname="Helvetica,Arial,sans-serif" bgcolor="white" pad=0.25 compound=true]'
        yield '  node [fontname="Helvetica,Arial,sans-serif" fontsize=11 margin="0.16,0.08"]'
        yield '  edge [fontname="Helvetica,Arial,sans-serif" fontsize=10 arrowsize=0.7]'
        yield from self._level(None, "  ")
        for edge in self._picture.edges:
            yield f"  {self._end(edge.source, -1)} -> {self._end(edge.target, 0)} [{_edge(edge)}{self._clip(edge)}]"
        yield "}"

    def _level(self, parent: str | None, indent: str) -> Iterator[str]:
        for node in self._members[parent]:
            if node.id in self._members:
                yield f"{indent}subgraph cluster_{self._names[node.id]} {{"
                yield f"{indent}  graph [{_format_cluster(node)}]"
                yield from self._level(node.id, indent + "  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{self._names[node.id]} [{_format_node(node)}]"

    def _end(self, node: str, which: int) -> str:
        """An edge leads to the first node of a cluster and from its last one, and is cut off at its border."""
        while node in self._members:
            node = self._members[node][which].id
        return self._names[node]

    def _clip(self, edge: PictureEdge) -> str:
        tail = f" ltail=cluster_{self._names[edge.source]}" if edge.source in self._members else ""
        head = f" lhead=cluster_{self._names[edge.target]}" if edge.target in self._members else ""
        return tail + head


def _format_node(node: PictureNode) -> str:
    look = look_of(node)
    shape = _SHAPES[traits_of(node.kind).shape]
    dash = "" if look.dash == "solid" else f",{look.dash}"
    return f'{shape}{dash}" {_format_words(node)} color="{look.border}" fillcolor="{look.fill}" penwidth={look.width}'


def _format_cluster(node: PictureNode) -> str:
    look = look_of(node)
    style = "filled" if look.dash == "solid" else f"filled,{look.dash}"
    paint = f'pencolor="{look.border}" fillcolor="{look.fill}80" penwidth={look.width}'  # 80: half transparent.
    return f'style="{style}" {_format_words(node)} {paint} fontsize=11 labelloc=t margin=14'


def _format_words(node: PictureNode) -> str:
    return f'label={quoted(lines_of(node))} tooltip={quoted([tooltip_of(node)])} fontcolor="#1f2a33"'


def _edge(edge: PictureEdge) -> str:
    words = cut(" | ".join(edge.labels), 40)
    label = f" label={quoted([f'  {words}  '])}" if words else ""  # The blanks keep the words off the line.
    return f"{_EDGES[edge.state]}{' penwidth=3' if edge.critical else ''}{label}"


def quoted(lines: list[str]) -> str:
    r"""Lines as one DOT string: quotes, backslashes and entities are characters like any other.

    >>> print(quoted(['say "hi"', r'a\nb', '<b>&amp;']))
    "say \"hi\"\na\\nb\n<b>&amp;amp;"
    """
    escaped = (line.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
