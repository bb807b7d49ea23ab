"""Speaks the protocols of providers over HTTP. Begin with `native_model`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
