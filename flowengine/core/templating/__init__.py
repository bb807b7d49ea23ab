"""Renders templates: Jinja2's parser with an evaluator of our own, over plain data and within limits.

No attribute of a Python object can be reached. Begin with `compile`, then `limits`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
