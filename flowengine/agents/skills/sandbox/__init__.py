"""Runs the scripts of skills where they see their own files alone. Begin with `sandbox`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
