"""Decides which input of a flow gets a chat's message, and which of its outputs is the answer's text. Pure.

The rules read the flow's declaration alone, so the same flow is always called the same way; where they leave a choice
the flow is refused, with what would decide it:

1. The message goes to the only required input that is a text; where there are several, or none, to the one named
   `message`, `question` or `prompt`; else to the only text input there is. Texts with an `enum` are no messages.
   A file of the message goes to the only input that is a file; of several to the one named `file`, `image` or
   `document`.
2. The whole conversation goes to an input `messages` of the type `array`, where there is one.
3. The text is the only output; of several the one named `reply`, `answer`, `text` or `message`; else the only one that
   the file shows to be a text.
4. The text is streamed while it is written where that output is the output of one agent and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from flowengine.core import TRAITS, dumps
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.nodes import REQUIRED, InputField

_MESSAGE_NAMES: Final = ("message", "question", "prompt")
_FILE_NAMES: Final = ("file", "image", "document")
_TEXT_NAMES: Final = ("reply", "answer", "text", "message")
_HISTORY: Final = "messages"
_ASKING: Final = frozenset({"approval", "tool"})
"""Kinds of nodes that may ask; agents may for their tools, and packages' kinds for reasons of their own."""


class TextOutput(NamedTuple):
    """The answer of a flow that is called by chat."""

    name: str
    """The output that is the answer."""
    agent: str | None
    """The node whose words are that output, as they are; None: the text is known at the end."""


def find_message_input(flow: Flow) -> tuple[str | None, str | None]:
    """The inputs for the newest message and for the whole conversation; one of them is there. `DefinitionError` where
    the declaration leaves open which is meant.

    >>> from flowengine import FunctionNode
    >>> find_message_input(Flow("f", {"a": FunctionNode(print)}, inputs={"topic": "string", "words": "integer"}))
    ('topic', None)
    """
    inputs = flow.plan.inputs
    if inputs is None:
        return "message", None
    history = _HISTORY if _HISTORY in inputs and _kind_of(inputs[_HISTORY]) == "array" else None
    texts = [name for name, field in inputs.items() if _kind_of(field) == "string" and not _has_choices(field)]
    required = [name for name in texts if inputs[name].default is REQUIRED]
    message = _only(required) or _only(name for name in required or texts if name in _MESSAGE_NAMES) or _only(texts)
    if message is None and (history is None or required):
        reason = f"its text inputs are {', '.join(texts)}" if texts else "none of its inputs is a text"
        raise DefinitionError(
            f"flow '{flow.name}' cannot be called by chat: which input gets the message is open, for {reason}; "
            f"name one of them `message`"
        )
    return message, history


def find_file_input(flow: Flow) -> str | None:
    """The input for a message's file; None where there is none. `DefinitionError` where several could be meant.

    >>> from flowengine import FunctionNode
    >>> find_file_input(Flow("f", {"a": FunctionNode(print)}, inputs={"photo": "file", "text": "string"}))
    'photo'
    """
    names = [name for name, field in (flow.plan.inputs or {}).items() if field.type == "file"]
    choice = _only(names) or _only(name for name in names if name in _FILE_NAMES)
    if choice is None and names:
        raise DefinitionError(
            f"flow '{flow.name}': which input gets the file is open, for its files are {', '.join(names)}; name one of "
            f"them `file`, or give them in `inputs`"
        )
    return choice


def find_text_output(flow: Flow) -> TextOutput:
    """The output that is the text; `DefinitionError` where the declaration leaves open which is meant.

    >>> from flowengine import FunctionNode
    >>> find_text_output(Flow("f", {"a": FunctionNode(print), "b": FunctionNode(print, needs=["a"])}))
    TextOutput(name='b', agent=None)
    """
    plan = flow.plan
    names = [plan.graph.ids[leaf] for leaf in plan.graph.leaves] if plan.outputs is None else list(plan.outputs)
    shapes: Mapping[str, Any] = {} if plan.outputs is None else outputs_schema_of(flow).get("properties", {})
    by_name = _only(name for name in names if name in _TEXT_NAMES)
    text = _only(names) or by_name or _only(name for name in names if shapes.get(name) == {"type": "string"})
    if text is None:
        raise DefinitionError(
            f"flow '{flow.name}' cannot be called by chat: which output is the answer's text is open, for its outputs "
            f"are {', '.join(names) or 'none'}; name one of them `reply`"
        )
    return TextOutput(text, _agent_of(flow, text))


def may_ask(flow: Flow) -> bool:
    """Tells whether a run of it may wait for a person, as far as that is known before it runs.

    >>> from flowengine import FunctionNode
    >>> may_ask(Flow("f", {"a": FunctionNode(print)}))
    False
    """
    for node in flow.plan.all_nodes.values():
        tooling = tooling_of(node)
        if node.kind in _ASKING or node.kind not in TRAITS or (tooling and (tooling.sets or tooling.servers)):
            return True
    return False


def tooling_of(node: Any) -> Any:
    """Returns the tools of a node's agent; None if it has no agent."""
    agent = getattr(node, "agent", None)
    return getattr(getattr(agent, "prototype", agent), "tooling", None)


def outputs_schema_of(flow: Flow) -> Mapping[str, Any]:
    """The JSON Schema of a flow's outputs; of one that was built in Python only their names are known."""
    spec = spec_of(flow)
    if spec is not None:
        from flowengine.flowfile.analysis import outputs_schema  # YAML only where there is a file.

        return outputs_schema(spec)
    declared = flow.plan.outputs
    if declared is None:
        return {"type": "object"}
    properties: dict[str, Any] = {name: {} for name in declared}
    return {"type": "object", "properties": properties, "required": list(declared), "additionalProperties": False}


def to_text(value: Any) -> str:
    """An output as the text of an answer: a text as it is, anything else as JSON.

    >>> to_text("Hello"), to_text({"a": 1}), to_text(None)
    ('Hello', '{"a": 1}', '')
    """
    return value if isinstance(value, str) else "" if value is None else dumps(value)


def _agent_of(flow: Flow, output: str) -> str | None:
    """The agent whose words are an output."""
    spec = spec_of(flow)
    if flow.plan.outputs is None:
        node = output
    elif spec is None:
        return None
    else:
        from flowengine.flowfile.analysis import lone_path  # As above.

        path = lone_path(spec.outputs[output])
        if path is None or len(path) != 3 or (path[0], path[2]) != ("nodes", "output"):
            return None
        node = path[1]
    return node if flow.plan.definitions[node].kind == "agent" else None


@lru_cache
def spec_of(flow: Flow) -> Any:
    """The flow as its file had it when it was loaded; None for one that was built in Python."""
    plan = flow.plan
    if plan.source is None or plan.path is None:
        return None
    from flowengine.flowfile import load_flow  # As above.

    return load_flow(plan.path, text=plan.source)


def _kind_of(field: InputField) -> str | None:
    """Its JSON type, as far as the declaration says it."""
    return field.type if field.schema is None else field.schema.get("type")


def _has_choices(field: InputField) -> bool:
    return field.enum is not None or "enum" in (field.schema or {})


def _only(names: Iterable[str]) -> str | None:
    items = list(names)
    return items[0] if len(items) == 1 else None
