"""Flows written in Python with the words of the file: every method and argument is a key of the format.

What is built is the file's own text, so it is checked as a file is, its errors have the same codes, and
`to_yaml` is the flow. For nodes made of Python objects see `Flow`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, Unpack, cast, get_type_hints

from flowengine.core import unprefixed_name
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.flow import Flow
from flowengine.models import PromptCaching, ReasoningEffort, ServiceTier, Verbosity

__all__ = ["FlowBuilder"]

# --- The keys of a flow file, as `FlowBuilder` takes them


class FlowKeywords(TypedDict, total=False):
    description: str
    inputs: Mapping[str, Any]
    shared_state: Mapping[str, Any]
    agents: Mapping[str, Any]
    mcp_servers: Sequence[Mapping[str, Any]]
    defaults: Mapping[str, Any]
    limits: Mapping[str, Any]


class _Node(TypedDict, total=False):
    description: str
    needs: str | Sequence[str]
    when: str | bool
    join: Literal["some", "all", "always"]
    set: Mapping[str, Any]
    on_error: str | Mapping[str, Any]
    trust: str | Mapping[str, str]


class _Bounded(_Node, total=False):
    timeout: str | float
    effect: Literal["none", "idempotent", "external"]
    cache: bool
    version: str
    limits: Mapping[str, Any]


class _Work(_Bounded, total=False):
    retry: int | Mapping[str, Any]


class _Model(TypedDict, total=False):
    model: str
    temperature: float
    top_p: float
    seed: int
    stop: str | Sequence[str]
    reasoning_effort: ReasoningEffort
    verbosity: Verbosity
    thinking: int | Mapping[str, int]
    presence_penalty: float
    frequency_penalty: float
    service_tier: ServiceTier
    parallel_tool_calls: bool
    model_options: Mapping[str, Any]
    max_tokens: int
    max_retries: int
    fallbacks: str | Sequence[str]
    prompt_cache: PromptCaching
    locale: Literal["en", "ja", "zh"]


class AgentKeywords(_Work, _Model, total=False):
    agent: str | Mapping[str, Any]
    prompt: str
    attach: Sequence[str]
    instructions: str
    system_message: str
    output: Any
    tools: Any
    approve: str | Sequence[str]
    approvers: str | Sequence[str]
    mcp_servers: Sequence[Mapping[str, Any]]
    max_tool_rounds: int
    context: Any
    contexts: Any
    memory: str | Mapping[str, Any]
    skills: str | Sequence[str]
    context_budget: int
    guardrails: Mapping[str, Any]
    history_size: int
    improve: Mapping[str, Any]
    evaluate: Mapping[str, Any]
    routing: Mapping[str, Any]


class RoutingKeywords(_Work, _Model, total=False):
    min_confidence: float
    fallback: str
    target: str
    attach: Sequence[str]
    agent: str | Mapping[str, Any]


class ConditionKeywords(_Work, total=False):
    if_: str | bool
    then: Any
    else_: Any
    cases: Sequence[Mapping[str, Any]]
    switch: str
    call: Any
    routes: Mapping[str, Any]


class EvaluationKeywords(_Work, _Model, total=False):
    instructions: str
    criteria: Mapping[str, str]
    threshold: float
    target: str
    attach: Sequence[str]
    routes: Mapping[str, Any]
    call: Any
    agent: str | Mapping[str, Any]


class FunctionKeywords(_Work, total=False):
    with_: Mapping[str, Any]
    untrusted: bool


class ToolKeywords(_Work, total=False):
    with_: Mapping[str, Any]


class HttpKeywords(_Work, total=False):
    method: Literal["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    headers_env: Mapping[str, str]
    json: Any
    form: Mapping[str, Any]
    body: str
    expect: Mapping[str, Any]
    follow: int


class CodeKeywords(_Work, total=False):
    with_: Mapping[str, Any]


class SubflowKeywords(_Bounded, total=False):
    with_: Mapping[str, Any]


class ApprovalKeywords(_Node, total=False):
    form: Mapping[str, Any]
    form_for: str | Sequence[str]
    approvers: str | Sequence[str]
    notify: Any
    expires: str | float
    on_expire: str


class LoopKeywords(_Bounded, total=False):
    initial: Mapping[str, Any]
    until: str
    carry: Mapping[str, Any]
    on_exhausted: Literal["fail", "continue"]
    best_by: str


class MapKeywords(_Bounded, total=False):
    as_: str
    concurrency: int
    on_item_error: Literal["fail", "collect", "skip"]
    prompt_cache: Literal["auto", "warm"]
    until: str
    result: Any


_TOP: Final = tuple(FlowKeywords.__annotations__)
_RENAMED: Final = {"with_": "with", "if_": "if", "else_": "else", "as_": "as"}
"""Keys that are words of Python."""
_GIVEN: Final[Mapping[str, Sequence[str]]] = {
    "routing": ("instruction", "routes"),
    "function": ("call",),
    "tool": ("tool",),
    "http": ("url",),
    "code": ("code",),
    "subflow": ("flow",),
    "approval": ("message", "routes"),
    "loop": ("max_iterations", "nodes"),
    "map": ("over", "nodes"),
}
"""Keys that the methods name themselves."""


class FlowBody:
    """Nodes on one level: the flow's own, or those inside a loop or a map.

    Each method adds one node; keywords are the node's keys (`with_`, `if_`, `else_`, `as_` for those that are
    words of Python). A function or a class stands for its `module:name`.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}

    def agent(self, node: str, **keys: Unpack[AgentKeywords]) -> None:
        """A model is asked: `instructions`, `prompt`, `model`, `output`, `tools`, …"""
        self._add(node, None, keys, AgentKeywords)

    def routing(
        self, node: str, *, instruction: str, routes: Mapping[str, Any], **keys: Unpack[RoutingKeywords]
    ) -> None:
        """A model chooses a route."""
        self._add(node, "routing", {"instruction": instruction, "routes": routes, **keys}, RoutingKeywords)

    def condition(self, node: str, **keys: Unpack[ConditionKeywords]) -> None:
        """`if_` with `then` and `else_`; or `cases`; or `call` with `routes`."""
        self._add(node, "condition", keys, ConditionKeywords)

    def evaluation(self, node: str, **keys: Unpack[EvaluationKeywords]) -> None:
        """A model or a function (`call`) gives a score."""
        self._add(node, "evaluation", keys, EvaluationKeywords)

    def function(self, node: str, call: Callable[..., Any] | str, **keys: Unpack[FunctionKeywords]) -> None:
        """A function is called, with the templates in `with_`."""
        self._add(node, "function", {"call": call, **keys}, FunctionKeywords)

    def tool(self, node: str, tool: Callable[..., Any] | str, **keys: Unpack[ToolKeywords]) -> None:
        """A tool is called without a model: a function, or `server.tool` of an MCP server."""
        self._add(node, "tool", {"tool": tool, **keys}, ToolKeywords)

    def http(self, node: str, url: str, **keys: Unpack[HttpKeywords]) -> None:
        """A request is sent to where the project allows it (`allow_http`)."""
        self._add(node, "http", {"url": url, **keys}, HttpKeywords)

    def code(self, node: str, code: str, **keys: Unpack[CodeKeywords]) -> None:
        """A few lines of Python run in the sandbox; `return` gives the output."""
        self._add(node, "code", {"code": code, **keys}, CodeKeywords)

    def subflow(self, node: str, flow: str, **keys: Unpack[SubflowKeywords]) -> None:
        """Another file runs as one node."""
        self._add(node, "subflow", {"flow": flow, **keys}, SubflowKeywords)

    def approval(self, node: str, message: str, routes: Mapping[str, Any], **keys: Unpack[ApprovalKeywords]) -> None:
        """A person decides."""
        self._add(node, "approval", {"message": message, "routes": routes, **keys}, ApprovalKeywords)

    @contextmanager
    def loop(self, node: str, *, max_iterations: int, **keys: Unpack[LoopKeywords]) -> Generator[FlowBody]:
        """`with flow.loop("polish", max_iterations=4, until="…") as body: body.agent(…)`"""
        with self._hold_body(node, "loop", {"max_iterations": max_iterations, **keys}, LoopKeywords) as body:
            yield body

    @contextmanager
    def map(self, node: str, *, over: str, **keys: Unpack[MapKeywords]) -> Generator[FlowBody]:
        """`with flow.map("investigate", over="inputs.questions") as body: body.agent(…)`"""
        with self._hold_body(node, "map", {"over": over, **keys}, MapKeywords) as body:
            yield body

    @contextmanager
    def _hold_body(self, node: str, kind: str, keys: Mapping[str, Any], allowed: type[Any]) -> Generator[FlowBody]:
        _check_keys(node, kind, keys, allowed)
        body = FlowBody()
        yield body
        self._add(node, kind, {**keys, "nodes": body.nodes}, allowed)

    def _add(self, node: str, kind: str | None, keys: Mapping[str, Any], allowed: type[Any]) -> None:
        _check_keys(node, kind or "agent", keys, allowed)
        if node in self.nodes:
            raise DefinitionError(f"there is a node '{node}' already")
        entry = {_RENAMED.get(key, key): _to_plain(value, node) for key, value in keys.items()}
        self.nodes[node] = entry if kind is None else {"type": kind, **entry}


def _check_keys(node: str, kind: str, keys: Mapping[str, Any], allowed: type[Any]) -> None:
    """`DefinitionError` for a key that the kind of node does not have; `allowed` declares the optional ones."""
    names = [*get_type_hints(allowed), *_GIVEN.get(kind, ())]
    for key in keys:
        if key not in names:
            hint = did_you_mean(key, names)
            raise DefinitionError(f"'{node}': a node of type {kind} has no key '{_RENAMED.get(key, key)}'{hint}")


class FlowBuilder(FlowBody):
    """A flow in the making.

    >>> flow = FlowBuilder("greeting", inputs={"name": {"type": "string"}})
    >>> flow.agent("greet", instructions="Greet the user.", prompt="{{ inputs.name }}", model="offline")
    >>> flow.output("text", "{{ nodes.greet.output }}")
    >>> print(flow.to_yaml(), end="")
    flowengine: v1
    name: greeting
    inputs:
      name:
        type: string
    nodes:
      greet:
        instructions: Greet the user.
        prompt: "{{ inputs.name }}"
        model: offline
    outputs:
      text: "{{ nodes.greet.output }}"
    >>> flow.build().name
    'greeting'
    """

    def __init__(self, name: str, **keys: Unpack[FlowKeywords]) -> None:
        """`keys` are the file's: `description`, `inputs`, `shared_state`, `agents`, `defaults`, `limits`."""
        super().__init__()
        for key in keys:
            if key not in _TOP:
                raise DefinitionError(f"a flow has no key '{key}'{did_you_mean(key, _TOP)}")
        self.name = name
        self._keys = {key: _to_plain(keys[key], key) for key in _TOP if key in keys}
        self._outputs: dict[str, Any] = {}

    def output(self, name: str, value: Any) -> None:
        """An output and its template."""
        self._outputs[name] = _to_plain(value, name)

    def to_yaml(self) -> str:
        """The flow as a file; `Flow.from_text` of it is the flow that `build` gives."""
        from flowengine.flowfile.yaml import to_yaml  # Who only imports the name need not load YAML.

        outputs = {"outputs": self._outputs} if self._outputs else {}
        return to_yaml({"flowengine": "v1", "name": self.name, **self._keys, "nodes": self.nodes, **outputs})

    def build(
        self,
        *,
        root: str | os.PathLike[str] = ".",
        model: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Flow:
        """The flow, checked as a file in the folder `root` is; `FlowError` holds every problem.

        `environ`: where keys and addresses are looked up; None: the process's own environment.
        """
        return Flow.from_text(self.to_yaml(), Path(root, f"{self.name}.yaml"), model=model, environ=environ)


def _to_plain(value: Any, where: str) -> Any:
    """The value as YAML may hold it; a function or a class as `module:name`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Mapping):
        return {str(key): _to_plain(each, where) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_to_plain(each, where) for each in cast("Sequence[Any]", value)]
    if callable(value):
        return _code_path(value, where)
    raise DefinitionError(f"'{where}': a file cannot hold a {type(value).__name__}")


def _code_path(value: Callable[..., Any], where: str) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or "<" in name or "." in name:
        raise DefinitionError(
            f"'{where}': {name or type(value).__name__} has no name that a file could call it by: "
            f"define it at the top of a module"
        )
    return f"{unprefixed_name(module)}:{name}"
