"""Holds the module that stands in for crewai in an imported project: tools, marks of flows, crews that are our flows.

It is text that is written into projects.
"""

from __future__ import annotations

from typing import Final

from flowengine.importers.carried_code import StandIn

PARTS: Final = "crewai_parts"
_MODULE: Final = '''\
"""Stands in for the parts of crewai that the code of this project imports."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python


class BaseTool(BaseModel):
    """A tool: subclasses say in `_run` what it does."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")
    name: str = ""
    description: str = ""
    args_schema: Any = None
    env_vars: Any = None
    package_dependencies: Any = None
    return_direct: bool = False

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _run")


class EnvVar(BaseModel):
    model_config = ConfigDict(extra="allow")


def _mark(*given: Any, **settings: Any) -> Any:
    if len(given) == 1 and callable(given[0]) and not settings:
        return given[0]
    return lambda function: function


def _mark_by_trigger(*triggers: Any, **settings: Any) -> Any:
    return lambda function: function


def _name_triggers(*triggers: Any) -> tuple[Any, ...]:
    return triggers


tool = agent = task = crew = llm = before_kickoff = after_kickoff = persist = CrewBase = _mark
start = listen = router = _mark_by_trigger
or_ = and_ = _name_triggers


class Anything:
    """Stands for a class of crewai that is made and not asked: asking it says what to write instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotImplementedError(f"{type(self).__name__}.{name} asked crewai: make it a node of the flow")


class Agent(Anything): ...


class Task(Anything): ...


class Crew(Anything): ...


class LLM(Anything): ...


class Knowledge(Anything): ...


class BaseAgent(Anything): ...


class ConditionalTask(Anything): ...


class TaskOutput(Anything): ...


class CrewOutput(Anything): ...


class FlowPersistence(Anything): ...


class SQLiteFlowPersistence(Anything): ...


class Process:
    sequential = "sequential"
    hierarchical = "hierarchical"


# --- Crews that are flows of this project


class Record(dict[str, Any]):
    """An object of an answer: its fields are keys and attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return _to_record(self[name])
        except KeyError:
            raise AttributeError(name) from None

    def model_dump(self, **settings: Any) -> dict[str, Any]:
        return dict(self)

    dict = to_dict = model_dump

    def model_dump_json(self, **settings: Any) -> str:
        import json

        return json.dumps(self, ensure_ascii=False)


def _to_record(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    return [_to_record(each) for each in value] if isinstance(value, list) else value


class CrewResult:
    """What a crew gave: text, object, or both."""

    def __init__(self, value: Any) -> None:
        import json

        self.value = _to_record(value)
        self.raw = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self.pydantic = self.json_dict = self.value if isinstance(value, dict) else None
        self.tasks_output: list[Any] = []
        self.token_usage = None

    def __getitem__(self, key: str) -> Any:
        return _to_record(self.value[key])

    def __str__(self) -> str:
        return self.raw

    def to_dict(self) -> Any:
        return self.value if isinstance(self.value, dict) else {}


class ImportedCrew:
    """Runs the flow that a crew has become."""

    flow = ""
    names: dict[str, str] = {}
    """Name of an input of the crew → that of the flow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def crew(self, *args: Any, **kwargs: Any) -> ImportedCrew:
        return self

    def kickoff(self, inputs: dict[str, Any] | None = None, **settings: Any) -> CrewResult:
        from flowengine import Flow

        flow = Flow.from_yaml(Path(__file__).parent / self.flow)
        known = {self.names[key]: value for key, value in (inputs or {}).items() if key in self.names}
        run = flow.run_sync(to_jsonable_python(known, fallback=str))
        if run.error is not None:
            raise RuntimeError(f"{self.flow}: {run.error.message}")
        return CrewResult(run.outputs["result"])

    async def kickoff_async(self, inputs: dict[str, Any] | None = None, **settings: Any) -> CrewResult:
        return await asyncio.to_thread(self.kickoff, inputs)

    akickoff = kickoff_async

    def kickoff_for_each(self, inputs: list[dict[str, Any]], **settings: Any) -> list[CrewResult]:
        return [self.kickoff(each) for each in inputs]

    async def kickoff_for_each_async(self, inputs: list[dict[str, Any]], **settings: Any) -> list[CrewResult]:
        return list(await asyncio.gather(*(self.kickoff_async(each) for each in inputs)))


# --- Methods of flows


class State(dict[str, Any]):
    """State without a class: its keys are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class FlowState(BaseModel):
    id: str = ""


class Flow:
    """A flow whose methods are called as nodes, one at a time."""

    initial_state: Any = None
    state: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __class_getitem__(cls, kind: Any) -> Any:
        return type(cls.__name__, (cls,), {"initial_state": kind})


def run_method(kind: type[Any], name: str, state: dict[str, Any], given: Any = None) -> dict[str, Any]:
    """Call a method of a flow with the state that the run has; gives its result, and the state after it."""
    flow = kind()
    shape = kind.initial_state
    known = {key: value for key, value in state.items() if value is not None}
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        flow.state = shape.model_validate(known)
    else:
        flow.state = State({**(shape if isinstance(shape, dict) else {}), **state})
    method = getattr(flow, name)
    takes = list(inspect.signature(method).parameters)
    found = method(_to_record(given)) if takes else method()
    if inspect.isawaitable(found):
        found = asyncio.run(_wait(found))
    after = dict(flow.state)
    found = found.raw if isinstance(found, CrewResult) else found
    return {"result": to_jsonable_python(found, fallback=str), "state": to_jsonable_python(after, fallback=str)}


async def _wait(found: Any) -> Any:
    return await found
'''
STAND_IN: Final = StandIn("crewai", PARTS, _MODULE)
