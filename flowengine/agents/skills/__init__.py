"""Discloses skills in the open Agent Skills format step by step: a catalogue, bodies, files and scripts."""
