"""Renders a picture to bytes: through `dot` where that is installed and quick enough, else by our own layout."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from typing import Final, Literal

from flowengine.errors import PictureError
from visualize.dot import to_dot
from visualize.mermaid import to_mermaid
from visualize.picture import Picture, closed
from visualize.svg import to_svg

__all__ = ["DOT_NODES", "Format", "render"]

Format = Literal["svg", "png", "dot", "mermaid", "json"]

DOT_NODES: Final = 1_500
"""Above this many nodes `dot` is not asked: it takes 2 s for 1,000 and does not finish 5,000."""


def render(picture: Picture, form: str = "svg", timeout: float = 10.0) -> bytes:
    """The picture in a format, as UTF-8 where it is text. `timeout`: seconds that `dot` may take.

    Containers with large bodies are drawn closed, except as json.
    Raises `PictureError` where a PNG is asked for and `dot` cannot draw it; an SVG is always drawn.
    """
    if form not in _FORMATS:
        raise PictureError(f"unknown format '{form}'; known are: {', '.join(_FORMATS)}")
    return _FORMATS[form](picture if form == "json" else closed(picture, DOT_NODES), timeout)


def _render_svg(picture: Picture, timeout: float) -> bytes:
    if len(picture.nodes) <= DOT_NODES:
        try:
            return _run_dot(picture, "svg", timeout)
        except PictureError:
            pass  # Drawn by ourselves, below: that needs nothing and always ends.
    return to_svg(picture).encode()


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
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
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
    "svg": _render_svg,
    "png": _render_png,
    "dot": lambda picture, timeout: to_dot(picture).encode(),
    "mermaid": lambda picture, timeout: to_mermaid(picture).encode(),
    "json": _render_json,
}
