"""Random flows with what a test needs beside them: inputs, people's answers, what is down at first, and an edit.

Flows are small and mean something: references lead to nodes that are there, mostly with the type that is asked for. The
same draws give the same flow, so hypothesis can shrink one that shows a mismatch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from hypothesis import strategies as st

__all__ = ["INPUTS", "STATE", "Case", "Given", "cases"]

Draw = Callable[[st.SearchStrategy[Any]], Any]
Document = dict[str, Any]

VALUES: list[Any] = [None, "", "false", 0, 3, True, {"a": None}, "one\u2028two", [[1, []], [{"k": None}]], "日本語"]
WHICH = ("none", "empty", "false", "zero", "yes", "no", "holes", "lines", "nest", "wide")
STATE: Document = {
    "log": {"type": "array", "default": [], "merge": "append"},
    "total": {"type": "integer", "default": 0, "merge": "sum"},
    "best": {"type": "integer", "default": 0, "merge": "max"},
    "slot": {"default": "start", "merge": "replace"},
}
INPUTS: Document = {"a": {"type": "integer"}, "b": {"schema": {}, "default": None}}


class Given(NamedTuple):
    """A flow, the files of its subflows, and the inputs of a run."""

    flow: Document
    files: dict[str, Document]
    inputs: dict[str, Any]
    edited_code: bool = False
    """Whether the module `lib` is the edited one."""


class Case(NamedTuple):
    first: Given
    second: Given
    """The first after edits of the flow, of its code or of its inputs."""
    answers: dict[str, str]
    """Choices of people, by the question's node."""
    down: frozenset[str]
    """What is down at first."""
    cut: int
    """Where a process dies, in thousandths of the journal."""


class Seen(NamedTuple):
    """A node that later nodes of its level may read."""

    name: str
    kind: str
    certain: bool
    """Whether it succeeds wherever its readers run."""


class OpenRoute(NamedTuple):
    """A route that leads nowhere yet, and where it is written."""

    owner: str
    written: Document
    key: str


@st.composite
def cases(draw: Draw, most: int = 6, models: bool = True) -> Case:
    """`most`: nodes of the top level; `models`: whether some ask a model."""
    writer = _Writer(draw, models)
    first = writer.flow(most)
    second = _edited(draw, first) if draw(st.booleans()) else first._replace(inputs=_inputs(draw))
    return Case(first, second, writer.answers, frozenset(writer.down), draw(st.integers(0, 999)))


def _inputs(draw: Draw) -> dict[str, Any]:
    return {"a": draw(st.integers(0, 6)), "b": draw(st.sampled_from(VALUES))}


class _Writer:
    """Writes one flow. Names of nodes are used once in a flow and its bodies, so nothing is shadowed."""

    def __init__(self, draw: Draw, models: bool) -> None:
        self.draw, self.models = draw, models
        self.answers: dict[str, str] = {}
        self.down: set[str] = set()
        self.files: dict[str, Document] = {}
        self.number = 0
        self.others: list[_Writer] = []
        """Of all subflows; names of files and nodes are used once in all of them."""

    def inner(self) -> _Writer:
        """What writes a subflow."""
        inner = _Writer(self.draw, self.models)
        inner.answers, inner.down, inner.files, inner.others = self.answers, self.down, self.files, self.others
        self.others.append(inner)
        inner.number = 100 * len(self.others)
        return inner

    def flow(self, most: int) -> Given:
        level = _LevelWriter(self, depth=0, inputs=True)
        if self.chance(3):
            level.flaky()
        nodes = level.nodes(self.draw(st.integers(1, most)))
        flow: Document = {"flowengine": "v1", "name": "t", "inputs": INPUTS, "shared_state": STATE, "nodes": nodes}
        if self.chance(2):
            flow["limits"] = self.pick(({"concurrency": 1}, {"concurrency": 2}, {"on_failure": "cancel"}))
        flow["outputs"] = level.outputs()
        return Given(flow, self.files, _inputs(self.draw))

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def pick(self, values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def name(self) -> str:
        self.number += 1
        return f"n{self.number - 1}"


class _LevelWriter:
    """Writes the nodes of a level, one after the other; a node reads only what is before it."""

    def __init__(
        self,
        writer: _Writer,
        depth: int,
        inputs: bool,
        outer: tuple[Seen, ...] = (),
        variables: tuple[Seen, ...] = (),
        may_fail: bool = True,
        may_write: bool = True,
    ) -> None:
        self.writer, self.depth, self.outer, self.variables = writer, depth, outer, variables
        self.chance, self.pick = writer.chance, writer.pick
        self.inputs, self.may_fail, self.may_write = inputs, may_fail, may_write
        self.seen: list[Seen] = []
        self.made: Document = {}
        self.open_routes: list[OpenRoute] = []

    def nodes(self, count: int) -> Document:
        for _ in range(count):
            self._node()
        return self.made

    def flaky(self) -> None:
        """A node that waits for nothing and is down at first, so that much is under way when it fails."""
        name = self.writer.name()
        self.writer.down.add(name)
        arguments = {"name": name, "x": self.writer.draw(st.integers(0, 10))}
        self.made[name] = {"type": "function", "call": "lib:flaky", "with": arguments}

    def outputs(self) -> Document:
        """Every node's output, by its name."""
        return {each.name: f'{{{{ nodes.{each.name}.output | default("nothing") }}}}' for each in self.seen}

    # --- references ---------------------------------------------------------------------------

    def readable(self, kinds: tuple[str, ...]) -> list[Seen]:
        return [each for each in (*self.outer, *self.variables, *self.seen) if not kinds or each.kind in kinds]

    def path(self, seen: Seen) -> str:
        return seen.name if seen in self.variables else f"nodes.{seen.name}.output"

    def integer(self) -> str | int:
        """A template that gives a whole number, mostly."""
        found = self.readable(("int", "table", "point", "list"))
        choices = ["literal", "input", *["node"] * 3 * bool(found), *["state"] * (self.depth < 2 and self.inputs)]
        match self.pick(choices):
            case "literal":
                return self.writer.draw(st.integers(0, 9))
            case "input":
                return "{{ inputs.a }}"
            case "state":
                return "{{ shared_state.total }}"
        return f"{{{{ {self.int_path(self.pick(found))} }}}}"

    def int_path(self, seen: Seen) -> str:
        path = self.path(seen)
        path = {"table": f"{path}.x", "point": f"{path}.x", "list": f"{path} | length"}.get(seen.kind, path)
        if not seen.certain:
            if seen.kind == "list":
                return f"{self.path(seen)} | default([]) | length"
            return f"{path} | default({self.writer.draw(st.integers(0, 9))})"
        return f"{path} + 1" if seen.kind == "int" and self.chance(3) else path

    def anything(self) -> Any:
        """A template that gives any value."""
        found = self.readable(())
        choices = ["literal", "input", *["node"] * 4 * bool(found), *["state"] * self.inputs]
        match self.pick(choices):
            case "literal":
                return self.pick(["word", 7, None, [1, [2]], {"k": "v"}])
            case "input":
                return "{{ inputs.b }}"
            case "state":
                return f"{{{{ shared_state.{self.pick(tuple(STATE))} }}}}"
        seen = self.pick(found)
        path = self.path(seen)
        if seen.certain and seen in self.seen and self.chance(8):
            return [f"{{{{ {path} }}}}", {"k": f"{{{{ {path} }}}}"}]
        return f"{{{{ {path} }}}}" if seen.certain else f'{{{{ {path} | default("nothing") }}}}'

    def boolean(self, deep: int = 1) -> str:
        """A bare expression that gives a boolean, mostly."""
        ints = self.readable(("int", "table", "point", "list"))
        tables = [each for each in self.readable(("table",)) if each.certain]
        own = [each for each in self.seen if each.kind not in ("flag",)]
        choices = ["input", *["node"] * 3 * bool(ints), *["deep"] * deep, *["table"] * bool(tables)]
        choices += ["status"] * bool(own) + ["flag"] * bool(self.readable(("flag",)))
        bound = self.writer.draw(st.integers(0, 5))
        match self.pick(choices):
            case "input":
                return f"inputs.a > {bound}"
            case "node":
                return f"({self.int_path(self.pick(ints))}) > {bound}"
            case "status":
                return f'nodes.{self.pick(own).name}.status == "succeeded"'
            case "flag":
                return self.path(self.pick(self.readable(("flag",))))
            case "table":
                fields = [".ok", ".ok", ".ok", ".nothing is none", *[".said", ".missing"] * self.may_fail]
                return self.path(self.pick(tables)) + self.pick(fields)
        match self.pick(("and", "or", "not")):
            case "not":
                return f"not ({self.boolean(0)})"
            case word:
                return f"({self.boolean(0)}) {word} ({self.boolean(0)})"

    # --- nodes --------------------------------------------------------------------------------

    def _node(self) -> None:
        name = self.writer.name()
        kinds = ["function"] * 8 + ["reader"] * 3 + ["condition", "condition", "evaluation"]
        kinds += ["agent", "agent", "routing"] * self.writer.models
        kinds += ["map", "map", "loop", "loop", "subflow"] * (1 + (self.depth == 1)) * (self.depth < 3)
        kinds += ["approval"] * (self.depth < 2)
        kind = self.pick(kinds)
        spec, shape = getattr(self, f"_{kind}")(name)
        certain = self._common(name, kind, spec)
        self.made[name] = spec
        self.seen.append(Seen(name, shape, certain))

    def _common(self, name: str, kind: str, spec: Document) -> bool:
        """Keys that every node has; whether it surely succeeds."""
        certain = kind in ("function", "reader", "map", "loop", "subflow", "evaluation") and "retry" not in spec
        certain = certain and spec.get("call") not in ("lib:boom", "lib:flaky")
        if self.seen and self.chance(3):
            spec["needs"] = [self.pick(self.seen).name]
        if any(each.owner != name for each in self.open_routes) and self.chance(2):
            certain = False
            self._close_route(name, spec)
        if self.chance(6) and "when" not in spec:
            certain, spec["when"] = False, self.boolean()
        if self.chance(10):
            spec["join"] = self.pick(("all", "always"))
        if self.may_write and kind not in ("map", "loop", "subflow", "approval") and self.chance(6):
            spec["set"] = self._set(spec)
        if kind in ("function", "reader", "agent", "evaluation", "subflow", "map", "loop") and self.chance(4):
            spec["cache"] = True
        return certain and all(self._is_certain(each) for each in self._parents(spec))

    def _parents(self, spec: Document) -> Iterator[str]:
        yield from re.findall(r"nodes\.(n\d+)", repr(spec))
        yield from spec.get("needs", ())

    def _is_certain(self, name: str) -> bool:
        return all(each.certain for each in self.seen if each.name == name)

    def _close_route(self, name: str, spec: Document) -> None:
        """An earlier node leads here."""
        place = self.pick([place for place, each in enumerate(self.open_routes) if each.owner != name])
        route = self.open_routes.pop(place)
        if route.key == "on_error" and re.search(rf"nodes\.{route.owner}\b", repr(spec)):
            return
        route.written[route.key] = {"then": name} if route.key == "on_error" else name

    def _set(self, spec: Document) -> Document:
        key = self.pick(("log", "total", "slot"))
        if key == "log":
            return {key: ["{{ output }}", "set"]}
        return {key: self.integer() if key == "total" else self.pick(("{{ output }}", "{{ inputs.b }}", "set"))}

    def _function(self, name: str) -> tuple[Document, str]:
        shapes = {
            "num": "int", "plain": "int", "add": "int", "value": "any", "point": "point", "card": "card", "bag": "set",
            "table": "table", "items": "list", "points": "points", "show": "text", "poke": "text", "hold": "any",
            "pick": "any", "flag": "flag", "mixed": "text",
        }  # fmt: skip
        calls = [*shapes, "show", "poke", "poke"]
        calls += ["log", "bump", "put", "spread"] * (self.may_write and self.inputs)
        calls += ["boom", "flaky"] * self.may_fail
        call = self.pick(calls)
        spec: Document = {"type": "function", "call": f"lib:{call}"}
        match call:
            case "value":
                spec["with"] = {"which": self.pick(WHICH)}
            case "show" | "poke":
                spec["with"] = {"value": self.anything()}
            case "log" | "put":
                spec["with"] = {"x": self.anything()}
            case "add":
                spec["with"] = {"x": self.integer(), "y": self.integer()}
            case "flaky":
                self.writer.down.add(name)
                spec["with"] = {"name": name, "x": self.integer()}
                if self.chance(4):
                    spec["retry"] = {"attempts": 2, "initial": "1ms", "jitter": False}
            case _:
                spec["with"] = {"x": self.integer()}
        if call == "boom" and not self.chance(4):
            self._caught(name, spec)
        return spec, shapes.get(call, "any")

    def _caught(self, name: str, spec: Document) -> None:
        """The node's failure is no failure of the run."""
        spec["on_error"] = "skip"
        if self.chance(2):
            self.open_routes.append(OpenRoute(name, spec, "on_error"))

    def _reader(self, name: str) -> tuple[Document, str]:
        """A function that reads the context, without arguments."""
        calls = ["seen_inputs", "seen_n0", *["seen_state"] * self.inputs]
        calls += ["seen_item"] * any(each.name == "item" for each in self.variables)
        spec: Document = {"type": "function", "call": f"lib:{self.pick(calls)}"}
        found = [each for each in self.seen if each.certain]
        if found and self.chance(2):
            spec |= {"call": "lib:seen_result", "needs": [self.pick(found).name]}
        return spec, "int" if spec["call"] == "lib:seen_inputs" else "text"

    def _condition(self, name: str) -> tuple[Document, str]:
        spec: Document = {"type": "condition"}
        match self.pick(("if", "cases", "call")):
            case "if":
                spec["if"] = self.boolean()
                self._open(name, spec, "then", "else")
            case "cases":
                spec["cases"] = [{"if": self.boolean(), "label": label, "then": {}} for label in ("one", "two")]
                self._open(name, spec["cases"][0], "then")
                self._open(name, spec["cases"][1], "then")
                spec["else"] = {}
                self._open(name, spec, "else")
            case "call":
                spec |= {"call": "lib:choose", "routes": {"left": {}, "right": {}, "other": {}}}
                self._open(name, spec["routes"], "left", "right")
        return spec, "text"

    def _open(self, name: str, written: Document, *keys: str) -> None:
        for key in keys:
            written.setdefault(key, {})
            self.open_routes.append(OpenRoute(name, written, key))

    def _evaluation(self, name: str) -> tuple[Document, str]:
        spec: Document = {"type": "evaluation", "target": f"text {self.integer()}", "threshold": 0.5, "routes": {}}
        if not self.writer.models or self.chance(2):
            spec["call"] = "lib:score"
        else:
            spec |= {"instructions": f"score 0.{self.pick((2, 8))}", "model": "offline"}
        self._open(name, spec["routes"], "pass", "fail")
        return spec, "judged"

    def _agent(self, name: str) -> tuple[Document, str]:
        spec: Document = {
            "instructions": f"Say w{self.integer()}.",
            "model": "offline",
            "prompt": f"go {self.integer()}",
        }
        if self.chance(3):
            spec["evaluate"] = {"instructions": f"score 0.{self.pick((2, 8))}", "threshold": 0.5}
        if self.chance(3):
            side = self.pick(("left", "right", '{{ "left" if inputs.a > 2 else "right" }}'))
            spec["routing"] = {"instruction": f"pick {side}!", "routes": {"left": {}, "right": {}}}
            self._open(name, spec["routing"]["routes"], "left", "right")
        return spec, "answer"

    def _routing(self, name: str) -> tuple[Document, str]:
        side = self.pick(("left", "right", '{{ "left" if inputs.a > 2 else "right" }}', "nothing"))
        side = "left" if side == "nothing" and not self.may_fail else side
        routes: Document = {"left": {}, "right": {}}
        self._open(name, routes, "left", "right")
        target = f"text {self.integer()}"
        return {
            "type": "routing",
            "instruction": f"pick {side}!",
            "target": target,
            "routes": routes,
            "model": "offline",
        }, "routed"

    def _approval(self, name: str) -> tuple[Document, str]:
        routes: Document = {"ship": {}, "stop": {}}
        self._open(name, routes, "ship", "stop")
        self.writer.answers[name] = self.pick(("ship", "stop"))
        return {"type": "approval", "message": f"Go on with {self.integer()}?", "routes": routes}, "answered"

    # --- containers ---------------------------------------------------------------------------

    def _body(self, variables: tuple[Seen, ...], may_fail: bool, may_write: bool) -> _LevelWriter:
        replaced = {each.name.partition(".")[0] for each in variables if "." in each.name}
        around = [each for each in self.variables if each.name.partition(".")[0] not in replaced]
        body = _LevelWriter(
            self.writer,
            self.depth + 1,
            self.inputs,
            (*self.outer, *self.seen),
            (*around, *variables),
            may_fail and self.may_fail,
            may_write and self.may_write,
        )
        body.nodes(self.writer.draw(st.integers(1, 3)))
        return body

    def _map(self, name: str) -> tuple[Document, str]:
        lists = [each for each in self.readable(("list", "points")) if each.certain]
        computed = [f"[{self.pick((1, 2, 3))}, 5]", "[[1], [2]]", '["a", {"k": none}]', "[none]", "[]", "[1, 2, 3]"]
        over = self.pick([*computed, *(self.path(each) for each in lists)])
        kind = (
            "int" if over in (*computed[:1], "[1, 2, 3]") or over in map(self.path, self.readable(("list",))) else "any"
        )
        policy = self.pick(("fail", "fail", "skip", "collect"))
        index = Seen("each.index", "int", True)
        names = [
            each for each in ("item", "part", "piece", "bit") if each not in {seen.name for seen in self.variables}
        ]
        body = self._body((Seen(names[0], kind, True), index), may_fail=policy == "fail", may_write=policy == "fail")
        if policy != "fail" and self.chance(2):
            body.made[f"{name}b"] = {
                "type": "function",
                "call": "lib:boom",
                "with": {"x": 1},
                "when": "each.index == 1",
            }
        spec: Document = {"type": "map", "over": over, "nodes": body.made, "on_item_error": policy}
        spec["result"] = self._result_of(body)
        if names[0] != "item":
            spec["as"] = names[0]
        if self.chance(4):
            spec["concurrency"] = 1
        return spec, "collected" if policy == "collect" else "any"

    def _result_of(self, body: _LevelWriter) -> Any:
        last = body.seen[-1]
        value = f'{{{{ nodes.{last.name}.output | default("nothing") }}}}'
        return value if self.chance(2) else {"value": value, "log": "{{ shared_state.log }}" if self.inputs else 1}

    def _loop(self, name: str) -> tuple[Document, str]:
        variable = f"v{self.depth}"
        rounds = (Seen(f"round.{variable}", "int", True), Seen("round.last", "flag", True))
        body = self._body(rounds, may_fail=True, may_write=True)
        ints = [each for each in body.seen if each.kind == "int"]
        carried = f"round.{variable} + 1"
        if ints and self.chance(2):
            carried = f"nodes.{ints[-1].name}.output | default(5)"
        spec: Document = {
            "type": "loop",
            "max_iterations": self.pick((1, 2, 3, 4)),
            "initial": {variable: self.integer()},
        }
        spec |= {"nodes": body.made, "carry": {variable: f"{{{{ {carried} }}}}"}}
        if self.chance(2):
            spec["until"] = self.pick((f"round.{variable} > 4", "round.index == 1", "round.last"))
            spec["on_exhausted"] = "continue" if not self.may_fail else self.pick(("continue", "continue", "fail"))
            if self.chance(3):
                spec["best_by"] = self.pick((f"round.{variable}", "0 if round.index == 1 else round.index"))
        return spec, "looped"

    def _subflow(self, name: str) -> tuple[Document, str]:
        inner = self.writer.inner()
        level = _LevelWriter(inner, self.depth + 1, inputs=True, may_fail=self.may_fail)
        nodes = level.nodes(self.writer.draw(st.integers(1, 3)))
        flow = {"flowengine": "v1", "name": f"s_{name}", "inputs": INPUTS, "shared_state": STATE, "nodes": nodes}
        self.writer.files[f"s_{name}.yaml"] = {**flow, "outputs": level.outputs()}
        given = {"a": self.integer(), "b": self.anything()}
        return {"type": "subflow", "flow": f"./s_{name}.yaml", "with": given}, "any"


# --- edits ------------------------------------------------------------------------------------------


def _edited(draw: Draw, first: Given) -> Given:
    """Some of: another input, edited code, another number or word in a definition, another or no `when`."""
    second = Given(deepcopy(first.flow), deepcopy(first.files), first.inputs)
    for kind in draw(st.lists(st.sampled_from(("inputs", "code", "number", "when", "needs")), min_size=1, max_size=3)):
        match kind:
            case "inputs":
                second = second._replace(inputs=_inputs(draw))
            case "code":
                second = second._replace(edited_code=True)
            case "number":
                _edit_number(draw, second)
            case "when":
                node = draw(st.sampled_from(list(second.flow["nodes"].values())))
                node["when"] = f"inputs.a > {draw(st.integers(0, 5))}"
            case _:
                _edit_needs(draw, second.flow["nodes"])
    return second


def _edit_needs(draw: Draw, nodes: Document) -> None:
    if len(nodes) > 1:
        names = list(nodes)
        place = draw(st.integers(1, len(names) - 1))
        nodes[names[place]]["needs"] = [names[draw(st.integers(0, place - 1))]]


def _edit_number(draw: Draw, given: Given) -> None:
    """Another digit in one of the definitions."""
    places = [place for document in (given.flow, *given.files.values()) for place in _places(document["nodes"])]
    if places:
        holder, key = draw(st.sampled_from(places))
        new, old = draw(st.integers(0, 6)), holder[key]
        holder[key] = new if isinstance(old, int) else re.sub(_DIGIT, str(new), old)


_DIGIT = re.compile(r"(?<=[ (w])\d\b(?!\.\d)")
_KEYS = frozenset(
    {"with", "set", "when", "if", "over", "until", "initial", "carry", "prompt", "instructions", "target"}
)


def _places(value: Any, inside: bool = False) -> Iterator[tuple[Any, Any]]:
    """Where a number stands that may be another: the holder and the key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        here = inside or key in _KEYS
        if (here and key != "name" and type(each) is int) or (here and isinstance(each, str) and _DIGIT.search(each)):
            yield value, key
        yield from _places(each, here)
