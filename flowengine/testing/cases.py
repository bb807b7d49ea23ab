"""Runs the cases of a flowtest file, one at a time, and says what of a case does not hold, and where it was claimed."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from flowengine.agents.sync import run_sync
from flowengine.errors import ApprovalError, DefinitionError, Diagnostic, FlowError, InputError
from flowengine.flow import Flow
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.memory import MemoryStore
from flowengine.llm.messages import ToolRequest
from flowengine.nodes.container import file_path
from flowengine.runners.run import Run
from flowengine.spec.positions import KeyPath
from flowengine.spec.shapes import is_map
from flowengine.testing.cassette import Cassette
from flowengine.testing.expectations import unmet
from flowengine.testing.fakes import Fakes
from flowengine.testing.flowtest import ApprovalAnswer, CaseSpec, FlowTest
from flowengine.testing.modes import Mode
from flowengine.testing.scripted import Script

__all__ = ["Finding", "line_of", "run_case"]


class Finding(NamedTuple):
    """Something that is not as a case expects it.

    >>> str(Finding("a.flowtest.yaml", 4, 5, "the run failed"))
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


def run_case(test: FlowTest, number: int, mode: Mode | None = None) -> list[Finding]:
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


async def _answered(flow: Flow, case: CaseSpec) -> Run:
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


def _given(case: CaseSpec, node: str) -> ApprovalAnswer | None:
    """For this very round or item, else for the node wherever it asks."""
    return case.approvals.get(node) or case.approvals.get(file_path(node))


def _source(test: FlowTest, case: CaseSpec, mode: Mode | None) -> Script | Cassette | FlowError:
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


def _finding(test: FlowTest, at: KeyPath, message: str) -> Finding:
    line, column = test.source.key_position(at)
    return Finding(str(test.path), line, column, message)


def _quoted(problem: Diagnostic) -> Finding:
    return Finding(problem.file or "", problem.line or 1, problem.column or 1, f"{problem.code} {problem.message}")
