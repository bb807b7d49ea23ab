"""Webhooks that start runs, and the call-backs that tell what became of them. Begin with `webhooks`."""
