"""What a step of a flow does: one node kind a file, with the policies round it (retries, timeouts, re-use).

Only here the engine meets agents and models. Begin with `node`, then `policy` and `gateway`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
