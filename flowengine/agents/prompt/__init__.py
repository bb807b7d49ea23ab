"""Builds what an agent sends to its model: instructions, context, questions and files, within the window."""
