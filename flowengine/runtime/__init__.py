"""Starts, resumes and forks runs: in this process (`local`) or by the workers of a queue (`queue`).

It decides nothing about what runs next: that is the walk's. Begin with `run`, then `local`; `schedules`, `sessions`
and `telemetry` stand beside them.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
