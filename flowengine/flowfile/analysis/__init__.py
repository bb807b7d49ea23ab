"""Finds out what a flow's nodes can see: types, names and shapes of outputs, inputs and state."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
