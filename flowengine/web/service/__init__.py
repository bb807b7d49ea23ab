"""Starts, follows, answers, resumes and cancels runs of a set of flows. It knows no HTTP; begin with `run_service`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
