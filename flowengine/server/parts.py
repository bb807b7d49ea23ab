"""What the handlers of a server share, made once by `make_app`."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request

from flowengine.server.acts import Acts
from flowengine.server.following import Following
from flowengine.server.library import Library
from flowengine.server.safety import Keys
from flowengine.server.shelf import Shelf

__all__ = ["Parts", "parts_of"]


class Parts(NamedTuple):
    shelf: Shelf
    library: Library
    following: Following
    acts: Acts
    keys: Keys
    by: str
    """Who answers in the pages."""


def parts_of(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts
