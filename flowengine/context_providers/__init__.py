"""Context providers: where the text of the `Context:` part of a prompt comes from."""
