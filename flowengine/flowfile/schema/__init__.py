"""Declares what may stand in a flow file, as models that also make the reference. Begin with `flow_file`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
