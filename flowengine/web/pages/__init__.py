"""Answers the addresses of pages: the viewer's, its forms, and those of signed links. Begin with `pages`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
