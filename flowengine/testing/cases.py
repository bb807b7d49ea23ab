"""Runs the cases of a flowtest file, one at a time, and says what of a case does not hold, and where it was claimed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_core import to_jsonable_python

from flowengine.agents.standalone import run_sync
from flowengine.core.context import RoutingResult
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeFinished, NodeRecorded
from flowengine.errors import ApprovalError, DefinitionError, Diagnostic, FlowError, InputError
from flowengine.flow import Flow
from flowengine.flowfile.analysis.shapes import is_map
from flowengine.flowfile.yaml.positions import KeyPath
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.tokens import estimate_tokens
from flowengine.nodes.container import file_path
from flowengine.runners.run import Run
from flowengine.testing.cassette import Cassette
from flowengine.testing.fakes import Fakes
from flowengine.testing.flowtest import ApprovalAnswer, ExpectSpec, FlowCaseSpec, FlowTest, Matcher
from flowengine.testing.modes import Mode
from flowengine.testing.path import fate, path_difference
from flowengine.testing.scripted_answers import Script

__all__ = ["CaseFinding", "line_of", "run_case"]

# --- What a case expects against what its run did

Unmet: TypeAlias = tuple[KeyPath, str]
"""The claim's place below `expect`, and what came instead."""


def unmet(expect: ExpectSpec, run: Run) -> list[Unmet]:
    """The claims that do not hold."""
    return [*_status(expect, run), *_path(expect, run), *_outputs(expect, run), *_calls(expect, run)]


def _status(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    if run.status != expect.status:
        where = f" in '{run.failed_node}'" if run.failed_node else ""
        why = f"{where}: {run.error.message}" if run.error is not None else ""
        yield ("status",), f"the run was to be {expect.status}, and it is {run.status}{why}"


def _path(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    difference = "" if expect.path is None else path_difference(run, expect.path)
    if difference:
        yield ("path",), f"the run took another path\n{difference}"
    finished = {event.node: event.result for event in run.events if isinstance(event, NodeFinished)}
    for node, label in expect.route.items():
        result = finished.get(node)
        if result is None:
            yield ("route", node), f"'{node}' was to choose '{label}'; it {fate(run, node)}"
            continue
        chosen = result.routing.next_route if isinstance(result.routing, RoutingResult) else result.route
        if label not in (chosen, result.route):
            yield ("route", node), f"'{node}' was to choose '{label}', and it chose '{chosen}'"
    for node, cause in expect.skipped.items():
        part = run.nodes[node]
        if part.status != "skipped" or cause not in ("", part.cause):
            wanted = f" ({cause})" if cause else ""
            yield ("skipped", node), f"'{node}' was to be skipped{wanted}; it {fate(run, node)}"


# --- outputs -----------------------------------------------------------------------------------------


def _outputs(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    for name, matcher in expect.outputs.items():
        if name not in run.outputs:
            # A run that failed has none, and that is told already.
            if run.status == expect.status:
                yield ("outputs", name), f"there is no output '{name}'; there are: {', '.join(run.outputs) or 'none'}"
            continue
        problem = _difference(matcher, to_jsonable_python(run.outputs[name], fallback=str))
        if problem:
            yield ("outputs", name), f"output '{name}' {problem}"


def _difference(matcher: Matcher, value: Any) -> str:
    """What is wrong with a value; empty where it is as claimed."""
    if matcher.kind == "contains":
        return _lacks(matcher.value, value)
    if matcher.kind == "matches":
        held = re.search(matcher.value, _text(value)) is not None
        return "" if held else f"was to match /{matcher.value}/, found {_shown(value)}"
    return "" if _equal(matcher.value, value) else _unequal(matcher.value, value)


def _equal(one: Any, other: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, and true is neither."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_map(one) and is_map(other):
        return one.keys() == other.keys() and all(_equal(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(cast("list[Any]", one), cast("list[Any]", other), strict=False)
        return len(cast("list[Any]", one)) == len(cast("list[Any]", other)) and all(_equal(*pair) for pair in pairs)
    return one == other


def _lacks(claim: Any, value: Any) -> str:
    """Texts are parts of a text; values are items of a list or keys of a map."""
    parts = cast("list[Any]", claim if isinstance(claim, list) else [claim])
    if isinstance(value, list | dict):
        missing = [part for part in parts if part not in value]
    else:
        missing = [part for part in parts if _text(part) not in _text(value)]
    if not missing:
        return ""
    return f"was to contain {', '.join(_shown(each) for each in missing)}, found {_shown(value)}"


def _unequal(expected: Any, found: Any) -> str:
    if not (isinstance(expected, str) and isinstance(found, str) and "\n" in expected + found):
        return f"was to be {_shown(expected)}, found {_shown(found)}"
    lines = unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm="", n=2)
    return "\n".join(["is another text than expected", *lines])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 500 else f"{text[:499]}…"


# --- what it cost ------------------------------------------------------------------------------------


def _calls(expect: ExpectSpec, run: Run) -> Iterator[Unmet]:
    if expect.model_calls is None and expect.cost_usd_at_most is None and expect.tokens_at_most is None:
        return
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    calls = [record for record in records if isinstance(record, ModelCall)]
    if expect.model_calls is not None and len(calls) != expect.model_calls:
        yield ("model_calls",), f"there were to be {expect.model_calls} model calls, and there are {len(calls)}"
    if expect.cost_usd_at_most is not None:
        yield from _cost(expect.cost_usd_at_most, calls)
    tokens = sum(map(_tokens, calls))
    if expect.tokens_at_most is not None and tokens > expect.tokens_at_most:
        yield ("tokens_at_most",), f"at most {expect.tokens_at_most} tokens were expected, and there are {tokens}"


def _cost(most: float, calls: Sequence[ModelCall]) -> Iterator[Unmet]:
    known = [call.cost_usd for call in calls if call.cost_usd is not None]
    if sum(known) > most:
        yield ("cost_usd_at_most",), f"at most ${most:g} was expected, and the calls cost ${sum(known):.6g}"
    elif len(known) < len(calls):
        unknown = len(calls) - len(known)
        yield ("cost_usd_at_most",), f"at most ${most:g} was expected, and of {unknown} calls the price is not known"


def _tokens(call: ModelCall) -> int:
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
    source = _source(test, case, mode)
    if isinstance(source, FlowError):
        return [_quoted(each) for each in source.diagnostics]
    fakes = Fakes(case.fakes.functions, case.fakes.tools, case.fakes.real)
    try:
        flow = fakes.around(source.around(test.flow))
        run = run_sync(lambda: _answered(flow, case))
    except ApprovalError as error:
        return [_finding(test, ("cases", number, "approvals"), str(error))]
    except DefinitionError as error:
        key = "inputs" if isinstance(error, InputError) else "name"
        return [_finding(test, ("cases", number, key), str(error))]
    if source.misses:
        # The run may have found a way to go on, but not with what this case says.
        key = "cassette" if case.cassette is not None else "answers"
        return [_finding(test, ("cases", number, key), miss) for miss in source.misses]
    if fakes.misses:
        return [_finding(test, ("cases", number, "fakes"), miss) for miss in fakes.misses]
    claims = unmet(case.expect, run)
    return [_finding(test, ("cases", number, "expect", *place), message) for place, message in claims]


async def _answered(flow: Flow, case: FlowCaseSpec) -> Run:
    """The run, gone on with as long as the case has an answer to what it waits for."""
    store = MemoryStore()
    run = await flow.run(case.inputs, store=store)
    while run.status == "waiting":
        asked = [node for node in open_questions(run.events) if _given(case, node) is not None]
        if not asked:
            break
        for node in asked:
            given = _given(case, node)
            assert given is not None  # Only such nodes are asked for.
            await answer(store, run.id, node, given.choice, comment=given.comment, by=given.by, form=given.form)
        run = await flow.resume(run.id, store=store)
    return run


def _given(case: FlowCaseSpec, node: str) -> ApprovalAnswer | None:
    """For this very round or item, else for the node wherever it asks."""
    return case.approvals.get(node) or case.approvals.get(file_path(node))


def _source(test: FlowTest, case: FlowCaseSpec, mode: Mode | None) -> Script | Cassette | FlowError:
    """Where the answers of a case come from."""
    if case.cassette is None:
        return Script({node: _answers(given) for node, given in case.answers.items()})
    try:
        return Cassette(test.path.parent / case.cassette, mode)
    except FlowError as error:
        return error


def _answers(given: Any) -> Any:
    """Answers as scripts have them."""
    if isinstance(given, list):
        return [_answer(each, number) for number, each in enumerate(cast("list[Any]", given), 1)]
    return _answer(given, 1)


def _answer(given: Any, number: int) -> Any:
    if is_map(given) and "tool" in given and given.keys() <= {"tool", "arguments"}:
        arguments = json.dumps(given.get("arguments", {}), ensure_ascii=False)
        return ToolRequest(f"call_{number}", str(given["tool"]), arguments)
    return given


def _finding(test: FlowTest, at: KeyPath, message: str) -> CaseFinding:
    line, column = test.source.key_position(at)
    return CaseFinding(str(test.path), line, column, message)


def _quoted(problem: Diagnostic) -> CaseFinding:
    return CaseFinding(problem.file or "", problem.line or 1, problem.column or 1, f"{problem.code} {problem.message}")
