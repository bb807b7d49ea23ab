"""Finds texts again: what every retriever promises, and the one that needs nothing but SQLite.

Begin with `retriever`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
