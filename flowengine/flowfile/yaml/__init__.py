"""Reads YAML with the place of every value, within bounds."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
