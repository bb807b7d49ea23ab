"""Holds what all rooms share: contexts, results, records, budgets, values, files, schemas, frozen where they are data.

It knows no node, model or journal. Begin with `context`, then `records`. `templating`, `masking` and `storage` are
folders of their own.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
