"""Skills in the open Agent Skills format, disclosed progressively: a catalogue, bodies, files and scripts."""
