"""A picture as DOT text. Every label is data: nothing in it is read as DOT, as an escape or as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import SHAPES, cut, heading, lines_of, look_of, tooltip_of

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
    """The picture for Graphviz.

    >>> print(to_dot(Picture("f", (PictureNode("a", "agent"),), ())).splitlines()[0])
    digraph {
    """
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    names = {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}
    yield "digraph {"
    yield f"  graph [label={quoted(heading(picture))} labelloc=t fontsize=15 rankdir=TB nodesep=0.35 ranksep=0.5"
    yield '    fontname="Helvetica,Arial,sans-serif" bgcolor="white" pad=0.25]'
    yield '  node [fontname="Helvetica,Arial,sans-serif" fontsize=11 margin="0.16,0.08"]'
    yield '  edge [fontname="Helvetica,Arial,sans-serif" fontsize=10 arrowsize=0.7]'
    for node in picture.nodes:
        yield f"  {names[node.id]} [{_node(node)}]"
    for edge in picture.edges:
        yield f"  {names[edge.source]} -> {names[edge.target]} [{_edge(edge)}]"
    yield "}"


def _node(node: PictureNode) -> str:
    look = look_of(node)
    shape = _SHAPES[SHAPES.get(node.kind, "rectangle")]
    dash = "" if look.dash == "solid" else f",{look.dash}"
    return (
        f'{shape}{dash}" label={quoted(lines_of(node))} tooltip={quoted([tooltip_of(node)])} '
        f'color="{look.border}" fillcolor="{look.fill}" fontcolor="#1f2a33" penwidth={look.width}'
    )


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
