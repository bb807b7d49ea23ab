"""Speaks to servers of tools by the Model Context Protocol. Begin with `server_clients`, then `owner`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
