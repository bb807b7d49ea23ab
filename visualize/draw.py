"""Draws a flow or a run in a format: the functions of the package, and the one that takes the format's name.

What is drawn is anything with a `picture()`: a `Flow`, a `Run`, a run of a store; or a `Picture`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from flowengine.errors import PictureError
from visualize.dot import DOT_NODES, make_digraph
from visualize.mermaid import write_mermaid
from visualize.network import make_network
from visualize.picture import HasPicture, Picture, close_containers
from visualize.png import draw_png
from visualize.style import Heat
from visualize.svg import Paper, Theme, draw_svg

if TYPE_CHECKING:
    import networkx as nx
    from graphviz import Digraph

Format = Literal["svg", "png", "dot", "mermaid", "json"]
Drawn: TypeAlias = HasPicture | Picture


def to_svg(what: Drawn, *, theme: Theme = "auto", heat: Heat = "", paper: Paper = "") -> str:
    """A flow or a run as one SVG document, without script, font or request.

    `theme`: `light`, `dark`, or `auto` for the reader's. `heat`: what boxes of a run are coloured by instead of their
    status, `time` or `cost`. `paper`: `a3`, `a4`, `a5` or `letter`, which the picture then fits on, upright or across.
    """
    return draw_svg(_read_picture(what), theme=theme, heat=heat, paper=paper).text


def to_png(what: Drawn, *, theme: Theme = "light", heat: Heat = "", timeout: float = 10.0) -> bytes:
    """A flow or a run as PNG: the SVG at twice its size (with the extra `png`), else as `dot` draws it.

    `timeout`: seconds that `dot` may take. Raises `PictureError` where neither is there, and above 1,500 nodes.
    """
    return draw_png(_read_picture(what), theme=theme, heat=heat, timeout=timeout)


def to_graphviz(what: Drawn) -> Digraph:
    """A flow or a run as a `graphviz.Digraph` of its own: change it, `render` it, show it in a notebook."""
    return make_digraph(_read_picture(what))


def to_dot(what: Drawn) -> str:
    """A flow or a run as text for Graphviz; containers are clusters."""
    return to_graphviz(what).source


def to_mermaid(what: Drawn) -> str:
    """A flow or a run as text for Mermaid; containers are subgraphs."""
    return write_mermaid(_read_picture(what))


def to_networkx(what: Drawn) -> nx.MultiDiGraph[Any]:
    """A flow or a run as a `networkx.MultiDiGraph` of its own, with every body (`visualize.network` has the names)."""
    return make_network(what if isinstance(what, Picture) else what.picture())


def _read_picture(what: Drawn) -> Picture:
    """The picture as it is drawn: containers with large bodies are closed."""
    return close_containers(what if isinstance(what, Picture) else what.picture(), DOT_NODES)


def _write_json(what: Drawn) -> str:
    picture = what if isinstance(what, Picture) else what.picture()
    run = None if picture.run is None else picture.run._asdict()
    nodes, edges = [each._asdict() for each in picture.nodes], [each._asdict() for each in picture.edges]
    return json.dumps({"name": picture.name, "run": run, "nodes": nodes, "edges": edges}, indent=1) + "\n"


def render(
    what: Drawn,
    form: str = "svg",
    timeout: float = 10.0,
    *,
    theme: Theme = "auto",
    heat: Heat = "",
    paper: Paper = "",
) -> bytes:
    """A flow or a run in a format, as UTF-8 where it is text. The options are those of `to_svg` and `to_png`.

    Raises `PictureError` for an unknown format, and where a PNG cannot be drawn; an SVG is always drawn.
    """
    texts: dict[str, Callable[[Drawn], str]] = {
        "svg": partial(to_svg, theme=theme, heat=heat, paper=paper),
        "dot": to_dot,
        "mermaid": to_mermaid,
        "json": _write_json,
    }
    if form == "png":
        return to_png(what, theme="light" if theme == "auto" else theme, heat=heat, timeout=timeout)
    if form not in texts:
        raise PictureError(f"unknown format '{form}'; known are: {', '.join(FORMATS)}")
    return texts[form](what).encode()


FORMATS: Final[tuple[Format, ...]] = get_args(Format)
