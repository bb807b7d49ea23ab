"""Makes the nodes and the graph that the engine runs. Begin with `compiler`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
