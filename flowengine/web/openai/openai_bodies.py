"""Reads the bodies of OpenAI's chat completions and responses, and writes their answers. Pure.

A flow is a model. What generates is the flow's own matter, so settings such as `temperature` change nothing; what would
change the meaning of the call (`tools`, several choices, content that is neither text nor a file) is refused.
What the Responses API calls `instructions` is a system message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from flowengine.core import is_map
from flowengine.errors import FlowEngineError
from flowengine.web.service import TokenCounts

MOST_MESSAGES: Final = 2_000
"""Messages of a conversation, at most."""


class OpenAiError(FlowEngineError):
    """A request that is not answered, in OpenAI's words."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        kind: str = "invalid_request_error",
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after


def error_body(error: OpenAiError) -> Mapping[str, Any]:
    """
    >>> error_body(OpenAiError("no such model", 404, code="model_not_found"))["error"]["code"]
    'model_not_found'
    """
    fields = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
    return {"error": fields}


class ChatCall(NamedTuple):
    """A chat call, from either API."""

    model: str
    messages: Sequence[Mapping[str, str]]
    """The conversation as `{role, content}`, the newest message, a person's, at the end."""
    stream: bool
    store: bool
    """Whether a later response may follow its answer."""
    session: str | None
    """The conversation's name; None: the messages are all that there is of it."""
    previous: str | None
    """Id of the response that this one follows."""
    inputs: Mapping[str, Any]
    """Inputs of the flow beside the message."""
    tells_progress: bool
    """Whether node progress is told, as reasoning."""
    tells_usage: bool
    """Whether the end of the stream tells the usage."""
    metadata: Mapping[str, str]
    files: Sequence[str] = ()
    """Contents (`data:` addresses) or addresses of the files of the newest message."""
    has_files: bool = False
    """Whether any message has one."""
    background: bool = False
    """Whether the answer is not waited for."""

    @property
    def message(self) -> str:
        return self.messages[-1]["content"]

    @property
    def history(self) -> Sequence[Mapping[str, str]]:
        """The earlier messages, without developer messages."""
        return [each for each in self.messages[:-1] if each["role"] in ("user", "assistant")]


def read_chat_call(body: Mapping[str, Any], session: str | None = None) -> ChatCall:
    """The body of `/v1/chat/completions`; `session` is that of the header."""
    if body.get("n") not in (None, 1):
        raise OpenAiError("a flow gives one answer: `n` is 1", param="n")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise OpenAiError("`messages` is a list with at least one message", param="messages")
    if body.get("background"):
        raise OpenAiError("`background` is a response's: ask /v1/responses", param="background")
    entries = [_read_message(each, f"messages[{at}]") for at, each in enumerate(cast("list[Any]", messages))]
    tells_usage = _read_flag(_read_object(body, "stream_options"), "include_usage")
    return _make_call(body, entries, "messages", session, None, False, tells_usage)


def read_responses_call(body: Mapping[str, Any], session: str | None = None) -> ChatCall:
    """The body of `/v1/responses`; `session` is that of the header."""
    content = body.get("input")
    if isinstance(content, str):
        entries = [_InputMessage("user", content)]
    elif isinstance(content, list) and content:
        entries = [_read_message(each, f"input[{at}]") for at, each in enumerate(cast("list[Any]", content))]
    else:
        raise OpenAiError("`input` is a text, or a list with at least one message", param="input")
    instructions = body.get("instructions")
    if not isinstance(instructions, str | None):
        raise OpenAiError("`instructions` is a text", param="instructions")
    if instructions:
        entries.insert(0, _InputMessage("system", instructions))
    conversation = body.get("conversation")
    if is_map(conversation):
        conversation = conversation.get("id")
    if conversation is not None and not isinstance(conversation, str):
        raise OpenAiError("`conversation` is an id, or an object with one", param="conversation")
    tells_progress = bool(_read_object(body, "reasoning").get("summary"))
    previous = body.get("previous_response_id")
    if previous is not None and (conversation is not None or not isinstance(previous, str)):
        raise OpenAiError(
            "`previous_response_id` is an id, and goes without `conversation`", param="previous_response_id"
        )
    call = _make_call(body, entries, "input", conversation or session, previous, tells_progress, True)
    if call.background and not call.store:
        raise OpenAiError("a response in the background is stored: leave `store` out", param="store")
    return call


def _make_call(
    body: Mapping[str, Any],
    messages: Sequence[_InputMessage],
    param: str,
    session: str | None,
    previous: str | None,
    tells_progress: bool,
    tells_usage: bool,
) -> ChatCall:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise OpenAiError("`model` is the name of a flow", param="model")
    for name, why in _REFUSED.items():
        if body.get(name):
            raise OpenAiError(why, param=name)
    newest = messages[-1]
    if newest.role != "user":
        raise OpenAiError(f"the last message is a user's, not of the role '{newest.role}'", param=param)
    if len(messages) > MOST_MESSAGES:
        raise OpenAiError(f"a conversation has at most {MOST_MESSAGES:,} messages", param=param)
    inputs = _read_object(body, "inputs", ": the flow's other inputs by name")
    metadata = _read_object(body, "metadata", " of texts")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise OpenAiError("`metadata` is an object of texts", param="metadata")
    session_name = session or metadata.get("session")
    if session_name is not None and not 1 <= len(session_name.strip()) <= 150:
        raise OpenAiError("a conversation is named by 1 to 150 characters", param="metadata")
    stream, store = _read_flag(body, "stream"), _read_flag(body, "store", default=True)
    tells_progress = _read_flag(body, "progress") or tells_progress
    return ChatCall(
        model,
        [{"role": each.role, "content": each.content} for each in messages],
        stream,
        store,
        session_name,
        previous,
        inputs,
        tells_progress,
        tells_usage,
        metadata,
        newest.files,
        any(each.files for each in messages),
        _read_flag(body, "background"),
    )


def _read_object(body: Mapping[str, Any], name: str, what: str = "") -> Mapping[str, Any]:
    """An object that may be left out; `what` says more of it where it is none."""
    value = body.get(name)
    if value is not None and not is_map(value):
        raise OpenAiError(f"`{name}` is an object{what}", param=name)
    return value or {}


def _read_flag(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise OpenAiError(f"`{name}` is true or false", param=name)
    return default if value is None else value


_REFUSED: Final = {
    "tools": "a flow calls tools of its own: leave `tools` out",
    "functions": "a flow calls tools of its own: leave `functions` out",
    "audio": "a flow answers with text: leave `audio` out",
    "logprobs": "a flow tells no probabilities: leave `logprobs` out",
}
"""Parameter that a flow cannot follow → what the client is told."""
_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})


class _InputMessage(NamedTuple):
    role: str
    content: str
    files: Sequence[str] = ()


def _read_message(item: Any, place: str) -> _InputMessage:
    message = item if is_map(item) else dict[str, Any]()
    if message.get("type", "message") != "message":
        raise OpenAiError(f"{place}: a flow reads messages, not '{message['type']!s:.40}'", param=place)
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise OpenAiError(f"{place}: a message has the role system, user or assistant", param=place)
    content = message.get("content")
    if role == "assistant" and not content:  # It called tools, or refused.
        return _InputMessage(role, "")
    files: list[str] = []
    return _InputMessage(role, read_content(content, place, files if role == "user" else None), files)


def read_content(content: Any, place: str, files: list[str] | None = None) -> str:
    """The text of a message; files among it are added to `files`, and are refused where that is None."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise OpenAiError(f"{place}.content is a text, or a list of parts", param=place)
    texts: list[str] = []
    for part in cast("list[Any]", content):
        fields = part if is_map(part) else dict[str, Any]()
        kind = fields.get("type")
        if files is not None and isinstance(kind, str) and kind in _FILES:
            files.append(_read_file(fields, f"{place}.content"))
            continue
        text = fields.get("text", fields.get("refusal"))
        if not isinstance(kind, str) or kind not in _TEXTS or not isinstance(text, str):
            raise OpenAiError(f"{place}.content: a flow's message is text, and no '{kind!s:.40}'", param=place)
        texts.append(text)
    return "".join(texts)


_FILES: Final = frozenset({"image_url", "input_image", "file", "input_file"})


def _read_file(part: Mapping[str, Any], place: str) -> str:
    """The content or the address of an image or a file, in the form of either API."""
    kind: str = part["type"]
    inner = part.get(kind)
    fields = inner if is_map(inner) else part
    address = fields.get("url" if kind == "image_url" else "image_url" if kind == "input_image" else "file_data")
    if address is None and kind == "input_file":
        address = fields.get("file_url")
    if not isinstance(address, str) or not address.startswith(("data:", "https://", "http://")):
        raise OpenAiError(
            f"{place}: a file is its content (data:TYPE;base64,…) or an address, and no id of one", param=place
        )
    return address


# --- Answers


class ChatAnswer(NamedTuple):
    """A run's answer to a chat."""

    run_id: str
    model: str
    created: int
    """Unix seconds."""
    status: str
    """The run's."""
    text: str
    reasoning: str
    tokens: TokenCounts
    session: str | None = None


def model_object(name: str, created: int, description: str = "") -> Mapping[str, Any]:
    """A line of `/v1/models`."""
    return {"id": name, "object": "model", "created": created, "owned_by": "flowengine", "description": description}


def chat_usage(tokens: TokenCounts) -> Mapping[str, Any]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def chat_completion(answer: ChatAnswer) -> Mapping[str, Any]:
    """The whole answer of `/v1/chat/completions`."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    return {
        "id": f"chatcmpl-{answer.run_id}",
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": chat_usage(answer.tokens),
        "flowengine": {"run_id": answer.run_id, "status": answer.status},
    }


class ResponseSettings(NamedTuple):
    """The settings of a response that its call names; kept with the run where the response is stored."""

    metadata: Mapping[str, str]
    previous: str | None = None
    store: bool = True
    background: bool = False

    @classmethod
    def of(cls, call: ChatCall) -> ResponseSettings:
        return cls(call.metadata, call.previous, call.store, call.background)


def response_object(
    answer: ChatAnswer, call: ResponseSettings, *, status: str = "completed", error: Mapping[str, str] | None = None
) -> Mapping[str, Any]:
    """The answer of `/v1/responses`, as far as it is there."""
    is_done = status == "completed"
    metadata = {**call.metadata, "flowengine_run_id": answer.run_id, "flowengine_status": answer.status}
    return {
        "id": f"resp_{answer.run_id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": answer.model,
        "output": output_items(answer) if is_done else [],
        "usage": response_usage(answer.tokens) if is_done else None,
        "background": call.background,
        "error": error,
        "incomplete_details": None,
        "instructions": None,
        "metadata": metadata,
        "parallel_tool_calls": False,
        "previous_response_id": call.previous,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": None,
        "store": call.store,
    }


def response_usage(tokens: TokenCounts) -> Mapping[str, Any]:
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens": tokens.completion,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.total,
    }


def output_items(answer: ChatAnswer) -> Sequence[Mapping[str, Any]]:
    """Returns the requested progress, and the message."""
    items = [message_item(answer, answer.text)]
    return [reasoning_item(answer, answer.reasoning), *items] if answer.reasoning else items


def message_item(answer: ChatAnswer, text: str | None) -> Mapping[str, Any]:
    """None: the message begins."""
    content = [] if text is None else [text_part(text)]
    status = "in_progress" if text is None else "completed"
    return {
        "type": "message",
        "id": f"msg_{answer.run_id}",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def reasoning_item(answer: ChatAnswer, text: str | None) -> Mapping[str, Any]:
    """None: it begins."""
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{answer.run_id}", "summary": summary}


def text_part(text: str) -> Mapping[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
