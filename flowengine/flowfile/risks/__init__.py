"""Follows strangers' text through a flow to what it could do there. Begin with `risk_paths`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
