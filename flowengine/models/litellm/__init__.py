"""Asks through the litellm library the providers whose protocol is not spoken here."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
