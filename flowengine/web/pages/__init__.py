"""Answers the addresses of pages: the viewer's, its forms, and those of signed links. Begin with `pages`."""
