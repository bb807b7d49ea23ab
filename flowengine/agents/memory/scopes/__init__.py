"""Keeps what was said in channels and what models made of it, a scope at a time. Begin with `memories`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
