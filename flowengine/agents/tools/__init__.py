"""Calls tools: Python functions and those of MCP servers, behind one `Tool`.

A result is data, whatever it says. Begin with `tool`, then `toolset`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
