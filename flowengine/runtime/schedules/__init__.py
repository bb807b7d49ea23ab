"""Starts runs at the times that schedules of the project file name."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
