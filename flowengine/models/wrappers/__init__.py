"""Wraps a model: retries, rate limits, bounds, prices, caches; each knows the model inside and nothing else."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
