"""Keeps journals in a SQLite file; several runs share one commit. Begin with `store`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
