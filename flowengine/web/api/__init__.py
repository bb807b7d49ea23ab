"""Serves flows and runs as JSON, with the OpenAPI documents that say how. Begin with `api` and `flow_routes`."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
