"""Implements `flowengine.client`: the clients, and their two ways to runs. Begin with `clients`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
