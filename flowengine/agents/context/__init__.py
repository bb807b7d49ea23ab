"""Provides the text of the `Context:` part of a prompt."""
