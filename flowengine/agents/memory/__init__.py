"""Scoped memory: what a bot remembers of a workspace, of its channels and of their threads.

The public names are here. Begin with `open_database`, then `scopes`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
