"""Every door to runs over HTTP, and the client that goes through them.

One service starts, follows, answers and ends runs; the viewer, the HTTP API, OpenAI's protocol, MCP, streams for pages
and webhooks are ways to it. Begin with `app` (the viewer) and `serving_app` (flows for other programs): each puts its
parts together. Needs the extras `ui` or `serve` (`flowengine.version`).
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
