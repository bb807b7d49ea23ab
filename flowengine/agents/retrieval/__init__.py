"""Finds texts again: what every retriever promises, and the one that needs nothing but SQLite."""
