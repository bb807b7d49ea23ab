"""Makes pages about flows and runs: functions from data to HTML text. It serves nothing and keeps no state."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
