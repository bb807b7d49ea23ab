"""Streams runs to pages as AG-UI and the AI SDK have it. Begin with `stream_routes`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
