"""Provides the text of the `Context:` part of a prompt.

A context source turns a query into fragments; the packer keeps them within a budget. Begin with `provider`, then
`chain`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
