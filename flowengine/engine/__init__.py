"""Runs graphs: the walk decides what runs next, the scheduler runs it and journals what happens.

It knows neither models nor files nor a clock for its decisions. Begin with `walk`, then `scheduler` and `state`;
`ports` says what it asks of a journal and of nodes.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
