"""Flows as services: an API over HTTP, and what other programs reach flows by."""
