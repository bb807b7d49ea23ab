"""Attempts by a run that was exported elsewhere: what its file says is data, and chooses neither code nor files."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from pydantic import BaseModel, PrivateAttr

from flowengine.cli.main import main
from flowengine.engine.events import RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import JournalError, RunNotFoundError
from flowengine.flow import Flow
from flowengine.journal.codec import decode, decode_value, encode
from flowengine.journal.stores import open_store
from flowengine.models.wrappers.rate import limiter_for
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.queue.worker_flows import LackingError, WorkerFlows
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.outcomes import FlowCaller

STDLIB = str(Path(os.__file__).parent)
EVIL = """flowengine: v1
name: evil
nodes: {a: {type: function, call: "os:system", with: {command: "touch owned"}}}
"""
DEED = "def pay():\n    open('paid', 'w').close()\n"
PAY = """flowengine: v1
name: pay
nodes: {a: {type: function, call: "deed:pay"}}
"""


def parcel(**given: Any) -> str:
    started = RunStarted("r1", "evil", 1.0, {}, {}, {}, **given)
    return "\n".join([json.dumps({"flowengine_run": 1, "run_id": "r1", "events": 1}), encode(started), ""])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FLOWENGINE_STORE", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("path", "folder"),
    [("flow.yaml", STDLIB), (f"{STDLIB}/flow.yaml", "/"), (f"..{STDLIB}/x.yaml", "/tmp"), ("subprocess.py", STDLIB)],
)
def test_a_run_from_elsewhere_runs_no_command_when_it_is_resumed(
    path: str, folder: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("run.jsonl").write_text(parcel(path=path, source=EVIL, settings={"folder": folder}))
    assert main(["runs", "import", "run.jsonl", "--store", "runs.db"]) == 0
    assert main(["resume", "r1", "--store", "runs.db"]) == 2
    assert "FE505" in capfd.readouterr().err
    assert not list(here.rglob("owned"))


@pytest.mark.parametrize(
    "baggage",
    [
        None,
        {"path": f"..{STDLIB}/flow.yaml"},
        {"path": f"{STDLIB}/flow.yaml"},
        {"path": "flow.yaml", "project": {"allow_calls": ["os"], "pythonpath": [STDLIB]}},
        {"path": "link/flow.yaml", "project": {"root": STDLIB, "file": None}},
    ],
)
def test_a_worker_runs_no_command_that_a_submitted_run_brings(baggage: Any, here: Path) -> None:
    (here / "link").symlink_to(STDLIB)
    given = {"folder": STDLIB} | ({} if baggage is None else {"baggage": baggage})
    started = RunStarted("r1", "evil", 1.0, {}, {}, {}, path="flow.yaml", source=EVIL, settings=given)
    with pytest.raises(LackingError, match="FE505"):
        WorkerFlows({}, limiter_for).load(started)
    assert not list(here.glob("owned"))


def test_a_run_from_elsewhere_does_not_name_a_flow_of_this_machine(
    here: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pay.yaml").write_text(PAY)
    (tmp_path / "deed.py").write_text(DEED)
    Path("run.jsonl").write_text(parcel(path="pay.yaml", source=PAY, settings={"folder": str(tmp_path), "served": {}}))
    assert main(["runs", "import", "run.jsonl", "--store", "runs.db"]) == 0
    store = open_store("runs.db")
    started = store.events("r1")[0]
    store.close()
    assert isinstance(started, RunStarted)
    assert (started.path, dict(started.settings)) == ("pay.yaml", {})
    assert main(["resume", "r1", "--store", "runs.db"]) == 2
    assert "there is no module 'deed'" in capfd.readouterr().err
    assert not list(tmp_path.rglob("paid"))


@pytest.mark.parametrize("caller", [None, "ann"])
def test_a_run_from_elsewhere_is_of_no_caller_and_goes_on_at_no_server(here: Path, caller: str | None) -> None:
    Path("run.jsonl").write_text(parcel(settings={"served": {"caller": caller, "request": "x"}}))
    assert main(["runs", "import", "run.jsonl", "--store", "runs.db"]) == 0
    deeds: list[str] = []

    async def serve(store: JournalStore) -> None:
        async with FlowService(store, [Flow("evil", {"deed": FunctionNode(lambda: deeds.append("done"))})]) as service:
            await service.wait((await service.start("evil", {})).run_id)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(RunNotFoundError):
                await service.outcome("r1", FlowCaller("ann"))

    with closing(open_store("runs.db")) as store:
        assert list(store.abandoned()) == ["r1"]
        anyio.run(serve, store)
        assert (deeds, len(store.events("r1"))) == (["done"], 1)


@pytest.mark.parametrize(
    "content",
    [
        '{"$path":["PosixPath","/etc/passwd"],"x":1}',
        '{"$os":"system"}',
        '{"$dataclass":["subprocess:Popen",{"args":"id"}]}',
        '{"$dataclass":["os:system",{}]}',
        '{"$model":["os:environ",{}]}',
        '{"$model":["flowengine.flowfile.project.project:Project",{}]}',
        '{"$enum":["signal:Signals",9]}',
        '{"$enum":["flowengine.flowfile.project.project:Project.import_object","x"]}',
        '{"$named":["builtins:tuple.__new__",[]]}',
        '{"$zone":"../../../../etc/passwd"}',
        '{"$dataclass":["not_loaded_yet:Thing",{}]}',
        "[" * 5_000 + "]" * 5_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
        '{"$int":"zz"}',
        '{"$bytes":"###"}',
    ],
)
def test_a_value_of_a_journal_makes_no_object_that_acts_and_imports_nothing(content: str) -> None:
    import sys

    before = set(sys.modules)
    try:
        made = decode_value(f"[1,{content}]")
    except JournalError:
        made = None
    assert "not_loaded_yet" not in set(sys.modules) - before
    assert made is None or not callable(made)


@dataclass
class Watched:
    """Tells when one of its own methods runs."""

    name: str
    ran: ClassVar[list[str]] = []

    @property
    def label(self) -> str:
        return self.name

    @label.setter
    def label(self, value: str) -> None:
        self.ran.append(value)


@dataclass(slots=True)
class Slotted:
    name: str


class Kept(BaseModel):
    name: str
    _hidden: int = PrivateAttr(0)


HERE = __name__


@pytest.mark.parametrize(
    "content",
    [
        f'{{"$dataclass":["{HERE}:Watched",{{"name":"a","label":"x"}}]}}',
        f'{{"$dataclass":["{HERE}:Watched",{{"name":"a","__class__":"x"}}]}}',
        f'{{"$dataclass":["{HERE}:Watched",{{"name":"a","ran":["x"]}}]}}',
        f'{{"$dataclass":["{HERE}:Watched",{{"name":"a","__init__":"x"}}]}}',
        f'{{"$dataclass":["{HERE}:Slotted",{{"name":"a","other":1}}]}}',
        f'{{"$model":["{HERE}:Kept",{{"name":"a","model_dump":"x"}}]}}',
        f'{{"$model":["{HERE}:Kept",{{"name":"a"}},null,{{"_other":1}}]}}',
        f'{{"$model":["{HERE}:Kept",{{"name":"a"}},null,{{"__class__":1}}]}}',
    ],
)
def test_a_value_of_a_journal_has_no_attribute_that_its_class_does_not_declare(content: str) -> None:
    with pytest.raises(JournalError):
        decode_value(f"[1,{content}]")
    assert Watched.ran == []


def test_slots_and_what_an_instance_had_beside_its_fields_come_back() -> None:
    assert decode_value(f'[1,{{"$dataclass":["{HERE}:Slotted",{{"name":"a"}}]}}]') == Slotted("a")
    assert decode_value(f'[1,{{"$dataclass":["{HERE}:Watched",{{"name":"a","seen":1}}]}}]').seen == 1


@pytest.mark.parametrize(
    "line",
    [
        '[1,"__class__","a",1]',
        '[1,"RunStarted"]',
        '[1,"NodeFinished","a",1,{"$dataclass":["subprocess:Popen",{}]}]',
        '[1,"NodeFinished",{"$text":"YQ=="},1.0]',
        '[1,"os:system","id"]',
        '{"flowengine_run":1}',
        "[" * 100_000,
        "null",
        "\x00",
        '[1,"NodeStarted","a",1e999]' * 2,
    ],
)
def test_a_line_of_a_journal_is_an_event_or_an_error(line: str) -> None:
    with pytest.raises(JournalError):
        decode(line)


@pytest.mark.parametrize("run_id", ["../../evil", "a/b", "", "x" * 65, "a\nb", "<script>", "-rf", "@last"])
def test_a_run_from_elsewhere_is_only_ever_a_row_whatever_its_id(run_id: str, here: Path) -> None:
    started = RunStarted(run_id, "evil", 1.0, {}, {}, {})
    text = "\n".join([json.dumps({"flowengine_run": 1, "run_id": run_id, "events": 1}), encode(started), ""])
    Path("run.jsonl").write_text(text)
    main(["runs", "import", "run.jsonl", "--store", "runs.db"])
    assert {each.name for each in here.iterdir()} <= {
        "run.jsonl",
        "runs.db",
        "runs.db-wal",
        "runs.db-shm",
        "runs.db.locks",
    }
    assert not (here.parent / "evil").exists()
