"""Keeps single facts and finds them by their words. Begin with `sqlite`, then `ranking`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
