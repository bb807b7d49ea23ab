"""Reads the project file and the Python code that flows name. Begin with `project`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
