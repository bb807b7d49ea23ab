"""Exports traces and metrics of runs, read from their journals: recording them costs a run nothing."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
