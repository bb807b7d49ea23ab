"""Runs the cases of a flowtest file, one at a time, and compares each run with what the case expects.

It reports every claim that does not hold, with its line in the file. It reads no YAML itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple, TypeAlias, cast

from flowengine.agents import run_sync
from flowengine.core import ModelCall, RoutingResult, cut_text, is_map, to_json_value
from flowengine.engine import NodeFinished, NodeRecorded
from flowengine.errors import ApprovalError, DefinitionError, Diagnostic, FlowError, InputError
from flowengine.flow import Flow
from flowengine.flowfile.yaml import KeyPath
from flowengine.journal import MemoryStore, answer, open_questions
from flowengine.models import ToolRequest, estimate_tokens
from flowengine.nodes import file_path
from flowengine.runtime import Run
from flowengine.testing.cassette import Cassette
from flowengine.testing.fakes import Fakes
from flowengine.testing.flowtest import ApprovalAnswer, ExpectSpec, FlowCaseSpec, FlowTest, Matcher
from flowengine.testing.modes import Mode
from flowengine.testing.path import describe_fate, describe_path_difference
from flowengine.testing.scripted_answers import Script

# --- Claims and what the run did

Unmet: TypeAlias = tuple[KeyPath, str]
"""The claim's place below `expect`, and what came instead."""


Calls: TypeAlias = Mapping[str, Sequence[ModelCall]]
"""Node → its calls of models."""


def find_unmet(expect: ExpectSpec, run: Run, calls: Calls | None = None) -> list[Unmet]:
    """The claims that do not hold. `calls`: those that the run needs, where it did not make all of them itself."""
    calls = _calls_of(run) if calls is None else calls
    return [
        *_check_status(expect, run),
        *_check_path(expect, run),
        *_check_outputs(expect, run),
        *_check_prompts(expect, calls),
        *_check_calls(expect, [call for calls_of_node in calls.values() for call in calls_of_node]),
    ]


def _calls_of(run: Run) -> Calls:
    calls: dict[str, list[ModelCall]] = {}
    for event in run.events:
        if isinstance(event, NodeRecorded) and type(event.record) is ModelCall:
            calls.setdefault(event.node, []).append(event.record)
    return calls


def _check_status(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    if run.status != expect.status:
        where = f" in '{run.failed_node}'" if run.failed_node else ""
        why = f"{where}: {run.error.message}" if run.error is not None else ""
        yield ("status",), f"the run was to be {expect.status}, and it is {run.status}{why}"


def _check_path(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    difference = "" if expect.path is None else describe_path_difference(run, expect.path)
    if difference:
        yield ("path",), f"the run took another path\n{difference}"
    events = run.events if expect.route else ()
    finished = {event.node: event.result for event in events if isinstance(event, NodeFinished)}
    for node, label in expect.route.items():
        result = finished.get(node)
        if result is None:
            yield ("route", node), f"'{node}' was to choose '{label}'; it {describe_fate(run, node)}"
            continue
        route = result.routing.next_route if isinstance(result.routing, RoutingResult) else result.route
        if label not in (route, result.route):
            yield ("route", node), f"'{node}' was to choose '{label}', and it chose '{route}'"
    for node, cause in expect.skipped.items():
        part = run.nodes.get(node)
        if part is None or part.status != "skipped" or cause not in ("", part.cause):
            reason = f" ({cause})" if cause else ""
            yield ("skipped", node), f"'{node}' was to be skipped{reason}; it {describe_fate(run, node)}"


# --- Claims about outputs


def _check_outputs(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    for name, matcher in expect.outputs.items():
        if name not in run.outputs:
            # A run that failed has none, and that is told already.
            if run.status == expect.status:
                yield ("outputs", name), f"there is no output '{name}'; there are: {', '.join(run.outputs) or 'none'}"
            continue
        problem = _describe_difference(matcher, to_json_value(run.outputs[name]))
        if problem:
            yield ("outputs", name), f"output '{name}' {problem}"


def _describe_difference(matcher: Matcher, value: Any) -> str:
    """Says how a value differs from the claim; empty where it does not."""
    if matcher.kind == "contains":
        return _describe_lack(matcher.value, value)
    if matcher.kind == "matches":
        is_match = re.search(matcher.value, _to_text(value)) is not None
        return "" if is_match else f"was to match /{matcher.value}/, found {_format_value(value)}"
    return "" if _is_equal(matcher.value, value) else _describe_unequal(matcher.value, value)


def _is_equal(one: Any, other: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, and true is neither."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_map(one) and is_map(other):
        return one.keys() == other.keys() and all(_is_equal(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(cast("list[Any]", one), cast("list[Any]", other), strict=False)
        return len(cast("list[Any]", one)) == len(cast("list[Any]", other)) and all(_is_equal(*pair) for pair in pairs)
    return one == other


def _describe_lack(claim: Any, value: Any) -> str:
    """Texts are parts of a text; values are items of a list or keys of a map."""
    parts = cast("list[Any]", claim if isinstance(claim, list) else [claim])
    if isinstance(value, list | dict):
        items: list[Any] = [*cast("list[Any]", value)]
        missing = [part for part in parts if not any(_is_equal(part, each) for each in items)]
    else:
        missing = [part for part in parts if _to_text(part) not in _to_text(value)]
    if not missing:
        return ""
    return f"was to contain {', '.join(_format_value(each) for each in missing)}, found {_format_value(value)}"


def _describe_unequal(expected: Any, value: Any) -> str:
    if not (isinstance(expected, str) and isinstance(value, str) and "\n" in expected + value):
        return f"was to be {_format_value(expected)}, found {_format_value(value)}"
    lines = unified_diff(expected.splitlines(), value.splitlines(), "expected", "found", lineterm="", n=2)
    return "\n".join(["is another text than expected", *lines])


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _format_value(value: Any) -> str:
    return cut_text(json.dumps(value, ensure_ascii=False, default=str), 500)


# --- Claims about prompts


def _check_prompts(expect: ExpectSpec, calls: Calls) -> Iterator[Unmet]:
    for node, matcher in expect.prompts.items():
        matching = [
            call for path, node_calls in calls.items() if node in (path, file_path(path)) for call in node_calls
        ]
        if not matching:
            yield ("prompts", node), f"'{node}' was to ask a model, and it asked none"
            continue
        texts = dict.fromkeys(text for call in matching for text in _texts_of(call))
        problem = _describe_difference(matcher, "\n\n".join(texts))
        if problem:
            yield ("prompts", node), f"the prompt of '{node}' {problem}"


def _texts_of(call: ModelCall) -> Iterator[str]:
    """The text of each message to the model; parts that are no text are left out."""
    for message in call.messages:
        content = message.get("content")
        parts = cast("Sequence[Any]", content if isinstance(content, list | tuple) else [{"text": content}])
        yield from (part["text"] for part in parts if is_map(part) and isinstance(part.get("text"), str))


# --- Claims about calls and cost


def _check_calls(expect: ExpectSpec, calls: Sequence[ModelCall]) -> Iterator[Unmet]:
    if expect.model_calls is not None and len(calls) != expect.model_calls:
        yield ("model_calls",), f"there were to be {expect.model_calls} model calls, and there are {len(calls)}"
    if expect.cost_usd_at_most is not None:
        yield from _check_cost(expect.cost_usd_at_most, calls)
    tokens = sum(map(_count_tokens, calls))
    if expect.tokens_at_most is not None and tokens > expect.tokens_at_most:
        yield ("tokens_at_most",), f"at most {expect.tokens_at_most} tokens were expected, and there are {tokens}"


def _check_cost(most: float, calls: Sequence[ModelCall]) -> Iterator[Unmet]:
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    if sum(costs) > most:
        yield ("cost_usd_at_most",), f"at most ${most:g} was expected, and the calls cost ${sum(costs):.6g}"
    elif len(costs) < len(calls):
        unknown = len(calls) - len(costs)
        yield ("cost_usd_at_most",), f"at most ${most:g} was expected, and of {unknown} calls the price is not known"


def _count_tokens(call: ModelCall) -> int:
    """Prompt and answer, as the model counted them, else as we estimate them."""
    prompt = call.prompt_tokens
    if prompt is None:
        prompt = sum(estimate_tokens(str(message.get("content") or "")) for message in call.messages)
    answer = call.completion_tokens
    return prompt + (estimate_tokens(call.content) if answer is None else answer)


class CaseFinding(NamedTuple):
    """Something that is not as a case expects it.

    >>> str(CaseFinding("a.flowtest.yaml", 4, 5, "the run failed"))
    'a.flowtest.yaml:4:5: the run failed'
    """

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


def line_of(test: FlowTest, number: int) -> int:
    """The line where a case begins, from 1."""
    return test.source.position(("cases", number))[0]


def run_case(test: FlowTest, number: int, mode: Mode | None = None) -> list[CaseFinding]:
    """Run one case; nothing is found where all is as expected. `mode` is that of its cassette."""
    case = test.cases[number]
    source = _open_source(test, case, mode)
    if isinstance(source, FlowError):
        return [_quote_problem(each) for each in source.diagnostics]
    fakes = Fakes(case.fakes.functions, case.fakes.tools, case.fakes.real, case.fakes.http)
    try:
        flow = fakes.around(source.around(test.flow))
        run = run_sync(lambda: _run_to_end(flow, case))
    except ApprovalError as error:
        return [_make_finding(test, ("cases", number, "approvals"), str(error))]
    except DefinitionError as error:
        key = "inputs" if isinstance(error, InputError) else "name"
        return [_make_finding(test, ("cases", number, key), str(error))]
    if source.misses:
        # The run may have found a way to go on, but not with what this case says.
        key = "cassette" if case.cassette is not None else "answers"
        return [_make_finding(test, ("cases", number, key), miss) for miss in source.misses]
    if fakes.misses:
        return [_make_finding(test, ("cases", number, "fakes"), miss) for miss in fakes.misses]
    claims = find_unmet(case.expect, run)
    return [_make_finding(test, ("cases", number, "expect", *place), message) for place, message in claims]


async def _run_to_end(flow: Flow, case: FlowCaseSpec) -> Run:
    """The run, gone on with as long as the case has an answer to what it waits for."""
    store = MemoryStore()
    run = await flow.run(case.inputs, store=store)
    while run.status == "waiting":
        questions = [node for node in open_questions(run.events) if _find_approval(case, node) is not None]
        if not questions:
            break
        for node in questions:
            approval = _find_approval(case, node)
            assert approval is not None  # Only such nodes are asked for.
            await answer(
                store, run.id, node, approval.choice, comment=approval.comment, by=approval.by, form=approval.form
            )
        run = await flow.resume(run.id, store=store)
    return run


def _find_approval(case: FlowCaseSpec, node: str) -> ApprovalAnswer | None:
    """Finds the answer for this very round, item or call, else for the node or its tool wherever it asks."""
    for path in (node, file_path(node)):
        first = ":".join(path.split(":")[:2])
        if (approval := case.approvals.get(path) or case.approvals.get(first)) is not None:
            return approval
    return None


def _open_source(test: FlowTest, case: FlowCaseSpec, mode: Mode | None) -> Script | Cassette | FlowError:
    """Opens the source of a case's answers."""
    if case.cassette is None:
        return Script({node: _to_answers(entry) for node, entry in case.answers.items()})
    try:
        return Cassette(test.path.parent / case.cassette, mode)
    except FlowError as error:
        return error


def _to_answers(entry: Any) -> Any:
    """Answers as scripts have them."""
    if isinstance(entry, list):
        return [_to_answer(each, number) for number, each in enumerate(cast("list[Any]", entry), 1)]
    return _to_answer(entry, 1)


def _to_answer(entry: Any, number: int) -> Any:
    if is_map(entry) and "tool" in entry and entry.keys() <= {"tool", "arguments"}:
        arguments = json.dumps(entry.get("arguments", {}), ensure_ascii=False)
        return ToolRequest(f"call_{number}", str(entry["tool"]), arguments)
    return entry


def _make_finding(test: FlowTest, at: KeyPath, message: str) -> CaseFinding:
    line, column = test.source.key_position(at)
    return CaseFinding(str(test.path), line, column, message)


def _quote_problem(problem: Diagnostic) -> CaseFinding:
    return CaseFinding(problem.file or "", problem.line or 1, problem.column or 1, f"{problem.code} {problem.message}")
