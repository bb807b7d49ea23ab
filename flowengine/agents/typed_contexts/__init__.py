"""Defines typed contexts: data of a declared shape, the tools that work on it, and how it is shown to a model.

Begin with `typed`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
