"""Turns YAML into a checked and compiled flow: every problem of a file in one pass, each with its place and a proposal.

It runs nothing and asks no model. Begin with `loader`, which names the stages in their order; each stage is a folder:
`yaml`, `schema`, `kinds`, `analysis`, `checks`, `risks`, `estimate`, `project`, `compile`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
