"""What each kind of node gives, for the oracle. A node that fails raises `ExpressionError`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from flowengine import EvaluationResult, LLMResult, NodeResult, RoutingResult
from tests.properties.oracle_expressions import ExpressionError, Unclear, choose
from tests.properties.oracle_state import Write, Writes, joined

__all__ = ["FAILED_ITEM", "KINDS", "PASSED_ON", "Result", "routes_of"]

PASSED_ON: Final = object()
"""The `result` of a transparent node: what it received."""
FAILED_ITEM: Final = "the text of an item's error"
"""Stands for a text that the format does not lay down."""


class Result(NamedTuple):
    output: Any
    result: Any = None
    writes: Writes = MappingProxyType({})
    taken: str | None = None
    routing: Any = None
    evaluation: Any = None
    prompt: str | None = None
    generation: Any = None


def routes_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """Targets of a node's routes, by target: those of its labels, of `fallback`, and of `on_error: {then}`."""
    found: list[str | None] = [*_labelled(spec).values()]
    parts = [part for part in (spec, spec.get("routing", {})) if "fallback" in part]
    found += [_labelled(spec).get(part["fallback"], part["fallback"]) for part in parts]
    if isinstance(spec.get("on_error"), Mapping):
        found.append(spec["on_error"]["then"])
    return {target: target for target in found if target is not None}


def _labelled(spec: Mapping[str, Any]) -> dict[str, str | None]:
    """Label → where it leads."""
    routes: Mapping[str, Any] = spec.get("routes") or spec.get("routing", {}).get("routes") or {}
    labels = {label: _target(route) for label, route in routes.items()}
    labels |= {label: _target(spec[label]) for label in ("then", "else") if label in spec}
    for case in spec.get("cases", ()):
        labels[_label_of(case)] = _target(case.get("then"))
    return labels


def _label_of(case: Mapping[str, Any]) -> str:
    return case.get("label") or _target(case["then"]) or "?"


def _target(route: Any) -> str | None:
    return cast("Mapping[str, Any]", route).get("to") if isinstance(route, Mapping) else route


def _function(spec: Mapping[str, Any], scope: Any) -> Result:
    arguments = scope.render(spec["with"]) if "with" in spec else None
    returned = scope.call(spec["call"], arguments)
    if not isinstance(returned, NodeResult):
        return Result(returned, returned)
    writes = {key: [Write(scope.path, value)] for key, value in (returned.state or {}).items()}
    return Result(returned.output, returned.output, writes)


def _condition(spec: Mapping[str, Any], scope: Any) -> Result:
    label = _label_taken(spec, scope)
    return Result(label, PASSED_ON, taken=_labelled(spec).get(label))


def _label_taken(spec: Mapping[str, Any], scope: Any) -> str:
    if "if" in spec:
        return "then" if choose(spec["if"], scope.look_up) else "else"
    if "call" in spec:
        answer = scope.call(spec["call"], None)
        if answer not in spec["routes"] and "else" not in spec:
            raise ExpressionError(f"{answer!r} matches none of {list(spec['routes'])}")
        return answer if answer in spec["routes"] else "else"
    for case in spec["cases"]:
        if choose(case["if"], scope.look_up):
            return _label_of(case)
    if "else" not in spec:
        raise ExpressionError("no case matches")
    return "else"


def _evaluation(spec: Mapping[str, Any], scope: Any) -> Result:
    target = _target_text(spec, scope)
    if "call" in spec:
        score = scope.call(spec["call"], None, target)
    else:
        score = float(scope.library.think(spec["instructions"], target))
    return _judged(target, score, spec, scope)


def _judged(target: Any, score: float, spec: Mapping[str, Any], scope: Any) -> Result:
    passed = score >= spec.get("threshold", 0.7)
    judged = EvaluationResult(content=target, score=score, passed=passed)
    return Result(judged, PASSED_ON, taken=_labelled(spec).get("pass" if passed else "fail"), evaluation=judged)


def _target_text(spec: Mapping[str, Any], scope: Any) -> str:
    target = scope.render(spec["target"]) if "target" in spec else scope.last("generation")
    if not isinstance(target, str):
        raise Unclear(f"what is judged of {target!r}")
    return target


def _routing(spec: Mapping[str, Any], scope: Any) -> Result:
    target = _target_text(spec, scope)
    chosen, taken = _chosen(spec, scope.library.think(scope.render(spec["instruction"]), target), spec)
    routed = RoutingResult(content=target, next_route=chosen)
    return Result(routed, PASSED_ON, taken=taken, routing=routed)


def _chosen(spec: Mapping[str, Any], answer: str, part: Mapping[str, Any]) -> tuple[str, str | None]:
    labels = _labelled(spec)
    if answer in labels:
        return answer, labels[answer]
    if "fallback" not in part:
        raise ExpressionError(f"{answer!r} matches none of {list(labels)}")
    raise Unclear("what next_route says of an answer that fell back")


def _agent(spec: Mapping[str, Any], scope: Any) -> Result:
    if "prompt" in spec:
        text = scope.render(spec["prompt"])
    elif scope.level.parents[scope.node]:
        text = scope.received()
    else:
        raise Unclear("what the user input of a first node is")
    if not isinstance(text, str | LLMResult):
        raise Unclear(f"how {text!r} is put into a prompt")
    answer = scope.library.think(scope.render(spec.get("instructions", "")), str(text))
    found = Result(answer, LLMResult(content=answer), prompt=str(text), generation=answer)
    if "evaluate" in spec:
        score = float(scope.library.think(scope.render(spec["evaluate"]["instructions"]), answer))
        found = found._replace(evaluation=_judged(answer, score, spec["evaluate"], scope).evaluation)
    if "routing" in spec:
        chosen = scope.library.think(scope.render(spec["routing"]["instruction"]), answer)
        label, taken = _chosen(spec, chosen, spec["routing"])
        found = found._replace(taken=taken, routing=RoutingResult(content=answer, next_route=label))
    return found


def _approval(spec: Mapping[str, Any], scope: Any) -> Result:
    scope.render(spec["message"])
    choice = scope.library.answers[scope.node]
    answer = {"choice": choice, "comment": "", "by": "", "form": None}
    return Result(answer, PASSED_ON, taken=_target(spec["routes"][choice]))


def _map(spec: Mapping[str, Any], scope: Any) -> Result:
    items = scope.evaluate(spec["over"])
    if not isinstance(items, list):
        raise ExpressionError(f"'over' gives {items!r}, which is no list")
    levels: list[Any] = []
    results: list[Any] = []
    failed = False
    for level, result in _items(spec, scope, cast("list[Any]", items)):
        failed = failed or result is _LOST
        if result is _LOST and spec.get("on_item_error", "fail") != "collect":
            continue
        levels.append(level)
        results.append({"error": FAILED_ITEM, "index": level.variables["each"]["index"]} if result is _LOST else result)
        if "until" in spec and result is not _LOST and _ends(spec, level):
            break
    if failed and spec.get("on_item_error", "fail") == "fail":
        raise ExpressionError("an item failed")
    return Result(results, results, joined(each.written for each in levels))


_LOST: Final = object()


def _items(spec: Mapping[str, Any], scope: Any, items: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each item's level, and its result."""
    for index, item in enumerate(items):
        names = {spec.get("as", "item"): item, "each": {"index": index, "total": len(items)}}
        level = scope.inside(f"[{index}]", spec, names, {})
        result = _LOST
        if not level.failures:
            try:
                result = level.whole.render(spec["result"])
            except ExpressionError:
                result = _LOST
        if result is _LOST and level.written:
            raise Unclear("whether what a failed item wrote counts")
        yield level, result


def _ends(spec: Mapping[str, Any], level: Any) -> bool:
    return choose(spec["until"], level.whole.look_up)


def _loop(spec: Mapping[str, Any], scope: Any) -> Result:
    variables = scope.render(spec.get("initial", {}))
    entered: list[tuple[Any, Mapping[str, Any]]] = []
    written: Writes = {}
    most = spec["max_iterations"]
    for index in range(most):
        last = index == most - 1
        level = scope.inside(f".round[{index}]", spec, {"round": {**variables, "index": index, "last": last}}, written)
        if level.failures:
            raise ExpressionError(f"{level.failures} failed")
        written = joined([written, level.written])
        mark = level.whole.evaluate(spec["best_by"]) if "best_by" in spec else index
        entered.append((mark, variables))
        if "until" in spec and _ends(spec, level):
            break
        if not last:
            variables = {**variables, **level.whole.render(spec.get("carry", {}))}
    else:
        if "until" in spec:
            return _exhausted(spec, entered, written)
    output = {**variables, "iterations": len(entered), "exhausted": False}
    return Result(output, output, written)


def _exhausted(spec: Mapping[str, Any], entered: list[tuple[Any, Mapping[str, Any]]], written: Writes) -> Result:
    if spec.get("on_exhausted", "fail") == "fail":
        raise ExpressionError("no round was good enough")
    output = {**_best(entered), "iterations": len(entered), "exhausted": True}
    return Result(output, output, written)


def _best(entered: list[tuple[Any, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """The variables of the last of the rounds with the highest mark (rule 11)."""
    highest = max(mark for mark, _ in entered)
    return [variables for mark, variables in entered if mark == highest][-1]


def _subflow(spec: Mapping[str, Any], scope: Any) -> Result:
    outputs = scope.subflow(spec)
    return Result(outputs, outputs)


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any], Any], Result]]] = {
    "function": _function,
    "condition": _condition,
    "evaluation": _evaluation,
    "routing": _routing,
    "agent": _agent,
    "approval": _approval,
    "map": _map,
    "loop": _loop,
    "subflow": _subflow,
}
