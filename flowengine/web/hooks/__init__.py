"""Webhooks that start runs, and the call-backs that tell what became of them. Begin with `webhooks`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
