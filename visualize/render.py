"""Renders a picture to bytes: an SVG by our own layout, a PNG through `dot`, and the forms that are text.

In Mermaid ids are ours (n0, n1, …), and whatever in a label could mean something is an entity.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from flowengine.core.node_traits import TRAITS
from flowengine.errors import PictureError
from visualize.picture import Picture, PictureEdge, PictureNode, close_containers
from visualize.style import LOOKS, RISKS, Heat, cut, heading, lines_of, look_of, tooltip_of
from visualize.svg import Theme, to_svg

__all__ = ["escape_text", "render", "to_dot", "to_mermaid"]

# --- DOT text: every label is data in it

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
    return "\n".join(_list_dot_lines(picture)) + "\n"


_Bodies: TypeAlias = Mapping[str | None, Sequence[PictureNode]]
_Names: TypeAlias = Mapping[str, str]


def _name_nodes(picture: Picture) -> _Names:
    return {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}


def _list_dot_lines(picture: Picture) -> Iterator[str]:
    bodies, names = picture.bodies(), _name_nodes(picture)
    yield "digraph {"
    yield f"  graph [label={quote_lines(heading(picture))} labelloc=t fontsize=15 rankdir=TB nodesep=0.35"
    yield '    ranksep=0.5 fontname="Helvetica,Arial,sans-serif" bgcolor="white" pad=0.25 compound=true]'
    yield '  node [fontname="Helvetica,Arial,sans-serif" fontsize=11 margin="0.16,0.08"]'
    yield '  edge [fontname="Helvetica,Arial,sans-serif" fontsize=10 arrowsize=0.7]'
    yield from _list_dot_nodes(bodies, names, None, "  ")
    for edge in picture.edges:
        # An edge leads to the first node of a cluster and from its last one, and is cut off at its border.
        tail = f" ltail=cluster_{names[edge.source]}" if edge.source in bodies else ""
        head = f" lhead=cluster_{names[edge.target]}" if edge.target in bodies else ""
        ends = names[_find_end(bodies, edge.source, -1)], names[_find_end(bodies, edge.target, 0)]
        yield f"  {ends[0]} -> {ends[1]} [{_edge(edge)}{tail}{head}]"
    yield "}"


def _list_dot_nodes(bodies: _Bodies, names: _Names, parent: str | None, indent: str) -> Iterator[str]:
    for node in bodies[parent]:
        if node.id in bodies:
            yield f"{indent}subgraph cluster_{names[node.id]} {{"
            yield f"{indent}  graph [{_format_cluster(node)}]"
            yield from _list_dot_nodes(bodies, names, node.id, indent + "  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{names[node.id]} [{_format_node(node)}]"


def _find_end(bodies: _Bodies, node: str, which: int) -> str:
    while node in bodies:
        node = bodies[node][which].id
    return node


def _format_node(node: PictureNode) -> str:
    look = look_of(node)
    shape = _SHAPES[TRAITS[node.kind].shape]
    dash = "" if look.dash == "solid" else f",{look.dash}"
    return f'{shape}{dash}" {_format_words(node)} color="{look.border}" fillcolor="{look.fill}" penwidth={look.width}'


def _format_cluster(node: PictureNode) -> str:
    look = look_of(node)
    style = "filled" if look.dash == "solid" else f"filled,{look.dash}"
    paint = f'pencolor="{look.border}" fillcolor="{look.fill}80" penwidth={look.width}'  # 80: half transparent.
    return f'style="{style}" {_format_words(node)} {paint} fontsize=11 labelloc=t margin=14'


def _format_words(node: PictureNode) -> str:
    return f'label={quote_lines(lines_of(node))} tooltip={quote_lines([tooltip_of(node)])} fontcolor="#1f2a33"'


def _edge(edge: PictureEdge) -> str:
    words = cut(" | ".join(edge.labels), 40)
    label = f" label={quote_lines([f'  {words}  '])}" if words else ""  # The blanks keep the words off the line.
    return f"{_EDGES[edge.state]}{' penwidth=3' if edge.critical else ''}{label}"


def quote_lines(lines: list[str]) -> str:
    r"""Lines as one DOT string: quotes, backslashes and entities are characters like any other.

    >>> print(quote_lines(['say "hi"', r'a\nb', '<b>&amp;']))
    "say \"hi\"\na\\nb\n<b>&amp;amp;"
    """
    escaped = (line.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


# --- Mermaid text: containers are subgraphs

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
    return "\n".join(_format_lines(picture)) + "\n"


def _format_lines(picture: Picture) -> Iterator[str]:
    names = _name_nodes(picture)
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


def _format_level(bodies: _Bodies, names: _Names, parent: str | None, indent: str) -> Iterator[str]:
    for node in bodies[parent]:
        if node.id in bodies:
            yield f"{indent}subgraph {names[node.id]}[{_quote_words(node)}]"
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


# --- Bytes of any format

Format = Literal["svg", "png", "dot", "mermaid", "json"]

DOT_NODES: Final = 1_500
"""Above this many nodes `dot` is not asked: it takes 2 s for 1,000 and does not finish 5,000."""


def render(
    picture: Picture, form: str = "svg", timeout: float = 10.0, *, theme: Theme = "auto", heat: Heat = ""
) -> bytes:
    """The picture in a format, as UTF-8 where it is text. `timeout`: seconds that `dot` may take for a PNG.

    `theme` and `heat` (what boxes are coloured by instead of their status) are those of an SVG.

    Containers with large bodies are drawn closed, except as json.
    Raises `PictureError` where a PNG is asked for and `dot` cannot draw it; an SVG is always drawn.
    """
    if form not in ("svg", *_FORMATS):
        raise PictureError(f"unknown format '{form}'; known are: svg, {', '.join(_FORMATS)}")
    if form == "svg":
        return to_svg(close_containers(picture, DOT_NODES), theme=theme, heat=heat).encode()
    return _FORMATS[form](picture if form == "json" else close_containers(picture, DOT_NODES), timeout)


def _render_png(picture: Picture, timeout: float) -> bytes:
    if len(picture.nodes) > DOT_NODES:
        raise PictureError(
            f"{len(picture.nodes):,} nodes are too many for a PNG; ask for svg, which is drawn without dot"
        )
    return _run_dot(picture, "png", timeout)


def _run_dot(picture: Picture, form: str, timeout: float) -> bytes:
    dot = shutil.which("dot")
    if dot is None:
        raise PictureError("a PNG is drawn by Graphviz, and `dot` is not installed (Debian: apt-get install graphviz)")
    # In a session of its own, so that whatever `dot` itself has started is ended with it.
    process = subprocess.Popen(
        [dot, f"-T{form}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            drawn, said = process.communicate(to_dot(picture).encode(), timeout)
        except BaseException as error:  # An interrupt leaves no `dot` behind, either.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise PictureError(
                f"`dot` did not finish within {timeout:g} s; ask for svg, or for a smaller picture"
            ) from error
    if process.returncode != 0:
        raise PictureError(f"`dot` failed: {said.decode(errors='replace').strip()[:200]}")
    return drawn


def _render_json(picture: Picture, timeout: float) -> bytes:
    run = None if picture.run is None else picture.run._asdict()
    nodes, edges = [each._asdict() for each in picture.nodes], [each._asdict() for each in picture.edges]
    return (json.dumps({"name": picture.name, "run": run, "nodes": nodes, "edges": edges}, indent=1) + "\n").encode()


_FORMATS: Final[dict[str, Callable[[Picture, float], bytes]]] = {
    "png": _render_png,
    "dot": lambda picture, timeout: to_dot(picture).encode(),
    "mermaid": lambda picture, timeout: to_mermaid(picture).encode(),
    "json": _render_json,
}
