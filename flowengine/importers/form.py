"""Holds what a format's reader found, between reading and writing: flows of steps, code, files and the ledger.

A reader makes one `ImportedProject`; `project_writer` makes files of it. What a `FlowStep` says is said in the words
of the flow format, so the form needs no vocabulary of its own:

- `kind` is a node's `type` (`agent`, `condition`, `map` …). `id` comes from `Names`, so it is valid and stands once.
  `prompt`, `instructions`, `system_message`, `model`, `arguments` (`with`), `needs`, `when` and `call` are what most
  steps have; every other key of the node stands in `keys` as the file is to have it. `body` are the nodes of a map or
  a loop. Texts are templates of ours already (`jinja_text` converts Jinja, `literal` escapes plain text).
- What a step chooses, gives and writes is said by its own methods (`choose`, `lead`, `test_of`, `give`, `write_state`);
  `flow_text` writes texts, values, paths and tests as expressions and templates.
- `call` names code: a function of a `CarriedFile`, of a `Stub`, or `GIVE`. All of it is put into `allow_calls`.
- Each element of the source is told to the `ImportLedger` once, with its file and line: `note_mapped` where the written
  flow does it as it was, `note_changed` where it does it in another way (which), `note_lost` where it does not
  (why, and what to do by hand). `note_kept` is for files that are copied as they are; they count in no share.

It reads nothing and writes nothing.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from flowengine.core import read_rule
from flowengine.importers.flow_text import quote, to_tag
from flowengine.importers.option_values import is_secret
from flowengine.importers.read_keys import take_unread

Outcome = Literal["mapped", "changed", "lost", "kept"]


GIVE: Final = "imported_values:give"
"""A function for steps that only make a value: `FlowStep(id, "function", call=GIVE, arguments={"value": template})`.
The output is what the template gives. The writer writes its module where a step calls it; flow tests do not fake it."""


class SourcePlace(NamedTuple):
    """The position of an element of the source; the file is relative to the imported folder."""

    file: str
    line: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NOWHERE: Final = SourcePlace("", 0)
_LONGEST_KEY: Final = 60
_KEYS_AT_ONCE: Final = 9
"""The number of the longest keys that fit into a line of IMPORT.md."""


class Element(NamedTuple):
    """One element of the source, and what became of it."""

    what: str
    origin: SourcePlace
    outcome: Outcome
    note: str = ""
    """mapped: as what; changed: which change; lost: why."""
    by_hand: str = ""
    """The work that is left for a person; never empty for a lost element."""


class ImportLedger:
    """Every element of the source, in the order in which it was told."""

    def __init__(self) -> None:
        self.elements: list[Element] = []
        self._unread: dict[str, tuple[SourcePlace, set[str]]] = {}

    def note_mapped(self, what: str, origin: SourcePlace, note: str = "") -> None:
        """The written flow does it as it was."""
        self.elements.append(Element(what, origin, "mapped", note))

    def note_changed(self, what: str, origin: SourcePlace, change: str, by_hand: str = "") -> None:
        """The written flow does it, in another way."""
        self.elements.append(Element(what, origin, "changed", change, by_hand))

    def note_lost(self, what: str, origin: SourcePlace, why: str, by_hand: str) -> None:
        """The written flow does not do it."""
        self.elements.append(Element(what, origin, "lost", why, by_hand))

    def note_done(self, what: str, origin: SourcePlace, change: str = "", by_hand: str = "", note: str = "") -> None:
        """Mapped, or changed where there is a change or something left to do."""
        if change or by_hand:
            self.note_changed(what, origin, change or note, by_hand)
        else:
            self.note_mapped(what, origin, note)

    def note_kept(self, what: str, origin: SourcePlace, note: str = "") -> None:
        """A file that is copied as it is."""
        self.elements.append(Element(what, origin, "kept", note))

    def note_unread(
        self, kind: str, watched: Mapping[str, Any], origin: SourcePlace, other_keys: Collection[str]
    ) -> None:
        """Keys of an element of some kind that its reader did not ask for; `other_keys` ones are not told."""
        if keys := take_unread(watched, other_keys):
            self._unread.setdefault(kind, (origin, set()))[1].update(each[:_LONGEST_KEY] for each in keys)

    def tell_unread(self) -> None:
        """Tell the keys that nothing read, once a kind and key, at the first element that has some."""
        for kind, (origin, keys) in sorted(self._unread.items()):
            names = sorted(keys)
            for at in range(0, len(names), _KEYS_AT_ONCE):
                change = f"nothing here reads {', '.join(names[at : at + _KEYS_AT_ONCE])}"
                self.note_changed(f"keys of {kind}", origin, change, "see whether the flow needs them")
        self._unread.clear()

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome == outcome for each in self.elements)

    @property
    def share(self) -> float:
        """The share of the elements that count which the written flow does; 1 if none counts."""
        counted = sum(each.outcome != "kept" for each in self.elements)
        return 1 - self.count("lost") / counted if counted else 1.0


@dataclass
class FlowStep:
    """One node of the flow that is written."""

    id: str
    kind: str = "agent"
    origin: SourcePlace = NOWHERE
    prompt: str | None = None
    instructions: str | None = None
    system_message: str | None = None
    model: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """`with`: argument → template or value."""
    needs: list[str] = field(default_factory=list[str])
    when: str | None = None
    call: str | None = None
    """`module:function`, of functions and of conditions and evaluations in code."""
    keys: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further keys of the node, as the format has them."""
    body: list[FlowStep] = field(default_factory=list["FlowStep"])
    sample: Any = None
    """The step's answer in the flow test, where the templates do not tell its shape."""

    # --- What the node says

    def give(self, value: Any) -> FlowStep:
        """Make it a function that gives a value."""
        self.kind, self.call, self.arguments = "function", GIVE, {"value": value}
        return self

    def write_state(self, values: Mapping[str, Any]) -> FlowStep:
        """Make it a function that gives the values of keys of the state, and writes them."""
        if len(values) == 1:
            [(key, value)] = values.items()
            self.keys["set"] = {key: to_tag("output")}
            return self.give(value)
        self.keys["set"] = {key: to_tag(f"output.{key}") for key in values}
        return self.give(dict(values))

    def choose(self, tests: Sequence[tuple[str, str]]) -> None:
        """Make it a condition. `tests`: label and expression, in their order; a lone one has the label `then`."""
        self.kind = "condition"
        if len(tests) == 1:
            self.keys["if"] = tests[0][1]
        else:
            self.add_cases(tests)

    def add_cases(self, tests: Sequence[tuple[str, str]]) -> None:
        """Give a condition its cases, and the label `else`."""
        self.keys["cases"] = [{"if": test, "label": label} for label, test in tests]
        self.keys["else"] = {}

    def lead(self, label: str, target: str) -> None:
        """Let a label lead to a node."""
        at, key = self._find_exit(label)
        at[key] = target

    def leads(self, label: str) -> bool:
        """Tells whether a label leads to a node already."""
        at, key = self._find_exit(label)
        return bool(at.get(key))

    def _find_exit(self, label: str) -> tuple[dict[str, Any], str]:
        """The map, and its key, that say where a label leads."""
        if self.kind in ("routing", "approval"):
            return self.keys["routes"][label], "to"
        if "if" in self.keys or label == "else":
            return self.keys, label
        return next(each for each in self.keys["cases"] if each["label"] == label), "then"

    def targets(self) -> list[str]:
        """The nodes that its labels lead to."""
        exits = [(self.keys, "then"), (self.keys, "else"), *((each, "then") for each in self.keys.get("cases", ()))]
        exits += [(each, "to") for each in self.keys.get("routes", {}).values()]
        return [target for at, key in exits if isinstance(target := at.get(key), str)]

    def test_of(self, label: str) -> str:
        """The expression that says whether it took a label."""
        field = {"routing": ".next_route", "approval": ".choice"}.get(self.kind, "")
        return f"nodes.{self.id}.output{field} == {quote(label)}"

    def to_node(self) -> dict[str, Any]:
        """The node as the flow file has it."""
        node: dict[str, Any] = {} if self.kind == "agent" else {"type": self.kind}
        keys = dict(self.keys)
        for key in ("description", "agent"):
            if key in keys:
                node[key] = keys.pop(key)
        node_keys = {
            "needs": self.needs,
            "when": self.when,
            "call": self.call,
            "model": self.model,
            "system_message": self.system_message,
            "instructions": self.instructions,
            "prompt": self.prompt,
            "with": self.arguments,
        }
        node |= {key: value for key, value in node_keys.items() if value not in (None, [], {})}
        node |= keys
        if self.body:
            node["nodes"] = {each.id: each.to_node() for each in self.body}
        return node

    def walk(self) -> Iterator[FlowStep]:
        """The step and those inside it."""
        yield self
        for each in self.body:
            yield from each.walk()


@dataclass
class ImportedFlow:
    """One flow file that is written."""

    name: str
    origin: SourcePlace = NOWHERE
    description: str | None = None
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    agents: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    shared_state: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    steps: list[FlowStep] = field(default_factory=list["FlowStep"])
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    keys: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further keys of the file: `limits`, `defaults`, `mcp_servers`."""
    samples: dict[str, Any] = field(default_factory=dict[str, Any])
    """Inputs of the flow test, where defaults and types do not say enough."""

    def every_step(self) -> Iterator[FlowStep]:
        for each in self.steps:
            yield from each.walk()


class CarriedFile(NamedTuple):
    """A file that goes along: its path in the new project, and what it holds."""

    path: str
    data: bytes | str


@dataclass
class Stub:
    """A function that the source names and that cannot be carried; written so that it raises NotImplementedError."""

    call: str
    """`module:function`."""
    parameters: Sequence[str] = ()
    """The parameters as Python writes them: `text: str`, `limit: int = 3`, `*rest`; names alone if no more is known."""
    why: str = ""
    origin: SourcePlace = NOWHERE
    returns: str = ""
    original: str = ""
    """The code that it stands for, which is quoted above it as a comment."""


_OWN: Final = "IMPORTED_"
"""The prefix of variables' names: no provider's and no cloud's begins so."""


@dataclass
class ImportedProject:
    """All that a reader found."""

    format: str
    """Title of the format, for people."""
    ledger: ImportLedger
    flows: list[ImportedFlow] = field(default_factory=list["ImportedFlow"])
    files: list[CarriedFile] = field(default_factory=list[CarriedFile])
    stubs: list[Stub] = field(default_factory=list[Stub])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Keys of the project file beside `allow_calls`: `allow_env`, `allow_http`, `models` …"""
    environment: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables that a run needs → what for; they stand in IMPORT.md."""
    _variables: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Name of a value in the source → the variable that holds it."""
    _alike: Counter[str] = field(default_factory=Counter[str], repr=False)

    def carry(self, path: str, data: bytes | str) -> None:
        """A file that goes along, however often it is named."""
        if not any(each.path == path for each in self.files):
            self.files.append(CarriedFile(path, data))

    def add_stub(self, stub: Stub) -> bool:
        """A function that is to be written; False where it is there already."""
        is_new = not any(each.call == stub.call for each in self.stubs)
        if is_new:
            self.stubs.append(stub)
        return is_new

    def add_variable(self, name: str, why: str, *, is_read: bool = False) -> str:
        """The variable that holds a value of the source, by the name of that; `is_read`: templates read it.

        Its name is the import's own, and of none that is set: a source that names the variable of somebody's key does
        not get that key.

        >>> project = ImportedProject("Test", ImportLedger())
        >>> [project.add_variable(each, "") for each in ("my-key", "my.key", "my-key", "2nd")]
        ['IMPORTED_my_key', 'IMPORTED_my_key_2', 'IMPORTED_my_key', 'IMPORTED_2nd']
        """
        if name not in self._variables:
            base = f"{_OWN}{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_') or 'SECRET'}"
            self._variables[name] = base
            while self._variables[name] in self.environment or self._variables[name] in os.environ:
                self._alike[base] += 1
                self._variables[name] = f"{base}_{self._alike[base] + 1}"
        variable = self._variables[name]
        self.environment[variable] = why
        if is_read and variable not in (allowed := self.settings.setdefault("allow_env", [])):
            allowed.append(variable)
        return variable

    def need_key(self, variable: str, why: str = "the key of the model") -> None:
        """The variable of a vendor's key, which goes to that vendor alone."""
        self.environment[variable] = why

    def hide_secret(self, name: object, value: object, owner: str) -> str | None:
        """The template that stands for a key of the source, which the environment has; None for what is no key."""
        if not is_secret(name, value):
            return None
        variable = self.add_variable(f"{owner}_{name}".upper(), f"the value `{name}` of `{owner}`", is_read=True)
        return f'{{{{ env.{variable} | default("") }}}}'

    def allow_mcp(self, address: str) -> None:
        """A server of tools that the project allows."""
        entries: list[str] = self.settings.setdefault("allow_mcp", [])
        if address not in entries:
            entries.append(address)

    def allow_http(self, address: str, variables: Iterable[str] = ()) -> bool:
        """An address that the project allows, and the variables of keys that may go there; False where it is none."""
        if read_rule(address) is None:
            return False
        entries: list[str] = self.settings.setdefault("allow_http", [])
        before = next((each for each in entries if each.split(" ")[0] == address), "")
        names = sorted({*before.split(" ")[1:], *variables})
        entry = " ".join([address, *names])
        if before:
            entries[entries.index(before)] = entry
        else:
            entries.append(entry)
        return True


def reach_from(starts: Iterable[str], after: Callable[[str], Iterable[str]], without: str | None = None) -> set[str]:
    """The nodes of a graph that ways lead to, from some on; no way goes through `without`."""
    reach: set[str] = set()
    work = list(starts)
    while work:
        each = work.pop()
        if each not in reach and each != without:
            reach.add(each)
            work += after(each)
    return reach
