"""Finds the files of a project that a question is about. Begin with `source_code`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
