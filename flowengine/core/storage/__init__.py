"""Opens SQLite files and PostgreSQL, and says what their errors mean."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
