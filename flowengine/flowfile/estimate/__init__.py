"""Says what a flow can cost at most before it runs. Begin with `plan_report`, then `bounds`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
