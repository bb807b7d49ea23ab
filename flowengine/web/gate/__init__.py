"""Decides who gets in, what a request may send, and in which words it is refused. Begin with `safety` and `gate`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
