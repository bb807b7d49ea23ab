"""Discloses skills in the open Agent Skills format step by step: a catalogue, bodies, files and scripts.

Skill files are strangers' text: they can never raise what an agent may do. Begin with `skill_store`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
