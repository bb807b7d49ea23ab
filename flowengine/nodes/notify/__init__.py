"""Tells people of the questions that runs wait with, and takes their answers by signed links.

Begin with `notifier`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
