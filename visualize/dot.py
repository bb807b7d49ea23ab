"""Makes a `graphviz.Digraph` of a picture; containers are clusters.

Quoting, clusters and the text are the package's work. Every label is data: no entity, escape or HTML of it counts.
The package is imported only where a Digraph is wanted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from flowengine.core import TRAITS
from flowengine.errors import PictureError
from visualize.picture import Picture, PictureEdge, PictureNode
from visualize.style import cut, heading, lines_of, look_of, tooltip_of

if TYPE_CHECKING:
    from graphviz import Digraph

DOT_NODES: Final = 1_500
"""Above this many nodes `dot` is not asked: it takes 2 s for 1,000 and does not finish 5,000."""

_FONT: Final = "Helvetica,Arial,sans-serif"

_SHAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "rounded": {"shape": "box", "style": "rounded,filled"},
    "hexagon": {"shape": "hexagon", "style": "filled", "margin": "0.02,0.01"},
    "diamond": {"shape": "box", "style": "diagonals,filled"},
    "octagon": {"shape": "octagon", "style": "filled", "margin": "0.05,0.02"},
    "rectangle": {"shape": "box", "style": "filled"},
    "stack": {"shape": "box3d", "style": "filled"},
    "folder": {"shape": "folder", "style": "filled"},
    "house": {"shape": "house", "style": "filled"},
}

_EDGES: Final[Mapping[str, Mapping[str, str]]] = {
    "declared": {"color": "#5b6770", "fontcolor": "#38424a"},
    "taken": {"color": "#1f2a33", "fontcolor": "#1f2a33", "penwidth": "1.8"},
    "not_taken": {"color": "#a9b2b8", "fontcolor": "#7b868d", "style": "dashed", "arrowhead": "empty"},
    "undecided": {"color": "#a9b2b8", "fontcolor": "#7b868d", "style": "dotted"},
}

_Bodies: TypeAlias = Mapping[str | None, Sequence[PictureNode]]
_Names: TypeAlias = Mapping[str, str]


def make_digraph(picture: Picture) -> Digraph:
    """The picture as a `graphviz.Digraph`: `.source`, `.render()` and `.pipe()` are the package's.

    >>> print(make_digraph(Picture("f", (PictureNode("a", "agent"),), ())).source.splitlines()[0])
    digraph {
    """
    from graphviz import Digraph

    title = _label(heading(picture))
    graph: Any = Digraph(  # Its attributes are not typed.
        graph_attr={
            **{"label": title, "labelloc": "t", "fontsize": "15", "rankdir": "TB", "nodesep": "0.35"},
            **{"ranksep": "0.5", "fontname": _FONT, "bgcolor": "white", "pad": "0.25", "compound": "true"},
        },
        node_attr={"fontname": _FONT, "fontsize": "11", "margin": "0.16,0.08"},
        edge_attr={"fontname": _FONT, "fontsize": "10", "arrowsize": "0.7"},
    )
    bodies = picture.bodies()
    names = {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}
    _add_nodes(graph, bodies, names, None)
    for edge in picture.edges:
        # An edge leads to the first node of a cluster and from its last one, and is cut off at its border.
        ends = {
            **({"ltail": f"cluster_{names[edge.source]}"} if edge.source in bodies else {}),
            **({"lhead": f"cluster_{names[edge.target]}"} if edge.target in bodies else {}),
        }
        tail, head = _find_end(bodies, edge.source, -1), _find_end(bodies, edge.target, 0)
        graph.edge(names[tail], names[head], **_list_edge_attributes(edge), **ends)
    return graph


def _add_nodes(graph: Any, bodies: _Bodies, names: _Names, parent: str | None) -> None:
    for node in bodies[parent]:
        if node.id in bodies:
            with graph.subgraph(name=f"cluster_{names[node.id]}") as cluster:
                cluster.attr("graph", **_list_cluster_attributes(node))
                _add_nodes(cluster, bodies, names, node.id)
        else:
            graph.node(names[node.id], **_list_node_attributes(node))


def _find_end(bodies: _Bodies, node: str, which: int) -> str:
    while node in bodies:
        node = bodies[node][which].id
    return node


def _list_node_attributes(node: PictureNode) -> Mapping[str, str]:
    look, shape = look_of(node), _SHAPES[TRAITS[node.kind].shape]
    style = shape["style"] if look.dash == "solid" else f"{shape['style']},{look.dash}"
    paint = {"color": look.border, "fillcolor": look.fill, "penwidth": f"{look.width}"}
    return {**shape, "style": style, **_list_words(node), **paint}


def _list_cluster_attributes(node: PictureNode) -> Mapping[str, str]:
    look = look_of(node)
    style = "filled" if look.dash == "solid" else f"filled,{look.dash}"
    # 80: half transparent.
    paint = {"pencolor": look.border, "fillcolor": f"{look.fill}80", "penwidth": f"{look.width}"}
    return {"style": style, **_list_words(node), **paint, "fontsize": "11", "labelloc": "t", "margin": "14"}


def _list_words(node: PictureNode) -> Mapping[str, str]:
    return {"label": _label(lines_of(node)), "tooltip": _label([tooltip_of(node)]), "fontcolor": "#1f2a33"}


def _list_edge_attributes(edge: PictureEdge) -> Mapping[str, str]:
    words = cut(" | ".join(edge.labels), 40)
    label = {"label": _label([f"  {words}  "])} if words else {}  # The blanks keep the words off the line.
    return {**_EDGES[edge.state], **({"penwidth": "3"} if edge.critical else {}), **label}


def _label(lines: Sequence[str]) -> str:
    r"""Lines as one label, whose characters all stand for themselves.

    >>> print(_label([r'a\nb', 'R&amp;D']))
    a\\nb\nR&amp;amp;D
    """
    from graphviz import escape, nohtml

    return nohtml(r"\n".join(escape(line.replace("&", "&amp;")) for line in lines))


def draw_with_dot(picture: Picture, form: str, timeout: float) -> bytes:
    """The picture as `dot` draws it, in one of its formats; `timeout`: seconds that it may take.

    Raises `PictureError` where `dot` is missing, fails, or does not end in time.
    """
    dot = shutil.which("dot")
    if dot is None:
        raise PictureError("Graphviz is wanted here, and `dot` is not installed (Debian: apt-get install graphviz)")
    # In a session of its own, so that whatever `dot` itself has started is ended with it. The package's own call
    # knows no time limit.
    process = subprocess.Popen(
        [dot, f"-T{form}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            image, complaint = process.communicate(make_digraph(picture).source.encode(), timeout)
        except BaseException as error:  # An interrupt leaves no `dot` behind, either.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise PictureError(
                f"`dot` did not finish within {timeout:g} s; ask for svg, or for a smaller picture"
            ) from error
    if process.returncode != 0:
        raise PictureError(f"`dot` failed: {complaint.decode(errors='replace').strip()[:200]}")
    return image
