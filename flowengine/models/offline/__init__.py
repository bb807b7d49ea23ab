"""Stands in for a model where none is chosen: answers by rules, costs nothing, and says so."""
