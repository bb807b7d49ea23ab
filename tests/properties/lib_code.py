"""The module `lib` that random flows call, as text, and its edited form.

The functions are small, and each shows one way in which a function meets a run: pure, reading the context, failing,
changing what it is given or what it gave, writing state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["EDITS", "LIB", "write_libs"]

LIB: Final = '''"""Functions of random flows."""
from __future__ import annotations
from dataclasses import dataclass, field
from pydantic import BaseModel
from flowengine import NodeResult
from tests.properties import world

class Point(BaseModel):
    x: int = 0
    tags: list = []

@dataclass
class Card:
    title: str
    marks: list = field(default_factory=list)

def describe(value):
    """A text that says what a value is, whatever wraps it."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        return ascii(str(value))
    if isinstance(value, Point):
        return f"Point({value.x}, {describe(value.tags)})"
    if isinstance(value, Card):
        return f"Card({value.title}, {describe(value.marks)})"
    if hasattr(value, "content"):
        return f"{type(value).__name__}({describe(value.content)})"
    if isinstance(value, (set, frozenset)):
        return "{%s}" % ", ".join(sorted(describe(each) for each in value))
    if hasattr(value, "keys") and "error" in value and "index" in value:
        return f"failed item {value['index']}"
    if hasattr(value, "keys"):
        return "map(%s)" % ", ".join(f"{key}: {describe(value[key])}" for key in value)
    return "[%s]" % ", ".join(describe(each) for each in value)

def attempt(change):
    try:
        change()
    except Exception:
        pass

def change(value, seen=0):
    """Changes all that can be changed of a value."""
    if seen > 5:
        return
    if isinstance(value, Point):
        attempt(lambda: value.tags.append("poked"))
        attempt(lambda: setattr(value, "x", 999))
    elif isinstance(value, Card):
        attempt(lambda: value.marks.append("poked"))
        attempt(lambda: setattr(value, "title", "poked"))
    elif isinstance(value, set):
        attempt(lambda: value.add("poked"))
    elif isinstance(value, list):
        for each in list(value):
            change(each, seen + 1)
        attempt(lambda: value.append("poked"))
    elif hasattr(value, "keys"):
        for key in list(value):
            change(value[key], seen + 1)
        attempt(lambda: value.update(poked=1))

VALUES = {
    "none": None, "empty": "", "false": "false", "zero": 0, "yes": True, "no": False, "holes": {"a": None, "b": ""},
    "lines": "one\\u2028two\\u2029three\\u0085four", "nest": [[1, [2, []]], {"k": [None, "false"]}], "wide": "日本語 é",
}

async def num(x):
    await world.breathe(x)
    return x + 1  # num

def plain(x):
    return x + 1  # plain

async def add(x, y):
    await world.breathe(x)
    return x + y

async def value(which):
    await world.breathe(5)
    return VALUES[which]

async def point(x):
    return Point(x=x, tags=[x, [x]])

async def card(x):
    return Card(title=f"card {x}", marks=[x])

async def bag(x):
    return {x, x + 1}

async def table(x):
    return {"x": x, "ok": x > 2, "said": "false", "list": [x, x + 1], "nothing": None}

async def items(x):
    return list(range(x % 4))

async def points(x):
    return [Point(x=each, tags=[each]) for each in range(x % 3 + 1)]

async def show(value):
    await world.breathe(4)
    return describe(value)

async def poke(value):
    said = describe(value)
    change(value)
    return said

async def hold(x):
    """Returns what it later changes: all that it returned before."""
    await world.breathe(x)
    for each in world.HELD:
        change(each)
    made = [Point(x=x), [x], Card(title="held")][x % 3]
    world.HELD.append(made)
    return made

async def boom(x):
    raise ValueError("boom")

async def flaky(name, x):
    await world.breathe(x)
    if name in world.DOWN:
        world.DOWN.discard(name)
        raise RuntimeError("down")
    return x + 1

async def pick(x):
    return ["left", "right", "other"][x % 3]

async def flag(x):
    return x > 2

async def choose(context):
    return ["left", "right", "other"][context.inputs["a"] % 3]

async def score(target):
    return 0.25 if len(target) % 2 else 0.75

async def seen_inputs(context):
    return context.inputs["a"] + 100

async def seen_state(context):
    await world.breathe(10)
    return describe({key: context.shared_state[key] for key in ("log", "total", "slot")})

async def seen_n0(context):
    await world.breathe(7)
    return describe(context.prev_outputs.get("n0", "nothing"))

async def seen_result(context):
    return describe(context.result)

async def seen_item(context):
    return describe(context.variables["item"])

async def mixed(x, context):
    return f"{x} of {context.inputs['a']} {describe(context.shared_state['log'])}"

async def log(x):
    await world.breathe(x)
    return NodeResult(output=x, state={"log": [x]})

async def bump(x):
    return NodeResult(output=x, state={"total": x})

async def put(x):
    return NodeResult(output=x, state={"slot": [x]})

async def spread(x):
    await world.breathe(x)
    return NodeResult(output=x, state={"log": [x, [x]], "total": 1, "best": x})
'''

EDITS: Final = {
    "num": ("return x + 1  # num", "return x + 2  # num"),
    "plain": ("return x + 1  # plain", "return x + 2  # plain"),
    "seen_inputs": ('["a"] + 100', '["a"] + 200'),
    "log": ('state={"log": [x]})', 'state={"log": [x, "edited"]})'),
    "choose": ('"other"][context', '"left"][context'),
    "score": ("0.25 if len", "0.5 if len"),
    "point": ("tags=[x, [x]])", "tags=[x])"),
}
"""Function → what is another in the edited module."""


def write_libs(folder: Path) -> tuple[Path, Path]:
    """Two project folders: with the module as it is, and as it is edited."""
    edited = LIB
    for old, new in EDITS.values():
        assert edited.count(old) == 1, old
        edited = edited.replace(old, new)
    places = folder / "first", folder / "edited"
    for place, text in zip(places, (LIB, edited), strict=True):
        place.mkdir(parents=True)
        (place / "lib.py").write_text(text)
    return places
