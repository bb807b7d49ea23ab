"""Keeps what happened: the events of runs in memory, SQLite and PostgreSQL, and reads them again.

A run is its events: a checkpoint, a trace and a picture are readings of them. It knows no flow file. Begin with
`stores`, then `codec` and `replay`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
