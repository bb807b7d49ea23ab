"""Reads answers of a declared shape: finds the JSON in a text, and checks it.

It knows shapes (a pydantic class or a JSON Schema), no prompt and no default: an answer that never fits is an error
that holds the last answer and what is wrong with it. Having the model correct it is the matter of `caller`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pydantic import BaseModel, PydanticUserError, ValidationError

from flowengine.core import cut_text, describe_error, find_json, refuse_constant
from flowengine.errors import DefinitionError, OutputError
from flowengine.models import Message, Reply

OutputModel: TypeAlias = type[BaseModel] | Mapping[str, Any]
"""The values a user may give as `output_model`: a pydantic class or a JSON Schema."""


class UnfitError(ValueError):
    """A value that does not fit its shape; the message is for the model."""


class UnusableAnswerError(OutputError):
    """The last answer, after all corrections, still does not fit."""

    def __init__(self, answer: str, problem: str, calls: int) -> None:
        super().__init__(
            f"the answer cannot be used after {calls} call(s): {problem}; it was: {cut_text(answer, 200)!r}"
        )
        self.answer = answer
        self.problem = problem
        self.calls = calls


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """A declared output: its schema for the model, and the check of what came back."""

    name: str
    """Letters, digits, `_` and `-`, as vendors want it."""
    schema: Mapping[str, Any]
    parse: Callable[[Any], Any]
    """JSON value → validated value; raises `UnfitError`."""


class StructuredAnswer(NamedTuple):
    """The final answer of a model, and how it was reached."""

    value: Any
    """The text, or the validated value."""
    reply: Reply
    """The last one."""
    calls: int
    """Answers given, those that had to be corrected included; rounds of tools are not counted."""
    added: tuple[Message, ...] = ()
    """The messages that the tool loop added to the chat on the way to it."""

    @property
    def exchange(self) -> tuple[Message, ...]:
        """The requests for tools, and their results."""
        return tuple(each for each in self.added if each.tool_calls or each.role == "tool")

    def metadata(self) -> dict[str, Any]:
        """Returns the model and its usage as JSON values; tokens and cost are those of the last call."""
        reply = self.reply
        return {
            "model": reply.model,
            "provider": reply.provider,
            "finish_reason": reply.finish_reason,
            "prompt_tokens": reply.usage.prompt_tokens,
            "completion_tokens": reply.usage.completion_tokens,
            "cost_usd": reply.cost_usd,
            "calls": self.calls,
            "tool_calls": sum(each.role == "tool" for each in self.added) if self.added else 0,
        }


def shape_of(output: OutputModel) -> AnswerShape:
    """The shape of a pydantic class or of a JSON Schema; anything else is a `DefinitionError`."""
    spec = cast(object, output)  # what a flow's author wrote may be anything
    if isinstance(spec, type) and issubclass(spec, BaseModel):
        return AnswerShape(_safe_name(spec.__name__), _schema_of(spec), _instance_of(spec))
    if isinstance(spec, Mapping):
        schema = cast("Mapping[str, Any]", spec)
        return AnswerShape(_safe_name(str(schema.get("title") or "answer")), schema, _parser_of(schema))
    raise DefinitionError(f"output_model must be a pydantic class or a JSON Schema (a mapping), not {output!r}")


def json_values(text: str) -> Iterator[Any]:
    """The JSON values in an answer, the likeliest first: all of it, then fenced blocks, then what prose surrounds.

    >>> list(json_values('Sure! {"a": 1} It was {easy}.'))
    [{'a': 1}]
    """
    return chain.from_iterable(_find_candidates(text))


def _find_candidates(text: str) -> Iterator[list[Any]]:
    """The values by how they are given, the likeliest way first; what a model thinks aloud is left out."""
    whole = _load_json(text)
    if whole is not _NOTHING:
        yield [whole]
        return
    text = text.rpartition("</think>")[2]
    fences = [_load_json(block) for block in _FENCED.findall(text)]
    yield [value for value in reversed(fences) if value is not _NOTHING]
    yield list(find_json(text))[::-1]


_FENCED: Final = re.compile(r"```[\w-]*+\s*+(.*?)```", re.DOTALL)
_NOTHING: Final = object()


_DECODER: Final = json.JSONDecoder(parse_constant=refuse_constant)


def _load_json(text: str) -> Any:
    try:
        return _DECODER.decode(text.strip())
    except (ValueError, RecursionError):
        return _NOTHING


def parse_answer(reply: Reply, shape: AnswerShape) -> Any:
    """The JSON value that fits; `UnfitError` says what is wrong with the likeliest, or that several fit."""
    problem = ""
    for values in _find_candidates(reply.content):
        fitting: list[tuple[str, Any]] = []
        for value in values:
            try:
                fitting.append((json.dumps(value, sort_keys=True), shape.parse(value)))
            except UnfitError as error:
                problem = problem or str(error)
        if len({text for text, _ in fitting}) > 1:
            raise UnfitError(f"it holds {len(fitting)} different JSON values that fit; answer with one of them only")
        if fitting:
            return fitting[0][1]
    if reply.finish_reason == "length":
        problem = "it was cut off because it became too long; answer more briefly"
    elif not reply.content.strip():
        problem = "it is empty"
    raise UnfitError(problem or "it holds no JSON")


def _schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    try:
        return kind.model_json_schema()
    except PydanticUserError as error:
        raise DefinitionError(f"output_model {kind.__name__} has no JSON Schema: {error.message}") from error


def _instance_of(kind: type[BaseModel]) -> Callable[[Any], BaseModel]:
    def parse(value: Any) -> BaseModel:
        try:
            # Through JSON once more: only there do strict models read dates and enums from text.
            return kind.model_validate_json(json.dumps(value))
        except ValidationError as error:
            raise UnfitError(error_lines(error)) from error
        except Exception as error:  # a validator of the user's
            raise OutputError(f"a validator of {kind.__name__} failed: {describe_error(error)}") from error

    return parse


def error_lines(error: ValidationError) -> str:
    """Formats pydantic's errors in one line, for a model to correct; at most five."""
    return "; ".join(_format_error(each) for each in error.errors(include_url=False)[:5])


def _format_error(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"]) or "the value"
    actual = "" if error["type"] == "missing" else f" (it is {cut_text(repr(error['input']), 80)})"
    return f"{place}: {error['msg']}{actual}"


def _parser_of(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    # Loaded here because the validating library is slow to import and most agents answer in text.
    from flowengine.core import describe_problems, make_validator

    check = make_validator(schema)

    def parse(value: Any) -> Any:
        problems = describe_problems(check, value)
        if problems:
            raise UnfitError("; ".join(problems))
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise UnfitError("it holds half a surrogate pair, which is no text") from error
        return value

    return parse


def _safe_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:64] or "answer"
