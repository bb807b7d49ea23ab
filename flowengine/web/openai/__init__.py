"""Serves flows as models, in the form of OpenAI's API. Begin with `openai_routes`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
