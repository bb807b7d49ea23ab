"""Scoped memory: what a bot remembers of a workspace, of its channels and of their threads."""
