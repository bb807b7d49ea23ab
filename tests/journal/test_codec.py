"""The codec: what goes in comes out, whatever it is; and whatever else comes in is a JournalError."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel

from flowengine.core.context import EMPTY, Context, EvaluationResult, LLMResult, NodeResult, RoutingResult
from flowengine.core.records import (
    ApprovalRequested,
    ContextGathered,
    ModelCall,
    Notice,
    ProviderFailed,
    Receipt,
    Retry,
    Round,
    SkillLoad,
    ToolCall,
)
from flowengine.core.values import FrozenDict, FrozenList, MixedDict, MixedList, freeze
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.errors import JournalError, NotJournalableError, StoreCorruptError, StoreVersionError
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode, encode_value
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.nodes.function import FunctionNode


class Colour(Enum):
    RED = "r"
    GREEN = object()
    ROT = "r"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Right(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Any = None


@dataclass(frozen=True)
class Card:
    title: str
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    body: Any


@dataclass
class Counted:
    """Keeps more than its fields, and something that it can work out again."""

    text: str

    def __post_init__(self) -> None:
        self.seen = 0

    @cached_property
    def resource(self) -> object:
        return object()


class Item(BaseModel):
    name: str
    when: datetime | None = None
    parts: list[Item] = []


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    title: str = Field(alias="Title", default="none")
    _secret: int = PrivateAttr(default=0)


class Numbers(RootModel[list[int]]):
    pass


class Outer:
    class Inner(BaseModel):
        x: int


def carried(value: Any) -> Any:
    event = decode(encode(NodeFinished("n", 1.0, NodeResult(value))))
    assert isinstance(event, NodeFinished)
    return event.result.output


def same(before: Any, after: Any) -> bool:
    """Equal in value, type and depth; lists and dicts have become frozen ones."""
    if type(before) in (list, FrozenList, MixedList):
        return isinstance(after, FrozenList) and len(before) == len(after) and all(map(same, before, after))
    if type(before) in (dict, FrozenDict, MixedDict):
        return (
            isinstance(after, FrozenDict)
            and len(before) == len(after)
            and all(map(same, before.keys(), after.keys()))
            and all(map(same, before.values(), after.values()))
        )
    if type(before) is not type(after):
        return False
    if isinstance(before, float):
        if math.isnan(before):
            return math.isnan(after)
        return before == after and math.copysign(1, before) == math.copysign(1, after)
    if isinstance(before, tuple):
        return len(before) == len(after) and all(map(same, before, after))
    if is_dataclass(before) and hasattr(before, "__dict__"):
        return same(vars(before), FrozenDict(vars(after)))
    if isinstance(before, BaseModel):
        return same(vars(before), FrozenDict(vars(after))) and before.model_extra == after.model_extra
    return before == after or repr(before) == repr(after)


UTC9 = timezone(timedelta(hours=9))
EXACT = [
    None, True, False, 0, -1, 2**63, 2**64, -(10**40), 10**3999, 10**5000, -(10**5000),
    0.0, -0.0, 1.5, 5e-324, 1e308, math.inf, -math.inf, math.nan,
    "", "text", "日本語 🦋", "\x00\x1f\u2028", "\ud800", "\ud83d\ude00", "a\udc80b",
    [], {}, [[]], [{}], {"a": []}, {"": 1}, {"$": 1}, {"$tuple": [1]}, {"$a": 1, "b": 2}, {"a": {"$b": 1}},
    {1: "a"}, {"1": "a", 1: "b"}, {None: 1}, {(1, 2): [3]}, {1.5: {True: 2}}, {"\ud800": {"\udc00": 1}},
    (), (1,), ((), [()]), {1, 2}, set(), frozenset(), frozenset({"a", (1,)}), b"", b"\x00\xff",
    date(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4), datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, tzinfo=UTC9), datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York")),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(seconds=-1), "odd")), datetime(2024, 1, 1, fold=1),
    time(1, 2, 3, 4), time(1, tzinfo=UTC), timedelta(days=-1, microseconds=1), timedelta.max, UTC9, ZoneInfo("UTC"),
    Decimal("1.10"), Decimal("NaN"), Decimal("-Infinity"), Decimal("1E+999999"), UUID(int=7),
    Path("/tmp/x"), Path("a\udcff"), PurePosixPath("a/b"), PureWindowsPath("C:\\x"),
    Colour.RED, Colour.GREEN, Colour.ROT, Level.LOW, Word.YES, Right.READ, Right.READ | Right.WRITE, Right(0),
    Point(1), Point(1, [Point(2)]), Card("t", ["a"]), Slotted({"a": (1,)}),
    Item(name="a", parts=[Item(name="b")]), Item(name="a", when="2024-01-01T00:00:00Z"), Loose(),  # pyright: ignore
    Loose(Title="x", other=[1, (2,)]), Numbers([1, 2]), Outer.Inner(x=1),  # pyright: ignore[reportCallIssue]
    LLMResult(), LLMResult(content=Item(name="a"), metadata={"k": [1]}, attempts=3),
    RoutingResult(next_route="a", confidence=0.5), EvaluationResult(score=0.5, passed=True, suggestions=["x"]),
    NodeResult(), NodeResult(1, {"a": 1}), ErrorInfo("T", "m"),
]  # fmt: skip


@pytest.mark.parametrize("value", EXACT, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(value, carried(value))
    assert same([{"k": value}], carried([{"k": value}]))


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.text(st.sampled_from("$a\ud800\udc00日"))
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals().filter(lambda value: not value.is_snan())  # which cannot be compared, even with itself
    | st.uuids()
    | st.sampled_from([Colour.RED, Level.LOW, Right.READ | Right.WRITE, Path("/x")])
)
HASHABLE = st.recursive(ATOMS.filter(lambda value: value == value), lambda inner: st.tuples(inner), max_leaves=3)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | HASHABLE, inner, max_size=4)
        | st.frozensets(HASHABLE, max_size=3)
        | st.builds(Point, st.integers(), inner)
        | st.builds(Slotted, inner)
        | st.builds(LLMResult, content=inner)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(VALUES)
def test_any_nesting_of_values_comes_back(value: Any) -> None:
    assert same(value, carried(value))


EVENTS: list[Event] = [
    RunStarted("r", "flow", 1.0, {"a": 1}, {"HOME": "/"}, {"n": "h"}),
    RunStarted("r", "flow", 1.0, EMPTY, {}, {}, "f.yaml", "source", "0.1", {"model": "m"}, {"nodes": [["a", "agent"]]}),
    RunResumed(1.0),
    RunResumed(1.0, {"n": "h"}),
    RunResumed(1.0, {}, {}, {"model_calls": 3}),
    NodeStarted("n", 1),
    NodeStarted("\ud800", 1.0),
    NodeFinished("n", 1.0, NodeResult()),
    NodeFailed("n", 1.0, ErrorInfo("ValueError", "bad", "Traceback …")),
    NodeSkipped("n", 1.0, "condition_false"),
    NodeCancelled("n", 1.0),
    RunFinished(1.0, "succeeded", {"answer": (1, 2)}),
    RunFinished(1.0, "failed", None, ErrorInfo("T", "m"), "n"),
    NodeRecorded("n", 1.0, ModelCall("m", "p", "generation", [{"role": "user"}], "hi", cost_usd=0.1, error="x")),
    NodeRecorded("n", 1.0, ModelCall("m", "p", "generation", (), "")),
    NodeRecorded("n", 1.0, ToolCall("t", {"a": 1}, [1], started=True)),
    NodeRecorded("n", 1.0, Receipt([{"source": "s"}], 10)),
    NodeRecorded("n", 1.0, SkillLoad("s", 2, 10, 0.1, 100)),
    NodeRecorded("n", 1.0, ProviderFailed("p", "e")),
    NodeRecorded("n", 1.0, Round(1, {"a": 1}, None, False)),
    NodeRecorded("n", 1.0, Retry(1, "e", 0.5)),
    NodeRecorded("n", 1.0, Notice("t")),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_kind_of_event_comes_back(event: Event) -> None:
    text = encode(event)
    again = decode(text)
    assert type(again) is type(event)
    assert again == event
    assert decode(text.encode()) == event
    assert "\n" not in text


@pytest.mark.parametrize(
    ("record", "stored"),
    [(ApprovalRequested("Ship it?", ["yes"]), '"$Asked"'), (ContextGathered([{"text": "tea"}]), '"$Brought"')],
)
def test_a_record_whose_class_was_renamed_keeps_its_name_in_journals(record: Any, stored: str) -> None:
    event = NodeRecorded("n", 1.0, record)
    assert stored in encode(event)
    assert decode(encode(event)) == event


def test_the_events_of_a_run_come_back_frozen() -> None:
    event = decode(encode(NodeFinished("n", 1.0, NodeResult([{"a": [1]}], state={"k": [1]}))))
    assert isinstance(event, NodeFinished)
    assert isinstance(event.result.state, Mapping)
    for shared in (event.result.output, event.result.output[0], event.result.output[0]["a"], event.result.state["k"]):
        with pytest.raises(TypeError, match="shared"):
            shared.clear()


def test_a_graph_that_is_frozen_is_written_as_any_other() -> None:
    for text in ("plain", "lone \ud800"):
        for graph in ({"nodes": [["a", text]]}, {"nodes": []}, {}):
            start = RunStarted("r1", "flow", 1.0, {}, {}, {"a": "1"}, None, None, "0", {}, graph)
            frozen = start._replace(graph=freeze(graph))
            for each in (frozen, frozen._replace(run_id="r2"), frozen._replace(run_id="\udfff")):
                assert encode(each) == encode(each) == encode(start._replace(run_id=each.run_id))
                assert decode(encode(each)) == each
    with pytest.raises(NotJournalableError, match=r"graph\.nodes"):
        encode(start._replace(graph=freeze({"nodes": object()})))


def test_defaults_at_the_end_cost_nothing() -> None:
    assert encode(NodeFinished("n", 1.5, NodeResult("x"))) == '[1,"NodeFinished","n",1.5,{"$NodeResult":["x"]}]'


def test_a_model_keeps_extra_and_private_attributes_and_what_was_set() -> None:
    before = Loose(Title="x", other=[1])  # pyright: ignore[reportCallIssue]
    before._secret = 5  # pyright: ignore[reportPrivateUsage]
    after = carried(before)
    assert after == before
    assert after._secret == 5
    assert after.other == [1]
    assert after.model_fields_set == {"title", "other"}
    assert carried(Loose()).model_fields_set == set()
    assert carried(Item(name="a")).model_copy(update={"name": "b"}).name == "b"


def test_a_dataclass_keeps_what_its_init_made_and_leaves_out_cached_properties() -> None:
    before = Counted("a")
    before.seen = 3
    assert before.resource is before.resource
    after = carried(before)
    assert (after, after.seen) == (before, 3)
    assert "resource" not in vars(after)


def test_reading_calls_neither_constructors_nor_validators() -> None:
    made = Item.model_construct(name=5)  # a value that validation would refuse
    assert carried(made).name == 5


# --- what cannot be written -----------------------------------------------------------------------


class Plain:
    pass


class MyList(list[int]):
    pass


def refused(value: Any) -> str:
    with pytest.raises(NotJournalableError) as caught:
        encode(NodeFinished("draft", 1.0, NodeResult(value)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Plain(), "output is of type .*Plain"),
        ({"items": [1, 2, 3, Plain()]}, r"output\.items\[3\] is of type .*Plain"),
        ({"a b": Plain()}, r"output\['a b'\] is"),
        ({Plain(): 1}, r"output\.keys\(\) is"),
        ((1, {2: Plain()}), r"output\[1\]\[2\] is"),
        (Point(1, Plain()), r"output\.y is"),
        (Card("x", [Plain()]), r"output\.tags\[0\] is"),  # pyright: ignore[reportArgumentType]
        (LLMResult(content=[Plain()]), r"output\.content\[0\] is"),
        (Item.model_construct(name=Plain()), r"output\.name is"),
        (OrderedDict(a=1), "output is of type collections.OrderedDict"),
        (MyList(), "output is of type .*MyList"),
        (len, "output is of type builtins.builtin_function_or_method"),
        (int, "output is of type builtins.type"),
        (ValueError("x"), "output is of type builtins.ValueError"),
        (1j, "output is of type builtins.complex"),
    ],
)
def test_what_cannot_be_written_is_named_with_its_place(value: Any, said: str) -> None:
    message = refused(value)
    assert re.search(said, message), message
    assert "node" not in message, "whoever fails the node names it"


CALL = ModelCall("m", "p", "generation", [], "hi")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (NodeRecorded("n", 1.0, CALL._replace(cost_usd=float("inf"))), "record holds .*: 'cost_usd' of ModelCall"),
        (NodeRecorded("n", 1.0, CALL._replace(cost_usd=float("nan"))), "'cost_usd' of ModelCall cannot be nan"),
        (NodeRecorded("n", 1.0, CALL._replace(cost_usd=10**400)), "'cost_usd' of ModelCall cannot be 1000"),
        (NodeRecorded("n", 1.0, CALL._replace(prompt_tokens=5.0)), "'prompt_tokens' of ModelCall cannot be 5.0"),
        (NodeRecorded("n", 1.0, CALL._replace(content=None)), "'content' of ModelCall cannot be None"),
        (NodeRecorded("n", 1.0, ToolCall("t", {}, "", seconds=float("nan"))), "'seconds' of ToolCall cannot be nan"),
        (
            NodeFinished(
                "n",
                1.0,
                NodeResult(EvaluationResult(score=0.5, passed=True, criteria_scores={"tone": float("nan")})),
            ),
            "output holds what no reader takes: 'criteria_scores' of EvaluationResult",
        ),
        (
            NodeFinished("n", 1.0, NodeResult(result=LLMResult(evaluation_score=float("-inf")))),
            "result holds what no reader takes: 'evaluation_score' of LLMResult cannot be -inf",
        ),
    ],
)
def test_what_readers_take_for_damage_is_not_written(event: Any, said: str) -> None:
    with pytest.raises(NotJournalableError, match=said):
        encode(event)
    with pytest.raises(NotJournalableError, match="no reader takes"):
        encode_value([event.record if isinstance(event, NodeRecorded) else event.result])


@pytest.mark.parametrize("record", [{"a": 1}, None, "text", NodeResult(), RunResumed(1.0)])
def test_what_is_no_record_is_not_written_as_one(record: Any) -> None:
    with pytest.raises(NotJournalableError, match="is no record that a node can note: "):
        encode(NodeRecorded("n", 1.0, record))


@pytest.mark.anyio
async def test_a_run_whose_model_gives_what_no_reader_takes_stays_readable(tmp_path: Path) -> None:
    async def ask(context: Context) -> str:
        await context.runtime.note(CALL._replace(cost_usd=float("nan")))
        return "hi"

    store = SQLiteStore(tmp_path / "runs.db")
    run = await Flow("f", {"a": FunctionNode(ask)}).run(store=store, run_id="r")
    assert run.error is not None
    assert "'cost_usd' of ModelCall cannot be nan" in run.error.message
    assert [type(each) for each in store.events("r")][-1] is RunFinished
    store.close()


def test_a_class_that_cannot_be_found_again_is_refused() -> None:
    class Local(BaseModel):
        x: int = 1

    assert "define it at the top level of a module" in refused([Local()])


T = TypeVar("T")


class Boxed(BaseModel, Generic[T]):
    value: T


def test_a_generic_class_with_its_arguments_is_to_have_a_name() -> None:
    assert "give it a name of its own: class Name(Boxed[int]): ..." in refused([Boxed[int](value=1)])


def test_an_input_is_named_too() -> None:
    with pytest.raises(NotJournalableError, match=r"RunStarted: inputs\.file is of type"):
        encode(RunStarted("r", "f", 1.0, {"file": Plain()}, {}, {}))


def test_values_without_end_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "output is nested more than 120 levels deep, or contains itself" in refused(loop)
    table: dict[str, Any] = {}
    table["self"] = {"again": [table]}
    assert "contains itself" in refused(table)
    card = Slotted(None)
    card.body = (card,)
    assert "contains itself" in refused(card)
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    assert "levels deep" in refused(deep)


def test_a_stack_that_is_nearly_full_is_a_clean_error() -> None:
    value: Any = 0
    for _ in range(100):
        value = [value]

    def dive(levels: int) -> str:
        return refused(value) if levels == 0 else dive(levels - 1)

    frame, used = sys._getframe(), 0  # pyright: ignore[reportPrivateUsage] -- the depth of the stack
    while frame := frame.f_back:
        used += 1
    assert "too deep for what is left of the stack" in dive(sys.getrecursionlimit() - used - 100)


WRAPPINGS = [
    lambda x: [x],
    lambda x: {"a": x},
    lambda x: {1: x},
    lambda x: {"\ud800": x},
    lambda x: (x,),
    Slotted,
    lambda x: LLMResult(content=x),
]


@pytest.mark.parametrize("wrap", WRAPPINGS)
def test_what_is_written_can_be_read_at_any_depth(wrap: Any) -> None:
    value: Any = 0
    for _ in range(130):
        value = wrap(value)
        try:
            text = encode(NodeFinished("n", 1.0, NodeResult(value)))
        except NotJournalableError:
            return
        decode(text)
    pytest.fail("nothing was refused")


# --- what cannot be read --------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_arbitrary_bytes_are_a_journal_error(data: bytes | str) -> None:
    with pytest.raises(JournalError):
        decode(data)


TAGS = [
    *("int", "text", "dict", "tuple", "set", "bytes", "datetime", "timedelta", "timezone", "zone", "offset", "decimal"),
    *("uuid", "path", "enum", "model", "named", "dataclass", "LLMResult", "NodeResult", "ModelCall", "unheard"),
]
TREES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["sys:exit", "x:Y", "2024-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", *(f"${tag}" for tag in TAGS)]), inner, max_size=2)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["NodeFinished", "RunStarted", "RunFinished", "NodeRecorded", "Node"]), st.lists(TREES, max_size=5)
)
def test_well_formed_nonsense_is_an_event_or_a_journal_error(name: str, fields: list[Any]) -> None:
    try:
        event = decode(json.dumps([1, name, *fields]))
    except JournalError:
        return
    assert type(event).__name__ == name


@pytest.mark.parametrize(
    "text",
    ['[1,"NodeStarted",5,1.0]', '[1,"NodeFinished","n",1.0,"x"]', '[1,"NodeRecorded","n",1.0,"x"]', '[1,"NodeStarted"]',
     '[1,"RunFinished",1.0,"failed",[1]]', "{}", "[]", "null", '[1,"Nothing"]', '[0,"NodeStarted","n",1.0]',
     "[" * 1000, '[1,"NodeFinished","n",1.0,{"$NodeResult":[{"$new":1}]}]'],
)  # fmt: skip
def test_a_wrong_shape_is_corrupt(text: str) -> None:
    with pytest.raises(StoreCorruptError):
        decode(text)


@pytest.mark.parametrize("tag", ["$set", "$frozenset", "$dict"])
def test_a_set_of_very_many_keys_of_one_hash_is_no_record(tag: str) -> None:
    def recorded(step: int) -> str:
        items: list[Any] = [{"$int": hex(number * step)} for number in range(15_000)]
        value = {tag: [[each, 1] for each in items] if tag == "$dict" else items}
        return json.dumps([1, "NodeFinished", "n", 1.0, {"$NodeResult": [value]}])

    decode(recorded(1))
    with pytest.raises(StoreCorruptError, match="more than 1,000 keys of one hash"):
        decode(recorded(2**61 - 1))


def test_a_newer_version_says_so() -> None:
    with pytest.raises(StoreVersionError, match="upgrade FlowEngine"):
        decode('[2,"NodeStarted","n",1.0]')


def test_a_class_that_is_not_loaded_is_named_and_never_imported() -> None:
    sys.modules.pop("antigravity", None)
    with pytest.raises(JournalError, match="import the module that defines 'antigravity:Thing'"):
        decode('[1,"NodeFinished","n",1.0,{"$NodeResult":[{"$model":["antigravity:Thing",{}]}]}]')
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "tag",
    [
        '{"$model":["subprocess:Popen",{}]}',
        '{"$named":["os:system",["ls"]]}',
        '{"$named":["builtins:tuple",[1]]}',
        '{"$enum":["builtins:str","x"]}',
        '{"$dataclass":["builtins:object",{}]}',
        '{"$dataclass":["builtins:list",{}]}',
    ],
)
def test_a_class_of_another_sort_is_refused(tag: str) -> None:
    assert subprocess.Popen
    with pytest.raises(JournalError, match="recorded"):
        decode(f'[1,"NodeFinished","n",1.0,{{"$NodeResult":[{tag}]}}]')


def test_a_class_that_changed_is_an_error_and_not_half_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [encode(NodeFinished("n", 1.0, NodeResult(each))) for each in (Item(name="a"), Card("a"), Point(1))]
    module = sys.modules[__name__]

    class Changed(BaseModel):
        name: str
        added: int = 0

    @dataclass
    class ChangedCard:
        title: str
        colour: str

    class ChangedPoint(NamedTuple):
        x: int

    for name, kind in (("Item", Changed), ("Card", ChangedCard), ("Point", ChangedPoint)):
        monkeypatch.setattr(module, name, kind)
    for text in texts:
        with pytest.raises(JournalError, match=r"recorded with"):
            decode(text)
