"""Serves flows and runs as JSON, with the OpenAPI documents that say how. Begin with `api` and `flow_routes`."""
