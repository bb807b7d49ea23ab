"""Runs flows by workers that share a PostgreSQL store. Begin with `worker`, then `task`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
