"""Checks a flow that could be read: one kind of mistake a file, each with its place and a proposal."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
