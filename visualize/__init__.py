"""Draws flows and runs: readings of a graph and of a journal's events. Nothing here runs a node."""
