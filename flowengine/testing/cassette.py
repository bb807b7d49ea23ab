"""Records model calls once and plays them back, so that tests cost nothing and give the same result every time.

    flow = Cassette("tests/reply.cassette.yaml").around(Flow.from_yaml("reply.yaml"))

A call is found by the key of its request (`Request.key`) and by how many equal ones came before. This module decides
when to play and when to record; the form of the file is `cassette_file`'s matter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from difflib import SequenceMatcher, unified_diff
from os import PathLike
from pathlib import Path
from typing import Any, Final

from flowengine.agents import CallSettings, ModelChoice, open_model
from flowengine.agents.prompt import schema_text
from flowengine.errors import ModelConfigError, PermanentModelError
from flowengine.flow import Flow
from flowengine.models import (
    Model,
    ModelDefinition,
    Reply,
    Request,
    allow_requests,
    default_model,
    find_meaning,
    stream_whole,
    supports_schema,
)
from flowengine.models.wrappers import RetryingModel
from flowengine.testing.cassette_file import Call, format_request, read_cassette, write_cassette
from flowengine.testing.model_overrides import ModelSlot, with_models
from flowengine.testing.modes import Mode, choose_mode

# --- The error of a call without an answer

_MAX_DIFF_LINES: Final = 80


class CassetteMismatchError(PermanentModelError):
    """The cassette has no answer for this call, and may not record one."""


def make_mismatch(path: Path, mode: str, calls: Sequence[Call], request: Call) -> CassetteMismatchError:
    """The error for a call that has no answer left."""
    who = f" of '{request.node}'" if request.node else ""
    again = "; record it with --cassettes=new (or FLOWENGINE_CASSETTES=new), everything anew with 'all'"
    if not calls:
        there = "holds no calls" if path.exists() else "does not exist"
        return CassetteMismatchError(f"the cassette {path} {there}, and mode '{mode}' records nothing{again}")
    equal = sum(call.key == request.key for call in calls)
    if equal:
        times = "once" if equal == 1 else f"{equal} times"
        return CassetteMismatchError(f"the cassette {path} has this call{who} {times}, and it came once more{again}")
    return CassetteMismatchError(
        f"the cassette {path} has no answer for this call{who}{again}. The nearest recorded request differs:\n"
        f"{_format_difference(calls, request)}"
    )


def _format_difference(calls: Sequence[Call], request: Call) -> str:
    lines = _request_lines(request)
    number, nearest = max(enumerate(calls), key=lambda each: _measure_likeness(each[1], request, lines))
    where = f"recorded: call {number + 1}" + (f" of '{nearest.node}'" if nearest.node else "")
    diff = list(unified_diff(_request_lines(nearest), lines, where, "asked now", lineterm="", n=2))
    rest = len(diff) - _MAX_DIFF_LINES
    return "\n".join([*diff[:_MAX_DIFF_LINES], *([f"… and {rest} more lines"] if rest > 0 else [])])


def _measure_likeness(call: Call, request: Call, lines: Sequence[str]) -> tuple[bool, float]:
    """The same node before all others, then the share of equal lines."""
    return call.node == request.node, SequenceMatcher(None, _request_lines(call), lines, autojunk=False).ratio()


def _request_lines(call: Call) -> list[str]:
    return format_request(call.request).splitlines()


class Cassette:
    """Recorded calls, in a file.

    Whatever is recorded is in the file before its answer is used, so a test that fails half-way has
    paid for nothing twice. Failed calls are not recorded.
    """

    def __init__(self, path: str | PathLike[str], mode: Mode | None = None) -> None:
        """A file that is there is read now, unless the mode is `all`; `CassetteError` where it is damaged."""
        self.path = Path(path)
        self.mode: Mode = choose_mode(mode)
        self.misses: list[str] = []
        """The calls that were refused, as their messages."""
        exists = self.path.exists()
        self.calls: list[Call] = read_cassette(self.path) if exists and self.mode != "all" else []
        self.records = self.mode in ("new", "all") or (self.mode == "once" and not exists)
        self._unplayed = list(self.calls)
        self._order: dict[str, int] = {}

    def around(self, flow: Flow) -> Flow:
        """The flow, with its models' calls played from here, or made and recorded."""
        self._order = {name: number for number, name in enumerate(flow.plan.graph.ids)}
        return with_models(flow, self._model_at)

    def model(self, model: ModelChoice = None, *, max_retries: int = 3) -> Model:
        """A model, by name or as it is, whose calls are played from here, or made and recorded.

        Its name needs no key as long as nothing is recorded.
        """
        return RetryingModel(_CassetteModel(self, CallSettings(model, max_retries=max_retries), ""), 0)

    def take(self, request: Request, node: str, models: tuple[str, ...]) -> Reply | None:
        """The next answer to this request; of several equal ones, one that the same node got. None: there is none.

        `models`: the names under which it may have been recorded.
        """
        keys = {Call(replace(request, model=name), Reply("")).key for name in models}
        matches = [call for call in self._unplayed if call.key in keys]
        if not matches:
            return None
        call = next((each for each in matches if each.node == node), matches[0])
        self._unplayed.remove(call)
        return call.reply

    def keep(self, call: Call) -> None:
        """Record a call."""
        self.calls.append(call)
        last = len(self._order)
        self.calls.sort(key=lambda each: self._order.get(each.node, last))
        write_cassette(self.path, self.calls)

    def refuse(self, request: Request, node: str) -> CassetteMismatchError:
        """Makes the error for a request without an answer, which names the nearest one that has one."""
        error = make_mismatch(self.path, self.mode, self.calls, Call(request, Reply(""), node))
        self.misses.append(str(error))
        return error

    def _model_at(self, seat: ModelSlot, settings: CallSettings) -> Model:
        return _CassetteModel(self, settings, seat.node)


class _CassetteModel:
    """The models of one seat, with the cassette before them; they are opened when a call has to be made."""

    def __init__(self, cassette: Cassette, settings: CallSettings, node: str) -> None:
        self._cassette = cassette
        self._settings = settings
        self._node = node
        self._source_model: Model | None = None

    @property
    def name(self) -> str:
        return self._identity()[1]

    @property
    def provider(self) -> str:
        return self._identity()[0]

    def _identity(self) -> tuple[str, str]:
        """Provider and name."""
        model = self._settings.model
        if model is None:
            recorded = ((call.reply.provider, call.request.model) for call in self._cassette.calls)
            return next(recorded, None) or self._detect_model()
        return self._detect_model(model) if isinstance(model, str) else (model.provider, model.name)

    @property
    def definition(self) -> ModelDefinition | None:
        """The project's definition of the model, whose options are part of the request."""
        around, model = self._settings.surroundings, self._settings.model
        if model is not None and not isinstance(model, str):
            return None
        return around.models.get(model or default_model(around.environ).name)

    async def supports_schema(self) -> bool:
        """Tells what held when the calls were recorded: what the prompts say depends on it."""
        names = self._names(self.name)
        schemas = [call.request for call in self._cassette.calls if call.request.model in names and _is_shaped(call)]
        if schemas or not self._cassette.records:
            return not any(map(_tells_schema, schemas))
        return await supports_schema(self._model())

    async def complete(self, request: Request) -> Reply:
        reply = self._cassette.take(request, self._node, self._names(request.model))
        if reply is not None:
            return reply
        if not self._cassette.records:
            raise self._cassette.refuse(request, self._node)
        model = self._model()
        full_request = replace(request, model=model.name)
        with allow_requests():
            reply = await model.complete(full_request)
        self._cassette.keep(Call(full_request, reply, self._node))
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        """The whole answer in one piece: what is tested is what it says, not how it trickles."""
        return stream_whole(self.complete, request)

    def _detect_model(self, model: str | None = None) -> tuple[str, str]:
        """Provider and name of the model, or of the default one."""
        around = self._settings.surroundings
        name = default_model(around.environ).name if model is None else model
        try:
            return find_meaning(name, around.models, around.environ, around.default_provider).choice[:2]
        except ModelConfigError:
            if self._cassette.records:
                raise
            # Whose the name is was known where the call was recorded.
            calls = (call for call in self._cassette.calls if call.request.model == name)
            return next((call.reply.provider for call in calls if call.reply.provider), "unknown"), name

    def _names(self, name: str) -> tuple[str, ...]:
        """A seat without a chosen model takes what was recorded with any: the default depends on the machine."""
        if self._settings.model is not None:
            return (name,)
        return tuple(dict.fromkeys([name, *(call.request.model for call in self._cassette.calls)]))

    def _model(self) -> Model:
        if self._source_model is None:
            self._source_model = open_model(self._settings)[0]
        return self._source_model


def _is_shaped(call: Call) -> bool:
    return call.request.response_schema is not None


def _tells_schema(request: Request) -> bool:
    """Tells whether the prompt has the schema in words, as it does for models that do not follow schemas."""
    schema: Any = request.response_schema
    return any(schema_text(schema) in message.content for message in request.messages)
