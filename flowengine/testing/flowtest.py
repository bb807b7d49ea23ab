"""Reads `*.flowtest.yaml` files: tests of a flow as data, beside the flow.

    flow: ../support_triage.yaml
    cases:
      - name: a refund goes to billing
        inputs: {message: I was charged twice.}
        answers:
          analyze: A refund.
          triage: {next_route: billing, confidence: 0.9}
          settle: We refund you.
          reply: Dear customer, …
        expect:
          path: [analyze, triage, settle, reply]

It declares what a file may say and reports what of it is wrong. It runs nothing: that is `cases`' matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import BeforeValidator, Field, model_validator

from flowengine.core import RunStatus, is_map
from flowengine.errors import Diagnostic, FlowError, did_you_mean
from flowengine.flow import Flow
from flowengine.flowfile.schema import Keys, Maybe, format_found, refuse
from flowengine.flowfile.yaml import KeyPath, SourceText
from flowengine.nodes import AgentNode, ApprovalNode, FlowNode, ToolNode, file_path
from flowengine.testing.fakes import Fake, brings_tools, function_names, request_names, server_names, tool_names
from flowengine.testing.model_overrides import seat_names
from flowengine.testing.path import Step, names_of
from flowengine.testing.yaml_file import read_yaml

SUFFIX: Final = ".flowtest.yaml"


class FlowTestError(FlowError):
    """A flowtest file that cannot be run; `diagnostics` holds every problem with its place."""


# --- Keys of a flowtest file


class Matcher(NamedTuple):
    """A claim about one output."""

    kind: Literal["equals", "contains", "matches"]
    value: Any


_MATCHERS: Final = ("equals", "contains", "matches")


def _parse_matcher(value: Any) -> Matcher:
    """`{contains: …}` and its kin; every other value is what the output equals."""
    if not is_map(value) or len(value) != 1 or next(iter(value)) not in _MATCHERS:
        near = did_you_mean(str(next(iter(value))), _MATCHERS) if is_map(value) and len(value) == 1 else ""
        if near:
            raise refuse("FE401", f"no claim is called '{next(iter(value))}'{near} (a map's value: {{equals: …}})")
        return Matcher("equals", value)
    ((kind, claim),) = value.items()
    if kind == "matches":
        try:
            re.compile(claim)
        except (re.error, TypeError) as error:
            raise refuse(
                "FE401", f"expected a regular expression, found {format_found(claim)}: {error}", path=(kind,)
            ) from None
    return Matcher(cast(Any, kind), claim)


def _parse_steps(value: Any) -> Any:
    """Nodes in order; a list in the list stands for nodes in any order."""
    if not isinstance(value, list):
        raise refuse("FE401", f"expected a list of nodes, found {format_found(value)}")
    for number, step in enumerate(cast("list[Any]", value)):
        inner = cast("list[Any]", step if isinstance(step, list) else [step])
        if not all(isinstance(each, str) for each in inner):
            raise refuse("FE401", f"expected a node or a list of nodes, found {format_found(step)}", path=(number,))
    return [step if isinstance(step, str) else frozenset(cast("list[str]", step)) for step in cast("list[Any]", value)]


def _parse_causes(value: Any) -> Any:
    """Skipped nodes, each with its cause or with none."""
    if isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value)):
        return dict.fromkeys(cast("list[str]", value), "")
    return cast(Any, value)


def _parse_fake(value: Any) -> Any:
    """`{returns: …}` and its kin; every other value is what is returned."""
    if not is_map(value) or value.keys() != {"each"}:
        return _parse_call(value)
    values: Any = value["each"]
    if not isinstance(values, list):
        raise refuse("FE401", f"expected a list, one value for each call, found {format_found(values)}", path=("each",))
    calls = [_parse_call(each, ("each", place)) for place, each in enumerate(cast("list[Any]", values))]
    return Fake("each", [each if each.kind == "fails" else each.value for each in calls])


def _parse_call(value: Any, at: KeyPath = ()) -> Fake:
    """Parses the result of one call: a value, `{returns: …}` or `{fails: …}`."""
    if not is_map(value) or len(value) != 1 or next(iter(value)) not in ("returns", "fails"):
        return Fake("returns", value)
    ((kind, content),) = value.items()
    if kind == "fails" and not isinstance(content, str):
        raise refuse("FE401", f"expected the message of an error, found {format_found(content)}", path=(*at, kind))
    return Fake(cast(Any, kind), content)


FakeValues: TypeAlias = dict[str, Annotated[Any, BeforeValidator(_parse_fake)]]
Outputs: TypeAlias = dict[str, Annotated[Any, BeforeValidator(_parse_matcher)]]
Path_: TypeAlias = Annotated[list[Any], BeforeValidator(_parse_steps)]
Cause: TypeAlias = Literal["", "not_selected", "condition_false", "upstream_skipped", "upstream_failed", "error"]
Skipped: TypeAlias = Annotated[dict[str, Cause], BeforeValidator(_parse_causes)]


class ExpectSpec(Keys):
    """Claims about the run."""

    status: RunStatus = "succeeded"
    """How the run ends."""
    path: Maybe[Path_] = None
    """The nodes that finish, in order; a list in the list stands for nodes in any order."""
    route: dict[str, str] = Field(default_factory=dict[str, str])
    """Node → the label that it chooses."""
    outputs: Outputs = Field(default_factory=dict[str, Any])
    """Output → its value, or `{contains: …}`, `{matches: regex}`, `{equals: …}`."""
    prompts: Outputs = Field(default_factory=dict[str, Any])
    """Node → a claim about all that its models are asked, as one text: `{contains: …}`, `{matches: regex}`."""
    skipped: Skipped = Field(default_factory=dict[str, Cause])
    """Nodes that are skipped; as a map: node → cause."""
    model_calls: Maybe[Annotated[int, Field(ge=0)]] = None
    """How many calls of models there are."""
    cost_usd_at_most: Maybe[Annotated[float, Field(ge=0)]] = None
    """Bound of what all calls cost together, in dollars."""
    tokens_at_most: Maybe[Annotated[int, Field(ge=0)]] = None
    """Bound of the tokens of all prompts and answers; estimated where a model did not count them."""


class ApprovalAnswer(Keys):
    """A person's answer."""

    choice: str
    """One of the node's choices."""
    comment: str = ""
    """Comment, stored with the choice."""
    by: str = "flowtest"
    """Who answers."""
    form: Any = None
    """What is filled in beside the choice."""


def _parse_approval(value: Any) -> Any:
    return {"choice": value} if isinstance(value, str) else value


class FakesSpec(Keys):
    """The replacements of functions and tools; a call with an effect and without a fake fails the case."""

    functions: FakeValues = Field(default_factory=dict[str, Any])
    """Node (its path), or name of the function → what it returns, or `{fails: message}`, or `{returns: …}`, or `{each:
    […]}`: one of these for each call after the other. Each attempt of a node with `retry` is a call."""
    tools: FakeValues = Field(default_factory=dict[str, Any])
    """Tool, as the model calls it (`server_tool` for one of an MCP server) → the same. Servers are not started: an
    agent is offered those of their tools that stand here."""
    http: FakeValues = Field(default_factory=dict[str, Any])
    """Node of the type `http` (its path) → the answer: `{status, headers, body}`, or `{each: […]}` and its kin."""
    real: list[str] = Field(default_factory=list[str])
    """Functions, tools and servers that are called, or started, although they have an effect."""


class FlowCaseSpec(Keys):
    """One run, and what is expected of it."""

    name: str
    """What is tested, as a sentence."""
    inputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The run's inputs."""
    answers: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Node → what its model answers: a text, an object, or a list of these for one call after the other.

    `{tool: name, arguments: {…}}` is the wish to have a tool called.
    """
    fakes: FakesSpec = FakesSpec()
    """What stands in the place of functions and tools."""
    approvals: dict[str, Annotated[ApprovalAnswer, BeforeValidator(_parse_approval)]] = Field(
        default_factory=dict[str, "ApprovalAnswer"]
    )
    """Approval node → the choice that is made, or {choice, comment, by, form}. For the calls of a tool `node:tool`, and
    `node:tool:2` for the second one alone: `accept`, `refuse`, or {choice: accept, form: other arguments}."""
    cassette: Maybe[str] = None
    """File with recorded answers, in place of `answers`; relative to this file."""
    expect: ExpectSpec = ExpectSpec()
    """What is claimed about the run."""

    @model_validator(mode="after")
    def _one_source(self) -> FlowCaseSpec:
        if self.cassette is not None and self.answers:
            raise refuse("FE209", "a case has either 'answers' or a 'cassette'", at="cassette")
        for node, answer in self.answers.items():
            if answer is None:
                raise refuse("FE408", f"'{node}' has no answer; give one, or remove the key", path=("answers", node))
        return self


class FlowTestSpec(Keys):
    """A flowtest file."""

    flow: str
    """The flow file, relative to this one."""
    cases: Annotated[list[FlowCaseSpec], Field(min_length=1)]
    """The runs."""


# --- Reading and checking a file


class FlowTest(NamedTuple):
    """A flowtest file with its flow."""

    path: Path
    flow: Flow
    cases: Sequence[FlowCaseSpec]
    source: SourceText
    remarks: Sequence[str]
    """Claims that hold whatever the flow does, each with its place."""


def load_flowtest(path: str | PathLike[str]) -> FlowTest:
    """The tests of a file; `FlowTestError`, or the flow's own `FlowError`, holds every problem."""
    spec, source = read_yaml(path, FlowTestSpec, "a flowtest file", FlowTestError)
    where = Path(path)
    file = where.parent / spec.flow
    if not file.is_file():
        line, column = source.position("flow")
        raise FlowTestError([Diagnostic("FE101", f"there is no flow file {file}", str(where), line, column)])
    flow = Flow.from_yaml(file)
    problems = [
        Diagnostic(code, message, str(where), *source.key_position(at), None, hint)
        for code, at, message, hint in _find_problems(spec, flow)
    ]
    if problems:
        raise FlowTestError(problems)
    remarks = [
        ":".join(map(str, (where, *source.key_position(at), f" {message}")))
        for number, case in enumerate(spec.cases)
        for at, message in _list_empty_claims(("cases", number, "expect"), case)
    ]
    return FlowTest(where, flow, spec.cases, source, remarks)


_Problem: TypeAlias = tuple[str, KeyPath, str, str]
"""Code, place, message, hint."""


def _find_problems(spec: FlowTestSpec, flow: Flow) -> Iterator[_Problem]:
    names: set[str] = set()
    nodes = list(flow.plan.all_nodes.items())
    for number, case in enumerate(spec.cases):
        at: KeyPath = ("cases", number)
        if case.name in names:
            yield "FE212", (*at, "name"), f"a case of the name '{case.name}' stands before this one", ""
        names.add(case.name)
        yield from find_unknown(
            (*at, "answers"), [(each, each) for each in case.answers], list(seat_names(flow)), "agent"
        )
        yield from find_unknown_fakes((*at, "fakes"), case.fakes, flow)
        yield from _find_unknown_approvals((*at, "approvals"), case.approvals, nodes, flow)
        for key, references in list_named_nodes(case.expect):
            yield from find_unknown((*at, "expect", key), references, [name for name, _ in nodes], "node")
        outputs = flow.plan.outputs
        if outputs is not None:
            references = [(each, each) for each in case.expect.outputs]
            yield from find_unknown((*at, "expect", "outputs"), references, list(outputs), "output")


def _list_empty_claims(at: KeyPath, case: FlowCaseSpec) -> Iterator[tuple[KeyPath, str]]:
    """Claims that cannot fail."""
    expect = case.expect
    for key in ("outputs", "prompts"):
        for name, (kind, claim) in cast("dict[str, Matcher]", getattr(expect, key)).items():
            holds_of_any = kind == "matches" and all(re.search(claim, text) for text in ("", "\0"))
            if holds_of_any or (kind == "contains" and claim in ("", [], [""])):
                yield (*at, key, name), f"this claim always holds: anything {kind} that"
    for key in sorted(expect.model_fields_set & {"outputs", "prompts", "route", "skipped"}):
        if not getattr(expect, key):
            yield (*at, key), f"'{key}' names nothing, so it claims nothing"
    if expect.cost_usd_at_most is not None and case.cassette is None:
        yield (*at, "cost_usd_at_most"), "answers that stand in the file cost nothing: a cassette has what they cost"


def _find_unknown_approvals(
    at: KeyPath, paths: Iterable[str], nodes: Sequence[tuple[str, FlowNode]], flow: Flow
) -> Iterator[_Problem]:
    """Approvals without a question: of a node, or of the call of a tool (`node:tool`)."""
    asking = [name for name, node in nodes if isinstance(node, ApprovalNode)]
    calling = [name for name, node in nodes if isinstance(node, AgentNode | ToolNode)]
    calls = [each for each in paths if ":" in each]
    yield from find_unknown(at, [(each, each) for each in paths if ":" not in each], asking, "approval")
    yield from find_unknown(at, [(each, each.partition(":")[0]) for each in calls], calling, "node with tools")
    if not brings_tools(flow) and not server_names(flow, open_only=True):
        tools = [(each, each.split(":")[1]) for each in calls]
        yield from find_unknown(at, tools, tool_names(flow), "tool")


def find_unknown_fakes(at: KeyPath, fakes: FakesSpec, flow: Flow) -> Iterator[_Problem]:
    """Fakes that stand for nothing; what typed contexts, skills and servers bring is not known yet."""
    functions, tools, servers = function_names(flow), tool_names(flow), server_names(flow)
    requests = request_names(flow)
    yield from find_unknown((*at, "http"), [(each, each) for each in fakes.http], requests, "request")
    yield from find_unknown((*at, "functions"), [(each, each) for each in fakes.functions], functions, "function")
    if not brings_tools(flow):
        begins = tuple(f"{each}_" for each in server_names(flow, open_only=True))
        references = [(each, each) for each in fakes.tools if not (begins and each.startswith(begins))]
        yield from find_unknown((*at, "tools"), references, tools, "tool")
        named_real = list(enumerate(fakes.real))
        existing = [*functions, *tools, *servers, *requests]
        yield from find_unknown((*at, "real"), named_real, existing, "function, tool, server or request")


def list_named_nodes(expect: ExpectSpec) -> Iterator[tuple[str, list[tuple[str | int, str]]]]:
    """Key → the nodes that it names, each with its place below the key."""
    path: Sequence[Step] = expect.path or ()
    yield "path", [(number, each) for number, step in enumerate(path) for each in names_of(step)]
    yield "route", [(each, each) for each in expect.route]
    yield "prompts", [(each, each) for each in expect.prompts]
    yield "skipped", [(each, each) for each in expect.skipped]


def find_unknown(
    at: KeyPath, references: Sequence[tuple[str | int, str]], existing: Sequence[str], what: str
) -> Iterator[_Problem]:
    """Names of nothing that is known, each with its place below `at`."""
    for place, name in references:
        if file_path(name) not in existing:
            yield "FE305", (*at, place), f"the flow has no {what} '{name}'", did_you_mean(name, existing)
