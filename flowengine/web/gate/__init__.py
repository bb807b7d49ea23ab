"""Decides who gets in, what a request may send, and in which words it is refused. Begin with `safety` and `gate`."""
