"""Tells people of the questions that runs wait with, and takes their answers by signed links."""
