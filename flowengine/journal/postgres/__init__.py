"""Keeps journals in PostgreSQL, for workers on several machines. Begin with `store`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
