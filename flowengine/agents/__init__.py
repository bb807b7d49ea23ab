"""Asks models: one turn of an agent, with what it may draw on and the tools that it may call.

An agent knows neither a graph nor a journal: the gateway that it is given records its calls. The primary entry point
is `Agent`; begin reading with `turn`, which runs one turn, then `caller` and `tool_loop`. What feeds a prompt has
folders of its own: `context`, `memory`, `skills`, `retrieval`, `typed_contexts`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
