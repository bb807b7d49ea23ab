"""Looks for flows whose runs are not what they mean: one flow a seed, and a shrunk one where that shows a mismatch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import anyio
import yaml
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky

from tests.properties.oracle_expressions import Unclear
from tests.properties.random_flows import Case, Given, cases
from tests.properties.run_modes import Mismatch, Refused

__all__ = ["Verdict", "count", "examine", "reproduction"]


Check = Callable[[Case], Awaitable[None]]
"""Raises `Mismatch`, `Unclear` or `Refused`."""


class Verdict(NamedTuple):
    """`unclear`: the format does not say what the flow means. `refused`: it is no flow."""

    kind: Literal["good", "unclear", "refused", "mismatch"]
    reason: str = ""
    case: Case | None = None
    """The smallest one that shows the mismatch."""


def examine(check: Check, number: int, most: int = 6, *, patience: float = 20.0, models: bool = True) -> Verdict:
    """The verdict of a check on the flow of that number, whose top level has at most so many nodes.

    Hypothesis begins with the smallest flow of all, which is left out, and then draws one. It would vary that one if it
    were asked for more, which finds less than other flows do. `patience`: CPU seconds for shrinking.
    """
    verdict, end = Verdict("good"), 0.0

    @seed(number)
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(most, models))
    def look(case: Case) -> None:
        nonlocal verdict, end
        if verdict.kind == "mismatch":
            if time.process_time() < end:
                verdict = _smaller(verdict, _judged(check, case))
        elif case.cut or len(case.first.flow["nodes"]) > 1:
            verdict = _judged(check, case)
            end = time.process_time() + patience
        if verdict.case is case:
            raise Mismatch(verdict.reason)

    with suppress(Mismatch, Flaky):  # Flaky: the time for shrinking was up.
        look()
    return verdict


def _judged(check: Check, case: Case) -> Verdict:
    try:
        anyio.run(check, case)
    except Unclear as unclear:
        return Verdict("unclear", str(unclear))
    except Refused as refused:
        return Verdict("refused", str(refused))
    except Mismatch as mismatch:
        return Verdict("mismatch", str(mismatch), case)
    return Verdict("good")


def _smaller(first: Verdict, second: Verdict) -> Verdict:
    """The second where it is a mismatch and smaller."""
    return second if second.kind == "mismatch" and len(repr(second.case)) <= len(repr(first.case)) else first


def count(verdicts: Iterable[Verdict], tell: Callable[[Verdict], Any] = lambda verdict: None) -> Counter[str]:
    """How many flows of each kind there were; each mismatch is told."""
    found: Counter[str] = Counter()
    for verdict in verdicts:
        found[verdict.kind] += 1
        if verdict.kind == "mismatch":
            tell(verdict)
    return found


def reproduction(verdict: Verdict) -> str:
    """A mismatch as text: what was found, and the flow as a file with what it needs beside it."""
    assert verdict.case is not None
    case = verdict.case
    parts = [verdict.reason, _written("the flow", case.first)]
    if "edited" in verdict.reason:
        parts.append(_written("the flow after the edit", case.second))
    parts.append(f"# people answer: {case.answers}; down at first: {sorted(case.down)}; cut at {case.cut}/1000")
    return "\n".join(parts)


def _written(name: str, given: Given) -> str:
    code = "edited" if given.edited_code else "first"
    lines = [f"# {name}, with inputs {given.inputs!r} and the {code} code", _yaml(given.flow)]
    for file, document in given.files.items():
        lines += [f"# file: {file}", _yaml(document)]
    return "\n".join(lines)


def _yaml(document: Any) -> str:
    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(document, Dumper=Plain, sort_keys=False, allow_unicode=True, width=110)
