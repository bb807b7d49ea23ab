"""Reads `*.floweval.yaml` files: what a flow is worth over data, as data itself.

    flow: triage.yaml
    data: rows.jsonl
    scorers:
      team: {outputs: {team: {equals: "{{ row.expected }}"}}}
      kind: {judge: {target: "{{ outputs.reply }}", criteria: {polite: It is friendly}}, threshold: 0.7}
      exact: {call: scorers:exact}
    limits: {cost_usd: 2}

It declares what a file may say and reports what of it is wrong, with line and column. It runs nothing.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from flowengine.core import is_map
from flowengine.core.templating import parse_template
from flowengine.errors import Diagnostic, FlowError, ProjectError, TemplateSyntaxError, did_you_mean
from flowengine.evals.eval_effects import explain_unfaked, list_unfaked
from flowengine.flow import Flow
from flowengine.flowfile.project import Project, find_project
from flowengine.flowfile.schema import (
    CodePath,
    Keys,
    Maybe,
    ModelSettings,
    Plain,
    Score,
    Template,
    format_found,
    refuse,
)
from flowengine.flowfile.yaml import KeyPath, SourceText
from flowengine.testing import (
    ExpectSpec,
    FakesSpec,
    Matcher,
    find_unknown,
    find_unknown_fakes,
    list_named_nodes,
    read_yaml,
)

SUFFIX: Final = ".floweval.yaml"
NAMES: Final = ("row", "inputs", "outputs", "run", "against")
"""Names that templates of scorers may use."""


class EvalFileError(FlowError):
    """A floweval file that cannot be used; `diagnostics` holds every problem with its place."""


# --- Keys of a floweval file


class JudgeSpec(ModelSettings):
    """A model that scores one answer, or says which of two is better."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    target: Template
    """The text to judge, such as `{{ outputs.reply }}`."""
    other: Maybe[Template] = None
    """Another, such as `{{ row.best }}` or `{{ against.outputs.reply }}`: which is better is asked in both orders."""
    instructions: Maybe[Template] = None
    """How to judge."""
    criteria: dict[str, Plain] = Field(default_factory=dict[str, str])
    """Criterion → what it asks for."""

    @property
    def is_pair(self) -> bool:
        """Whether it compares two texts."""
        return self.other is not None


class ScorerSpec(ExpectSpec):
    """One scorer: claims in the words of flow tests, a judge, or a function."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    judge: Maybe[JudgeSpec] = None
    """A model judges: 0.0 to 1.0, of a pair 1.0 where `target` is better in both orders."""
    call: Maybe[CodePath] = None
    """A function scores, with any of the arguments `row`, `inputs`, `outputs`, `run`, `against`: a number, true or
    false, or `{score, reason}`."""
    seconds_at_most: Maybe[Annotated[float, Field(gt=0)]] = None
    """Bound of what the run takes, in seconds; calls that were not made again count with the time that they took."""
    threshold: Maybe[Score] = None
    """The score from which on a row passes; left out: 1.0 for claims, else 0.5."""

    @property
    def claims(self) -> frozenset[str]:
        """The claims that it makes, by their keys."""
        return frozenset(self.model_fields_set & {*ExpectSpec.model_fields, "seconds_at_most"})

    @property
    def passes_from(self) -> float:
        """The score from which on a row passes."""
        return self.threshold if self.threshold is not None else 1.0 if self.claims else 0.5

    @model_validator(mode="after")
    def _one_way(self) -> ScorerSpec:
        ways = [way for way in ("judge", "call") if getattr(self, way) is not None]
        ways += sorted(self.claims)[:1]
        if not ways:
            raise refuse("FE202", "a scorer has a 'judge', a 'call', or claims such as 'outputs'")
        if len(ways) > 1:
            raise refuse("FE209", f"a scorer has one of '{ways[0]}' and '{ways[1]}': write two scorers", at=ways[1])
        return self


class RecordedSpec(Keys):
    """Rows from recorded runs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    runs: Plain
    """Which: `flow=triage status=succeeded since=30d label.team=billing limit=200`."""


class SpendingLimits(Keys):
    """The spending limits of all runs and judges of one eval."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    cost_usd: Maybe[Annotated[float, Field(gt=0)]] = None
    """Dollars."""
    tokens: Maybe[Annotated[int, Field(ge=1)]] = None
    """Tokens, in and out."""
    model_calls: Maybe[Annotated[int, Field(ge=1)]] = None
    """Calls of models."""


def _parse_data(value: Any) -> Any:
    if isinstance(value, str) or is_map(value):
        return value
    raise refuse("FE401", f"expected a file, or {{runs: …}}, found {format_found(value)}")


def _parse_slices(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Data: TypeAlias = Annotated[str | RecordedSpec, BeforeValidator(_parse_data)]


class EvalSpec(Keys):
    """A floweval file."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    flow: str
    """The flow file, relative to this one."""
    data: Data
    """The rows: a file (`.jsonl`, `.csv`) relative to this one, or `{runs: …}` for recorded runs."""
    map: dict[str, str] = Field(default_factory=dict[str, str])
    """Column → input, where they are not called the same."""
    inputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Inputs that every row gets."""
    scorers: Annotated[dict[str, ScorerSpec], Field(min_length=1)]
    """Name → what is scored."""
    slices: Annotated[list[str], BeforeValidator(_parse_slices)] = Field(default_factory=list[str])
    """Columns by whose values the scores are told apart."""
    samples: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often each row is run; every time asks anew."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Maximum number of rows running at once."""
    limits: SpendingLimits = SpendingLimits()
    """Limits on what the eval spends."""
    fakes: FakesSpec = FakesSpec()
    """What stands in the place of functions, tools and requests, in the words of flow tests. All that has an external
    effect is faked, or named as `real`; what has none runs."""
    effects: Maybe[Literal["run"]] = None
    """`run`: what is not faked has its effect outside, for each row."""


def eval_schema() -> dict[str, Any]:
    """The JSON Schema of floweval files, for editors."""
    schema = EvalSpec.model_json_schema(by_alias=True)
    for each in (schema, *schema.get("$defs", {}).values()):
        each["patternProperties"] = {"^x-": True}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "FlowEngine eval, version 1"}


# --- Reading and checking a file


class EvalFile(NamedTuple):
    """A floweval file with its flow."""

    path: Path
    name: str
    """The name by which its sets of runs are known: its place in the project."""
    flow: Flow
    spec: EvalSpec
    source: SourceText
    functions: Mapping[str, Callable[..., Any]]
    """Scorer → its function."""
    project: Project

    @property
    def flow_path(self) -> Path:
        return self.path.parent / self.spec.flow


def load_eval(
    path: str | PathLike[str], *, model: str | None = None, environ: Mapping[str, str] | None = None
) -> EvalFile:
    """The eval of a file; `EvalFileError`, or the flow's own `FlowError`, holds every problem.

    `model` goes before every model that the flow names, and before no judge's.
    """
    spec, source = read_yaml(path, EvalSpec, "a floweval file", EvalFileError)
    where = Path(path)
    file = where.parent / spec.flow
    if not file.is_file():
        raise EvalFileError([_diagnostic(where, source, ("FE101", ("flow",), f"there is no flow file {file}", ""))])
    flow = Flow.from_yaml(file, model=model, environ=environ)
    project = find_project(where)
    functions: dict[str, Callable[..., Any]] = {}
    problems = [_diagnostic(where, source, each) for each in _find_problems(spec, flow)]
    for name, scorer in spec.scorers.items():
        if scorer.call is not None:
            try:
                functions[name] = project.import_callable(scorer.call)
                problem = _find_misfit(functions[name])
                if problem:
                    problems.append(_diagnostic(where, source, ("FE512", ("scorers", name, "call"), problem, "")))
            except ProjectError as error:
                code = error.code or "FE506"
                problems.append(_diagnostic(where, source, (code, ("scorers", name, "call"), error.message, "")))
    if problems:
        raise EvalFileError(sorted(problems, key=lambda each: (each.line or 0, each.column or 0)))
    return EvalFile(where, _name_of(where, project), flow, spec, source, functions, project)


def _name_of(path: Path, project: Project) -> str:
    name = os.path.relpath(path.absolute(), project.root).replace(os.sep, "/")
    return name.removesuffix(SUFFIX).removesuffix(".yaml")


_Problem: TypeAlias = tuple[str, KeyPath, str, str]
"""Code, place, message, hint."""


def _diagnostic(file: Path, source: SourceText, problem: _Problem) -> Diagnostic:
    code, at, message, hint = problem
    return Diagnostic(code, message, str(file), *source.key_position(at), None, hint)


def _find_problems(spec: EvalSpec, flow: Flow) -> Iterator[_Problem]:
    nodes = list(flow.plan.all_nodes)
    outputs = flow.plan.outputs
    for name, scorer in spec.scorers.items():
        at: KeyPath = ("scorers", name)
        for place, text in _templates_of(scorer):
            yield from _check_template((*at, *place), text)
        for key, references in list_named_nodes(scorer):
            yield from find_unknown((*at, key), references, nodes, "node")
        if outputs is not None:
            references = [(each, each) for each in scorer.outputs]
            yield from find_unknown((*at, "outputs"), references, list(outputs), "output")
    yield from find_unknown_fakes(("fakes",), spec.fakes, flow)
    unfaked = list_unfaked(flow, spec.fakes) if spec.effects is None else ()
    if unfaked:
        yield "FE202", ("flow",), explain_unfaked(unfaked), "; `effects: run` has all of them for each row"
    fields = flow.plan.inputs
    if fields is not None:
        yield from find_unknown(("inputs",), [(each, each) for each in spec.inputs], list(fields), "input")
        for column, name in spec.map.items():
            if name not in fields:
                yield "FE305", ("map", column), f"the flow has no input '{name}'", did_you_mean(name, fields)


def _find_misfit(function: Callable[..., Any]) -> str:
    """Says what a scorer's function asks for that no scorer is given; empty where it can be called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # It does not say what it takes.
        return ""
    open_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for each in parameters:
        if each.kind is inspect.Parameter.POSITIONAL_ONLY:
            return f"a scorer's arguments are given by name, and '{each.name}' takes none"
        if each.kind not in open_kinds and each.name not in NAMES and each.default is inspect.Parameter.empty:
            return f"a scorer's arguments are {', '.join(NAMES)}, found '{each.name}'{did_you_mean(each.name, NAMES)}"
    return ""


def _templates_of(scorer: ScorerSpec) -> Iterator[tuple[KeyPath, str]]:
    if scorer.judge is not None:
        for key in ("target", "other", "instructions"):
            text = getattr(scorer.judge, key)
            if text is not None:
                yield ("judge", key), text
    for output, matcher in scorer.outputs.items():
        yield from ((("outputs", output), text) for text in _texts_in(matcher.value))
    for node, matcher in scorer.prompts.items():
        yield from ((("prompts", node), text) for text in _texts_in(matcher.value))
    yield from ((("route", node), label) for node, label in scorer.route.items())


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_map(value):
        for each in value.values():
            yield from _texts_in(each)
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType] - any YAML
            yield from _texts_in(each)


def _check_template(at: KeyPath, text: str) -> Iterator[_Problem]:
    try:
        references = parse_template(text).references
    except TemplateSyntaxError as error:
        yield "FE301", at, str(error), ""
        return
    for reference in references:
        name = reference.path[0]
        if name not in NAMES and not reference.may_be_own:
            names = ", ".join(NAMES)
            yield "FE302", at, f"nothing is called '{name}' here: there are {names}", did_you_mean(name, NAMES)


def check_columns(file: EvalFile, columns: Sequence[str]) -> None:
    """`EvalFileError` where slices or scorers name a column that no row has, before anything is paid."""
    problems = [_diagnostic(file.path, file.source, each) for each in _find_unknown_columns(file.spec, [*columns])]
    if problems:
        raise EvalFileError(problems)


def _find_unknown_columns(spec: EvalSpec, columns: Sequence[str]) -> Iterator[_Problem]:
    def tell(at: KeyPath, name: str) -> _Problem:
        hint = did_you_mean(name, columns) or f"; there are: {', '.join(columns[:12])}"
        return "FE305", at, f"the data has no column '{name}'", hint

    for place, name in enumerate(spec.slices):
        if name not in columns:
            yield tell(("slices", place), name)
    for name, scorer in spec.scorers.items():
        for place, text in _templates_of(scorer):
            for reference in parse_template(text).references:
                path = reference.path
                if path[0] == "row" and len(path) > 1 and path[1] not in columns:
                    yield tell(("scorers", name, *place), path[1])


def render_claim(matcher: Matcher, render: Callable[[str], Any]) -> Matcher:
    """A claim about one row: what stands in templates is filled in."""
    return Matcher(matcher.kind, _fill(matcher.value, render))


def _fill(value: Any, render: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return render(value)
    if is_map(value):
        return {key: _fill(each, render) for key, each in value.items()}
    if isinstance(value, list):
        return [_fill(each, render) for each in value]  # pyright: ignore[reportUnknownVariableType] - any YAML
    return value
