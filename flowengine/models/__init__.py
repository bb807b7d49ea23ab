"""Asks models: requests and replies, providers, prices, rate limits, and the stand-in that works offline.

It knows neither agents nor runs. The primary entry point is `Models`; begin with `model`, then `open`. `http` speaks
the providers' protocols, `litellm` the rest, `wrappers` put retries, limits and prices round a model.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
