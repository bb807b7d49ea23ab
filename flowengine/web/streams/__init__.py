"""Streams runs to pages as AG-UI and the AI SDK have it. Begin with `stream_routes`."""
