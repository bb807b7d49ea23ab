"""Defines typed contexts: data of a declared shape, the tools that work on it, and how it is shown to a model."""
