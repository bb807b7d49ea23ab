"""Scores one row of an eval: claims and functions here, judges as a flow of their own that is run for each row.

So what a judge was asked and said is in a journal like any other call, is found by `flowengine cost`, and is taken
again where nothing that it was asked has changed. A row that failed scores 0.0; a score that cannot be made has none.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from flowengine.core import ModelCall, call_in_thread, cut_text, describe_error
from flowengine.core.templating import compile_template, parse_template
from flowengine.engine import ErrorInfo
from flowengine.errors import FlowEngineError, RunError
from flowengine.evals.eval_file import EvalFile, JudgeSpec, ScorerSpec, render_claim
from flowengine.evals.spending import Effort
from flowengine.flow import Flow
from flowengine.flowfile.schema import ModelSettings
from flowengine.runtime import Run
from flowengine.runtime.local import RowResult
from flowengine.testing import find_unmet

_PAIR_ROUTES: Final = {
    "first": {"description": "The first answer is better."},
    "second": {"description": "The second answer is better."},
    "tie": {"description": "Neither is better."},
}
_QUESTION: Final = {"schema": {"type": ["object", "null"]}, "default": None}
_WORTH: Final = {"first": 1.0, "tie": 0.5, "second": 0.0}
NOTHING_TO_COMPARE: Final = "there is nothing to compare with"
"""The reason of a score that is given only with another set."""
_MAX_REASON: Final = 1_000
"""Characters of a reason that are kept."""


class Score(NamedTuple):
    """The score of one row by one scorer."""

    value: float | None
    """0.0 to 1.0; None where it could not be made, or was not asked for."""
    reason: str = ""
    cost_usd: float = 0.0
    """Cost of a judge's answers, whenever they were paid."""
    unpriced_calls: int = 0
    """Those of the judge that have no known price."""


class ScoringView(NamedTuple):
    """A scorer's view of one row."""

    row: Mapping[str, Any]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    run: Mapping[str, Any]
    """`id`, `status`, `seconds`, `cost_usd`."""
    against: Mapping[str, Any] | None
    """`outputs` and `run` of the same row in the set that is compared with."""

    def render(self, source: str) -> Any:
        """The value of a template."""
        variables = self._asdict()
        if self.against is None:
            del variables["against"]
        return compile_template(source)(variables)


class Scorers:
    """The scorers of an eval."""

    def __init__(self, file: EvalFile) -> None:
        self.specs: Mapping[str, ScorerSpec] = file.spec.scorers
        self._functions = file.functions
        self._judges = {name: each.judge for name, each in self.specs.items() if each.judge is not None}
        self._nodes = dict(zip(self._judges, _node_names(self._judges), strict=True))
        self.judging: Flow | None = self._compile(file) if self._judges else None
        """The flow that asks all judges of a row."""

    def _compile(self, file: EvalFile) -> Flow:
        nodes: dict[str, Any] = {}
        for name, judge in self._judges.items():
            node = self._nodes[name]
            nodes |= _pair_nodes(node, judge) if judge.is_pair else {node: _judge_node(node, judge)}
        text = {
            "flowengine": "v1",
            "name": "judges",
            "inputs": dict.fromkeys(self._nodes.values(), _QUESTION),
            "nodes": nodes,
        }
        path = file.path.with_name(f"{file.path.name}.judges.yaml")  # Tells the project; there is no such file.
        return Flow.from_text(json.dumps(text), path, environ=file.flow.plan.environ)

    # --- What needs no model

    async def score(
        self, view: ScoringView, result: RowResult, run: Run | None, calls: Mapping[str, Sequence[ModelCall]]
    ) -> dict[str, Score]:
        """The scores of claims and functions. `calls`: node → those that its answers are made of."""
        scores: dict[str, Score] = {}
        for name, spec in self.specs.items():
            if spec.claims:
                scores[name] = _score_claims(spec, view, run, calls)
            elif spec.call is not None:
                called = result.succeeded
                scores[name] = await _score_call(self._functions[name], view) if called else _failed_score(result)
        return scores

    # --- Judges

    def questions(self, view: ScoringView, result: RowResult) -> tuple[dict[str, Any], dict[str, Score]]:
        """Inputs for the flow of judges, and the scores of those that need not be asked."""
        inputs: dict[str, Any] = {}
        scores: dict[str, Score] = {}
        for name, judge in self._judges.items():
            if not result.succeeded:
                scores[name] = _failed_score(result)
                continue
            if view.against is None and any(map(_reads_pair, _texts_of(judge))):
                scores[name] = Score(None, NOTHING_TO_COMPARE)
                continue
            try:
                inputs[self._nodes[name]] = _ask(judge, view)
            except (FlowEngineError, KeyError) as error:
                scores[name] = Score(None, _shorten(f"the question cannot be made: {error}"))
        return inputs, scores

    def read(
        self, run: Run | None, error: ErrorInfo | None, questions: Mapping[str, Any], efforts: Mapping[str, Effort]
    ) -> dict[str, Score]:
        """The scores that the judges' run came to. `efforts`: node → what its answers took."""
        scores: dict[str, Score] = {}
        for name, judge in self._judges.items():
            node = self._nodes[name]
            if node not in questions:
                continue
            if run is None:
                scores[name] = Score(None, "the judge was not asked" if error is None else _shorten(error.message))
            else:
                score = _read_pair(run, node) if judge.is_pair else _read_judge(run, node)
                effort = efforts.get(node, Effort()).plus(efforts.get(f"{node}_swapped", Effort()))
                scores[name] = score._replace(cost_usd=effort.cost_usd, unpriced_calls=effort.unpriced)
        return scores


def _node_names(names: Mapping[str, Any]) -> Iterator[str]:
    plain_names: set[str] = set()
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain[:1].isalpha() else f"judge_{plain}"
        while plain in plain_names or f"{plain}_swapped" in plain_names:
            plain += "_"
        plain_names |= {plain, f"{plain}_swapped"}
        yield plain


def _settings(judge: JudgeSpec) -> dict[str, Any]:
    settings = judge.model_dump(include=set(ModelSettings.model_fields), exclude_unset=True, by_alias=True)
    return {"on_error": "skip", **settings}


def _judge_node(node: str, judge: JudgeSpec) -> dict[str, Any]:
    node_data: dict[str, Any] = {
        "type": "evaluation",
        "when": f"inputs.{node} != none",
        "target": f"{{{{ inputs.{node}.target }}}}",
        **_settings(judge),
    }
    if judge.instructions is not None:
        node_data["instructions"] = f"{{{{ inputs.{node}.instructions }}}}"
    if judge.criteria:
        node_data["criteria"] = dict(judge.criteria)
    return node_data


def _pair_nodes(node: str, judge: JudgeSpec) -> dict[str, Any]:
    """Both orders: what a judge prefers for its place alone takes itself back."""
    nodes: dict[str, Any] = {}
    for name, (one, two) in {node: ("target", "other"), f"{node}_swapped": ("other", "target")}.items():
        nodes[name] = {
            "type": "routing",
            "when": f"inputs.{node} != none",
            "instruction": f"{{{{ inputs.{node}.instructions }}}}",
            "target": f"First answer:\n{{{{ inputs.{node}.{one} }}}}\n\nSecond answer:\n{{{{ inputs.{node}.{two} }}}}",
            "routes": _PAIR_ROUTES,
            **_settings(judge),
        }
    return nodes


def _texts_of(judge: JudgeSpec) -> list[str]:
    return [each for each in (judge.target, judge.other, judge.instructions) if each is not None]


def _reads_pair(text: str) -> bool:
    return any(each.path[0] == "against" for each in parse_template(text).references)


def _ask(judge: JudgeSpec, view: ScoringView) -> dict[str, Any]:
    inputs: dict[str, Any] = {"target": _to_text(view.render(judge.target))}
    if judge.other is not None:
        criteria = "".join(f"\n- {name}: {wish}" for name, wish in judge.criteria.items())
        wishes = f"\nCriteria:{criteria}" if criteria else ""
        instructions = "" if judge.instructions is None else f"\n{_to_text(view.render(judge.instructions))}"
        inputs["other"] = _to_text(view.render(judge.other))
        inputs["instructions"] = f"Say which of two answers is better.{instructions}{wishes}"
    elif judge.instructions is not None:
        inputs["instructions"] = _to_text(view.render(judge.instructions))
    return inputs


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _read_judge(run: Run, node: str) -> Score:
    part = run.nodes[node]
    if part.status != "succeeded":
        return Score(None, _shorten(f"the judge failed: {part.error or part.status}"))
    return Score(float(part.output.score), _shorten(str(part.output.feedback)))


def _read_pair(run: Run, node: str) -> Score:
    straight, swapped = run.nodes[node], run.nodes[f"{node}_swapped"]
    for part in (straight, swapped):
        if part.status != "succeeded":
            return Score(None, _shorten(f"the judge failed: {part.error or part.status}"))
    one, two = straight.output.next_route, swapped.output.next_route
    worth = (_WORTH[one] + 1 - _WORTH[two]) / 2
    note = "" if _WORTH[one] == 1 - _WORTH[two] else "the two orders disagree: "
    return Score(worth, _shorten(f"{note}{straight.output.reasoning}"))


# --- Claims and functions


def _failed_score(result: RowResult) -> Score:
    error = "" if result.error is None else f": {result.error.message}"
    if result.status in ("failed", "refused", "partial"):
        return Score(0.0, _shorten(f"the run {result.status}{error}"))
    return Score(None, f"the run is {result.status}")


def _score_claims(
    spec: ScorerSpec, view: ScoringView, run: Run | None, calls: Mapping[str, Sequence[ModelCall]]
) -> Score:
    if run is None:
        return Score(0.0, "the run did not begin")
    if run.status in ("waiting", "paused", "running", "cancelled") and "status" not in spec.claims:
        return Score(None, f"the run is {run.status}")
    try:
        changes: dict[str, Any] = {
            "outputs": {name: render_claim(each, view.render) for name, each in spec.outputs.items()},
            "prompts": {node: render_claim(each, view.render) for node, each in spec.prompts.items()},
            "route": {node: str(view.render(label)) for node, label in spec.route.items()},
        }
        unmet = [message for _, message in find_unmet(spec.model_copy(update=changes), run, calls)]
    except (FlowEngineError, KeyError, re.error, TypeError) as error:
        return Score(None, _shorten(f"the claim cannot be made: {describe_error(error)}"))
    seconds = view.run["seconds"]
    if spec.seconds_at_most is not None and seconds > spec.seconds_at_most:
        unmet.append(f"at most {spec.seconds_at_most:g} s were expected, and it took {seconds:.3g} s")
    return Score(0.0 if unmet else 1.0, _shorten("\n".join(unmet)))


async def _score_call(function: Callable[..., Any], view: ScoringView) -> Score:
    try:
        arguments = _arguments(function, view)
        if inspect.iscoroutinefunction(function):
            result: Any = await function(**arguments)
        else:
            result = await call_in_thread(partial(function, **arguments))
        return _to_score(result)
    except (Exception, SystemExit) as error:  # Foreign code.
        return Score(None, _shorten(f"the scorer failed: {describe_error(error)}"))


def _arguments(function: Callable[..., Any], view: ScoringView) -> Mapping[str, Any]:
    variables = view._asdict()
    parameters = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return variables
    return {name: value for name, value in variables.items() if name in parameters}


def _to_score(result: Any) -> Score:
    if isinstance(result, Mapping):
        fields = cast("Mapping[str, Any]", result)
        if "score" not in fields:
            raise RunError("a scorer gives a number, true or false, or {score, reason}")
        return _to_score(fields["score"])._replace(reason=_shorten(str(fields.get("reason") or "")))
    if result is None:
        return Score(None, "the scorer gave nothing")
    if not isinstance(result, bool | int | float) or not math.isfinite(result) or not 0 <= result <= 1:
        raise RunError(f"a score is a number from 0.0 to 1.0, found {result!r:.80}")
    return Score(float(result))


def _shorten(text: str) -> str:
    return cut_text(text, _MAX_REASON)
