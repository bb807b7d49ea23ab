"""Serves pages and an HTTP API over a store of runs. Needs the extra `ui` (`flowengine.version`)."""
