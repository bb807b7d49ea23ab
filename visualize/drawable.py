"""Lets a flow and a run show themselves: in a notebook, as a graph of networkx, as a Digraph of Graphviz.

Nothing of what draws is loaded before something is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx
    from graphviz import Digraph

    from visualize.picture import Picture


class Drawable:
    """Something that has a picture."""

    def picture(self) -> Picture:
        """The data of the picture, that the functions of `visualize` draw."""
        raise NotImplementedError

    @property
    def graph(self) -> nx.MultiDiGraph[Any]:
        """A new `networkx.MultiDiGraph`: nodes by their paths, with every attribute that `visualize.network` lists."""
        from visualize.draw import to_networkx

        return to_networkx(self)

    def graphviz(self) -> Digraph:
        """A new `graphviz.Digraph`: `.render()`, `.pipe()` and `.source` are the package's."""
        from visualize.draw import to_graphviz

        return to_graphviz(self)

    def _repr_svg_(self) -> str:
        from visualize.draw import to_svg

        return to_svg(self, theme="light")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What notebooks show: the picture, and the one line where they show no pictures."""
        return {"image/svg+xml": self._repr_svg_(), "text/plain": repr(self)}
