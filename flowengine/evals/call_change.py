"""Asks one recorded call of a model again with other messages, another model or other options, beside its answer.

What is asked is a run of its own, of a flow of one node: it is in the store, within the limits of its flow, and the
same question is not paid twice. A judge that scored the recorded answer scores the new one by the same criteria.
What is kept becomes a fork of the run, as `whatif` makes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, cast

from flowengine.agents import Agent, Caller, CallSettings, EvaluationAgent, RoutingAgent, check_taken, open_model
from flowengine.agents.prompt import prompt_text, text_of
from flowengine.core import EMPTY, Context, ModelCall
from flowengine.engine import Event, JournalStore, NodeFinished, NodeRecorded, RunFinished, RunStarted
from flowengine.errors import FlowEngineError, InputError, did_you_mean
from flowengine.evals.counterfactual import change_node
from flowengine.flow import Flow
from flowengine.models import OPTIONS, Message, Model, Request, fence, from_dict
from flowengine.nodes import (
    AgentNode,
    AskingNode,
    CompiledFlow,
    EvaluationNode,
    FunctionNode,
    RoutingNode,
    file_path,
    gateway_of,
)
from flowengine.runtime import Live, Run, RunOptions
from flowengine.runtime.local import local
from visualize.viewer import parse_text

_OWN_OPTIONS: Final = ("temperature", "max_tokens")


@dataclass(frozen=True)
class RecordedCall:
    """A call of a run, and the run's flow as it is now."""

    events: Sequence[Event]
    seq: int
    """Its position among the events."""
    plan: CompiledFlow

    @cached_property
    def event(self) -> NodeRecorded:
        entry = self.events[self.seq] if 0 <= self.seq < len(self.events) else None
        if not isinstance(entry, NodeRecorded) or type(entry.record) is not ModelCall or entry.record.vectors:
            raise InputError(f"event {self.seq} of the run is no call of a model that answers with text")
        return entry

    @property
    def call(self) -> ModelCall:
        return self.event.record

    @property
    def node(self) -> str:
        return self.event.node

    @cached_property
    def settings(self) -> CallSettings:
        """The settings with which the node asks its model."""
        return self._settings_of(self.node, self.call.purpose)

    def _settings_of(self, path: str, purpose: str) -> CallSettings:
        nodes = self.plan.all_nodes
        name = file_path(path)
        if name not in nodes:
            raise InputError(f"the flow has no node '{name}' any more{did_you_mean(name, nodes)}")
        agent = _agent_of(nodes[name])
        if isinstance(agent, Agent):
            inner = agent.evaluator if purpose == "evaluation" else agent.router if purpose == "routing" else None
            agent = inner or agent
        if agent is None:
            raise InputError(f"node '{name}' is no agent, judge or router any more")
        return agent.settings

    @cached_property
    def judging(self) -> tuple[str, ModelCall] | None:
        """The call in which a judge scored the answer, and its node."""
        for event in self.events[self.seq + 1 :]:
            if isinstance(event, NodeRecorded) and type(event.record) is ModelCall:
                call = event.record
                if call.purpose == "evaluation" and call.error is None and replace_answer(call, self.call.content, ""):
                    return event.node, call
        return None

    @property
    def score(self) -> float | None:
        """The judge's score of the recorded answer."""
        return None if self.judging is None else _score_in(self.judging[1].content)

    def open_judge(self) -> tuple[Model, ModelCall] | None:
        if self.judging is None:
            return None
        node, call = self.judging
        return open_model(self._settings_of(node, "evaluation"))[0], call


def _agent_of(node: object) -> Agent | RoutingAgent | EvaluationAgent | None:
    return node.prototype if isinstance(node, AskingNode) else None


def replace_answer(call: ModelCall, before: str, after: str) -> tuple[Message, ...] | None:
    """The judge's messages with another answer in the place of the one that is fenced in them; None where it is not.

    A judge is shown what a structured answer holds, as JSON of ours.
    """
    messages = [from_dict(each) for each in call.messages]
    messages_after = _replace_in(messages, before, after)
    value = parse_text(before)
    if messages_after is None and not isinstance(value, str):
        texts = text_of(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        messages_after = next(
            (changed for each in texts if (changed := _replace_in(messages, each, after)) is not None), None
        )
    return messages_after


def _replace_in(messages: Sequence[Message], before: str, after: str) -> tuple[Message, ...] | None:
    for number, each in enumerate(messages):
        match = re.search(rf"<(\w+)>\n{re.escape(before)}\n</\1>", each.content) if before.strip() else None
        if match is not None:
            text = f"{each.content[: match.start()]}{fence(match[1], after)}{each.content[match.end() :]}"
            return (*messages[:number], each._replace(content=text), *messages[number + 1 :])
    return None


def _score_in(text: str) -> float | None:
    try:
        score = json.loads(text)["score"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return float(score) if isinstance(score, int | float) and 0 <= score <= 1 else None


@dataclass(frozen=True)
class ChangedCall:
    """A changed request, sent in place of the recorded one."""

    recorded: RecordedCall
    texts: Sequence[str]
    """The texts of the messages, in their order."""
    model: str = ""
    """Empty: that of the node."""
    options: Mapping[str, Any] | None = None
    """Options that are other than the node's."""
    sample: int = 1
    """The same question may be asked several times."""

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.recorded.call.messages):
            raise InputError(f"the call has {len(self.recorded.call.messages)} messages, found {len(self.texts)}")
        if self.model and not self.model.isprintable():
            raise InputError(f"a model's name stands on one line, found {self.model!r:.80}")
        for name in self.options or {}:
            if name not in OPTIONS and name not in _OWN_OPTIONS:
                names = [*_OWN_OPTIONS, *OPTIONS]
                raise InputError(
                    f"'{name:.80}' is no option of a call{did_you_mean(name[:80], names)} ({', '.join(names)})"
                )

    @property
    def run_id(self) -> str:
        """The id of the run that asks it: the same for the same question."""
        identity = [self._run_id, self.recorded.seq, [*self.texts], self.model, self.sample]
        text = json.dumps([*identity, sorted((self.options or {}).items())], default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]

    def make_flow(self) -> Flow:
        """A flow of one node, which asks. What is wrong with model and options is raised here."""
        recorded, call = self.recorded, self.recorded.call
        options = {**(self.options or {}), **({"model": self.model} if self.model else {})}
        settings = recorded.settings.with_options(options, frozenset())
        if self.model:  # Not the one that the whole run was started with.
            settings = replace(settings, surroundings=replace(settings.surroundings, stand_in=None))
        model, _ = open_model(settings)
        check_taken(model, settings)
        request = self._make_request(model, settings)

        async def ask(context: Context) -> Mapping[str, Any]:
            gateway = gateway_of(context)
            reply = await gateway.complete(model, request, purpose=call.purpose)
            output: dict[str, Any] = {"answer": reply.content}
            judge = recorded.open_judge()
            messages = None if judge is None else replace_answer(judge[1], call.content, reply.content)
            if messages is not None:  # Where the judge saw the question, it sees the new one.
                before = prompt_text(map(from_dict, call.messages))
                messages = _replace_in(messages, before, prompt_text(request.messages)) or messages
            if judge is None or messages is None:
                return output
            shape = {name: value for name, value in judge[1].request.items() if name not in ("model", "tools", "extra")}
            judge_request = Request(judge[0].name, messages, **cast("Any", shape))
            try:
                judgement = await gateway.complete(judge[0], judge_request, purpose="evaluation")
            except FlowEngineError as error:  # The answer counts all the same.
                return {**output, "no_score": str(error)}
            return {**output, "score": _score_in(judgement.content)}

        return Flow("playground", {"call": FunctionNode(ask)}, limits=recorded.plan.limits)

    def _make_request(self, model: Model, settings: CallSettings) -> Request:
        messages = tuple(
            from_dict(each)._replace(content=text)
            for each, text in zip(self.recorded.call.messages, self.texts, strict=True)
        )
        request = Caller(cast("Any", None), model, settings, cast("Any", None)).request(messages)
        original = self.recorded.call.request
        return replace(
            request,
            tools=tuple(original.get("tools", ())),
            response_schema=original.get("response_schema"),
            response_name=str(original.get("response_name", "answer")),
        )

    # --- What of it a fork keeps

    def change(self) -> Mapping[str, Any]:
        """Keys of the node, as a flow file has them; `InputError` says what no key stands for."""
        change: dict[str, Any] = dict(self.options or {})
        if self.model:
            change["model"] = self.model
        call = self.recorded.call
        node = self.recorded.plan.all_nodes.get(file_path(self.recorded.node))
        agent = _agent_of(node)
        own = {AgentNode: "generation", RoutingNode: "routing", EvaluationNode: "evaluation"}.get(type(node), "")  # type: ignore[arg-type]
        if call.purpose != own:
            raise InputError(f"No fork: it is a call for {call.purpose} inside of the node, and not the node's own.")
        for number, (message, text) in enumerate(zip(call.messages, self.texts, strict=True)):
            if (message.get("content") or "") != text:
                change |= self._keys_of(number, str(message.get("role")), text, agent)
        if not change:
            raise InputError("No fork: nothing is changed.")
        return change

    def _keys_of(self, number: int, role: str, text: str, agent: object) -> Mapping[str, Any]:
        roles = [str(each.get("role")) for each in self.recorded.call.messages]
        last = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else -1
        if isinstance(agent, Agent) and agent.sources is None:
            if role == "system" and number == 0:
                return {"instructions": _as_template(text), "system_message": None}
            begin, end = agent.words("generation.input", text="\0").split("\0")
            is_whole = text.startswith(begin) and text.endswith(end)
            if number == last and is_whole and not agent.generation.history:
                return {"prompt": _as_template(text[len(begin) : len(text) - len(end) if end else None])}
        raise InputError(
            f"No fork: message {number + 1} is not what a key of the node says alone. A fork has other instructions, "
            f"another prompt behind its beginning, another model or options."
        )

    def make_plan(self, source: str, path: str, environ: Mapping[str, str]) -> CompiledFlow:
        """The flow with the node changed, without notices of its questions."""
        text = change_node(source, path, self.recorded.node, self.change())
        return replace(Flow.from_text(text, path, environ=environ).plan, notifier=None)

    def asking_command(self, options: Sequence[str] = (), cost: str = "") -> str:
        """The command line that asks it; `cost`: the most that it may cost."""
        words = ["flowengine", "ask", self._run_id, "--call", str(self.recorded.seq)]
        for number, (message, text) in enumerate(zip(self.recorded.call.messages, self.texts, strict=True), 1):
            if (message.get("content") or "") != text:
                words += ["--message", f"{number}={_as_argument(text)}"]
        words += ["--model", self.model] if self.model else []
        for key, value in (self.options or {}).items():
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
        words += [*(["--again"] if self.sample > 1 else []), *(["--max-cost", cost] if cost else [])]
        return shlex.join([*words, *options])

    @property
    def _run_id(self) -> str:
        started = self.recorded.events[0]
        return started.run_id if isinstance(started, RunStarted) else ""

    def command(self, options: Sequence[str] = ()) -> str:
        """The command line that forks the run with the change; empty where there is none."""
        try:
            change = dict(self.change())
        except InputError:
            return ""
        words = ["flowengine", "whatif", "--node", file_path(self.recorded.node)]
        for key, option in (("model", "--model"), ("prompt", "--prompt")):
            if key in change:
                words += [option, _as_argument(str(change.pop(key)))]
        for key, value in change.items():
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
        return shlex.join([*words, "--runs", f"run={self._run_id}", *options])


async def ask_call(
    changed: ChangedCall,
    flow: Flow,
    store: JournalStore,
    settings: Mapping[str, Any] = EMPTY,
    *,
    has_run: bool = False,
    live: Live | None = None,
) -> Run:
    """Runs the flow of `make_flow`: a new run, or with `has_run` the one that is there. `settings`: its limits."""
    run_id, started = changed.run_id, changed.recorded.events[0]
    if has_run:
        options = RunOptions(allow_changed=True, settings=settings, live=live)
        return await local.resume(flow.plan, run_id, store, options)
    labels = {"playground": getattr(started, "run_id", ""), "call": str(changed.recorded.seq)}
    inputs = {"node": changed.recorded.node, "messages": [*changed.texts], "model": changed.model,
              "options": dict(changed.options or {})}  # fmt: skip
    options = RunOptions(run_id=run_id, settings=settings, labels=labels, live=live)
    return await local.start(flow.plan, inputs, store, options)


def _as_argument(text: str) -> str:
    """The text as an option takes it, which takes `@FILE` for the text of a file."""
    return f"@{text}" if text.startswith("@") else text


def _as_template(text: str) -> str:
    """The text as a template that gives it, whatever stands in it; of line ends, templates keep only some.

    >>> print(_as_template("{{ x }}\\r\\ny\\n"))
    {{ '{{' }} x }}{{ '\\r' }}
    y{{ '\\n' }}
    """
    return re.sub(r"\{[{%#]|\r|\n\Z", lambda match: f"{{{{ {match[0]!r} }}}}", text)


def read_answer(events: Sequence[Event]) -> tuple[ModelCall | None, float | None, str]:
    """The call that was asked, its score, and what went wrong, of a run of `ChangedCall.make_flow`."""
    calls = [each.record for each in events if isinstance(each, NodeRecorded) and type(each.record) is ModelCall]
    call = next((each for each in calls if each.error is None), None)
    last = events[-1] if events else None
    error = last.error.message if isinstance(last, RunFinished) and last.error is not None else ""
    result = next((each.result.output for each in events if isinstance(each, NodeFinished)), None)
    output: Mapping[str, Any] = cast("Mapping[str, Any]", result) if isinstance(result, Mapping) else EMPTY
    return call, output.get("score"), error or str(output.get("no_score", ""))
