"""Runs flows in this process: starts, resumes, forks them, and runs tables of rows.

Begin with `local`, then `local_execution`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
