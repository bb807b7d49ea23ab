"""Shortens fragments that are too long for a prompt, by a model or by rules. Begin with `compressor`."""
