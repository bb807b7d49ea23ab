"""Builds what an agent sends to its model: instructions, context, questions and files, within the window.

It asks no model. Begin with `prompt_builder`; `chat_window` keeps a long talk within the model's window.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
