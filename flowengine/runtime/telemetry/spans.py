"""Folds the events of a run into its spans. Pure: it knows no exporter and no clock.

A run is a span, a resumed one a span each time that it goes on, linked to the one before. Below it are
its nodes, below a loop or a map the nodes inside, below an agent's node the agent, and below that its
model calls, tool calls and skill loads. What is said (prompts, answers, arguments) is left out unless it
is asked for, and masked then.

Ids follow from the run, so that the same run gives the same spans whenever and wherever it is exported, and what has
been exported keeps its ids when the run goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from flowengine.core import (
    TRAITS,
    EvaluationResult,
    ModelCall,
    NodeResult,
    Notice,
    ProviderFailed,
    Receipt,
    Retry,
    Reused,
    Round,
    SkillLoad,
    ToolCall,
    to_json_value,
)
from flowengine.core.masking import Masker
from flowengine.engine import (
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.runtime.telemetry import conventions as names
from flowengine.runtime.telemetry.conventions import (
    ToolRequestPart,
    input_messages,
    output_messages,
    requests_of,
    take_request,
)

_LONGEST: Final = 100_000
"""Characters of one attribute."""
_UNTOLD: Final = 2_000
"""Characters, more than a value has."""

Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened inside a span."""

    name: str
    at: float
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class Span:
    """One piece of a trace. Times are Unix seconds; attributes are texts, numbers, booleans, and lists of texts."""

    name: str
    start: float
    parent: Span | None = None
    end: float | None = None
    attributes: Attributes = field(default_factory=Attributes)
    marks: list[Mark] = field(default_factory=list[Mark])
    error: str | None = None
    """Why it failed."""
    link: Span | None = None
    """What it goes on from."""
    is_call: bool = False
    """Whether it leaves the process: a model or a tool is asked."""
    id: str = ""
    """16 hexadecimal digits."""
    trace_id: str = ""
    """32 hexadecimal digits, the same for all spans of a run."""


def spans_of(events: Iterable[Event], *, content: bool = False, masker: Masker | None = None) -> list[Span]:
    """The spans, parents before children. `content`: what is said too, masked by `masker` (by default a new one)."""
    fold = SpanFold(content, masker or Masker())
    for event in events:
        fold.take(event)
    return fold.spans


class SpanFold:
    """Takes the events of one run, in their order, and has its spans so far, parents before children."""

    def __init__(self, content: bool, masker: Masker) -> None:
        self.spans: list[Span] = []
        self._content = content
        self._masker = masker
        self._flow = ""
        self._run_id = ""
        self._trace_id = ""
        self._kinds: dict[str, str] = {}
        self._root: Span | None = None
        self._nodes: dict[str, Span] = {}
        self._agents: dict[str, Span] = {}
        self._requests: dict[str, list[ToolRequestPart]] = {}
        """Node → the tools that its models asked for, until they are called."""
        self._last = 0.0

    def take(self, event: Event) -> None:
        self._last = max(self._last, event.at)
        match event:
            case RunStarted():
                self._flow, self._run_id = event.flow, event.run_id
                self._trace_id = _hash(f"{event.run_id} {event.at!r}")[:32]  # Stores may share the ids of runs.
                self._kinds = dict(_list_kinds("", event.graph))
                self._begin(event.at)
            case RunResumed(at=at):
                self._begin(at)
            case RunFinished():
                self._finish(event)
            case NodeStarted(node=node, at=at):
                self._enter(node, at)
            case NodeRecorded(node=node, at=at, record=record):
                self._record(node, at, record)
            case NodeFinished(node=node, at=at, result=result):
                self._end(node, at, "succeeded", self._attributes_of_result(result))
                self._mark_evaluation(node, at, result)
            case NodeFailed(node=node, at=at, error=error, skipped=skipped):
                attributes = {names.ERROR_TYPE: error.type} | ({names.NODE_CAUSE: "error"} if skipped else {})
                self._end(node, at, "skipped" if skipped else "failed", attributes, self._masker.mask(error.message))
            case NodeCancelled(node=node, at=at):
                self._end(node, at, "cancelled", {})
            case NodeSkipped(node=node, at=at, cause=cause):
                if node not in self._nodes:
                    self._enter(node, at)
                self._end(node, at, "skipped", {names.NODE_CAUSE: cause})

    # --- the run

    def _begin(self, at: float) -> None:
        before = self._root
        if before is not None:
            self._close_open(self._last if before.end is None else before.end)
        attributes = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.WORKFLOW_NAME: self._flow,
            names.RUN_ID: self._run_id,
        }
        self._root = self._add(Span(f"{names.INVOKE_WORKFLOW} {self._flow}", at, None, None, attributes, link=before))

    def _finish(self, event: RunFinished) -> None:
        root = self._root
        if root is None:
            return
        root.end = event.at
        root.attributes[names.RUN_STATUS] = event.status
        if event.error is not None:
            root.attributes[names.ERROR_TYPE] = event.error.type
            root.error = self._masker.mask(event.error.message)
        if self._content and event.outputs is not None:
            root.attributes[names.RUN_OUTPUTS] = self._text(event.outputs)
        self._close_open(event.at)

    def _close_open(self, at: float) -> None:
        """Ends open spans at the unknown end of their process."""
        for span in [*self._agents.values(), *self._nodes.values(), *([self._root] if self._root else [])]:
            if span.end is None:
                span.end = at
        self._nodes.clear()
        self._agents.clear()

    def _add(self, span: Span) -> Span:
        span.trace_id = self._trace_id
        span.id = _hash(f"{self._trace_id} {len(self.spans)}")[:16]
        self.spans.append(span)
        return span

    # --- nodes

    def _enter(self, node: str, at: float) -> Span:
        kind = self._kinds.get(_path_in_file(node), "")
        attributes = {names.NODE: node, names.NODE_KIND: kind}
        span = self._add(Span(f"{kind} {node}".strip(), at, self._span_around(node), None, attributes))
        self._nodes[node] = span
        return span

    def _span_around(self, node: str) -> Span | None:
        """The container that the node is inside, else the run."""
        outer = node.rpartition(".")[0]
        if outer.endswith("]"):
            outer = outer[: outer.rindex("[")].removesuffix(".round")
        return self._nodes.get(outer, self._root) if outer else self._root

    def _agent(self, node: str, at: float) -> Span:
        """The agent of a node, from its first record on."""
        around = self._nodes.get(node) or self._enter(node, at)
        if not TRAITS[self._kinds.get(_path_in_file(node), "")].asks_models:
            return around
        if node not in self._agents:
            attributes = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: node.rpartition(".")[2]}
            name = f"{names.INVOKE_AGENT} {attributes[names.AGENT_NAME]}"
            self._agents[node] = self._add(Span(name, around.start, around, None, attributes))
        return self._agents[node]

    def _end(self, node: str, at: float, status: str, attributes: Attributes, error: str | None = None) -> None:
        agent = self._agents.pop(node, None)
        if agent is not None:
            agent.end, agent.error = at, error
        span = self._nodes.pop(node, None)
        if span is not None:
            span.end, span.error = at, error
            span.attributes |= {names.NODE_STATUS: status, **attributes}

    def _attributes_of_result(self, result: NodeResult) -> Attributes:
        attributes: Attributes = {} if result.route is None else {names.NODE_ROUTE: result.route}
        return {**attributes, names.NODE_OUTPUT: self._text(result.output)} if self._content else attributes

    def _mark_evaluation(self, node: str, at: float, result: NodeResult) -> None:
        evaluation = result.evaluation
        if not isinstance(evaluation, EvaluationResult):
            return
        attributes: Attributes = {
            names.EVALUATION_SCORE: evaluation.score,
            names.EVALUATION_LABEL: "pass" if evaluation.passed else "fail",
        }
        if self._content:
            attributes[names.EVALUATION_EXPLANATION] = self._masker.mask(evaluation.feedback)
        for span in reversed(self.spans):
            if span.attributes.get(names.NODE) == node:
                span.marks.append(Mark(names.EVALUATION, at, attributes))
                return

    # --- what happens inside of them

    def _record(self, node: str, at: float, record: Any) -> None:
        match record:
            case ModelCall():
                self._model_call(self._agent(node, at), at, record)
            case ToolCall():
                self._tool_call(self._agent(node, at), at, record)
            case SkillLoad():
                self._skill(self._agent(node, at), at, record)
            case Receipt():
                self._receipt(self._agent(node, at), at, record)
            case Retry() | Notice() | Round() | ProviderFailed() | Reused():
                self._mark(self._agent(node, at), at, record)
            case _:
                return

    def _model_call(self, agent: Span, at: float, call: ModelCall) -> None:
        request = call.request
        options = cast("Mapping[str, Any]", request.get("extra") or {})
        self._requests[agent.id] = requests_of(call.tool_calls)
        attributes: Attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER_NAME: call.provider,
            names.REQUEST_MODEL: str(request.get("model", call.model)).removeprefix(f"{call.provider}/"),
            names.RESPONSE_MODEL: call.model.removeprefix(f"{call.provider}/"),
            names.REQUEST_TEMPERATURE: request.get("temperature"),
            names.REQUEST_MAX_TOKENS: request.get("max_tokens"),
            **{name: self._masker.value(options.get(option)) for option, name in names.REQUEST_OPTIONS.items()},
            names.FINISH_REASONS: [call.finish_reason] if call.finish_reason else None,
            names.INPUT_TOKENS: call.prompt_tokens,
            names.OUTPUT_TOKENS: call.completion_tokens,
            names.CACHED_TOKENS: call.cached_tokens,
            names.CACHE_WRITE_TOKENS: call.cache_write_tokens,
            names.REASONING_TOKENS: call.reasoning_tokens,
            **dict.fromkeys(names.COSTS, call.cost_usd),
            names.PURPOSE: call.purpose,
            names.ATTEMPTS: call.attempts,
        }
        if self._content:
            attributes[names.INPUT_MESSAGES] = self._json(input_messages(call.messages))
            if call.error is None:
                attributes[names.OUTPUT_MESSAGES] = self._json(output_messages(call))
        name = f"{names.CHAT} {attributes[names.REQUEST_MODEL]}"
        span = self._call(agent, name, at, call.seconds, attributes)
        if call.error is not None:
            span.error = self._masker.mask(call.error)

    def _tool_call(self, agent: Span, at: float, call: ToolCall) -> None:
        if call.started:
            return  # Its end is told in a record of its own.
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: call.name,
            names.TOOL_CALL_ID: take_request(self._requests.get(agent.id, []), call),
            names.EFFECT: call.effect,
        }
        if self._content:
            attributes[names.TOOL_ARGUMENTS] = self._text(call.arguments)
            attributes[names.TOOL_RESULT] = self._text(call.result)
        span = self._call(agent, f"{names.EXECUTE_TOOL} {call.name}", at, call.seconds, attributes)
        if call.is_error:
            span.error = "the tool gave an error"
            span.attributes[names.ERROR_TYPE] = "tool_error"

    def _skill(self, agent: Span, at: float, load: SkillLoad) -> None:
        attributes: Attributes = {
            names.SKILL: load.skill,
            names.SKILL_LEVEL: load.level,
            names.SKILL_TOKENS: load.tokens,
            names.SKILL_MEMORY: load.memory,
        }
        self._call(agent, f"load_skill {load.skill}", at, load.seconds, attributes).is_call = False

    def _receipt(self, agent: Span, at: float, receipt: Receipt) -> None:
        """Makes one span per context provider of a prompt, because their loading is not timed separately."""
        tokens, kept_counts, dropped = Counter[str](), Counter[str](), Counter[str]()
        for row in receipt.fragments:
            source = str(row.get("source", ""))
            is_dropped = row.get("fate", row.get("status")) == "dropped"
            (dropped if is_dropped else kept_counts)[source] += 1
            tokens[source] += 0 if is_dropped else int(row.get("tokens") or 0)
        for source in tokens:
            attributes = {
                names.PROVIDER: source,
                names.CONTEXT_TOKENS: tokens[source],
                names.FRAGMENTS_KEPT: kept_counts[source],
                names.FRAGMENTS_DROPPED: dropped[source],
            }
            self._call(agent, f"provide_context {source}", at, 0.0, attributes).is_call = False

    def _mark(self, agent: Span, at: float, record: Any) -> None:
        attributes = {
            f"flowengine.{key}": self._masker.mask(value) if isinstance(value, str) else value
            for key, value in record._asdict().items()
            if isinstance(value, str | int | float | bool) and (self._content or key != "content")
        }
        agent.marks.append(Mark(f"flowengine.{type(record).__name__.lower()}", at, attributes))

    def _call(self, agent: Span, name: str, at: float, seconds: float, attributes: Attributes) -> Span:
        present = {key: value for key, value in attributes.items() if value is not None}
        return self._add(Span(name, max(agent.start, at - seconds), agent, at, present, is_call=True))

    def _json(self, messages: list[dict[str, Any]]) -> str:
        """Messages as JSON whose texts are masked and, above a length, cut: what is cut as JSON could not be read."""
        return json.dumps(self._mask(messages, _LONGEST // max(1, len(messages))), ensure_ascii=False)

    def _mask(self, value: Any, longest: int) -> Any:
        if isinstance(value, str):
            return self._mask_text(value, longest)
        if isinstance(value, list):
            return [self._mask(each, longest) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self._mask(each, longest) for key, each in cast("dict[str, Any]", value).items()}
        return value

    def _text(self, value: Any) -> str:
        """Any value as masked text of bearable length."""
        plain = to_json_value(value)
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        return self._mask_text(text, _LONGEST)

    def _mask_text(self, text: str, longest: int) -> str:
        """The masked text; of a longer one its beginning. Where it is cut, a part of a value would not be known as one:
        so more is masked than is told."""
        if len(text) <= longest:
            return self._masker.mask(text)
        masked = self._masker.mask(text[: longest + _UNTOLD])
        end = len(masked) - (_UNTOLD if len(text) > longest + _UNTOLD else 0)
        return f"{masked[: min(longest, end)]}…"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _list_kinds(prefix: str, graph: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Path as in the file → kind, of all levels of a skeleton."""
    for row in cast("Iterable[Any]", graph.get("nodes", ())):
        yield f"{prefix}{row[0]}", str(row[1])
        if len(row) > 2:
            yield from _list_kinds(f"{prefix}{row[0]}.", row[2])


def _path_in_file(path: str) -> str:
    """`polish.round[2].judge` → `polish.judge`."""
    parts = [part.partition("[")[0] for part in path.split(".")]
    return ".".join(part for number, part in enumerate(parts) if not (part == "round" and number and "[" in path))
