"""Checks the arguments of a call against the JSON Schema of its tool, before the tool is called.

A server's schema is the server's text: it is read without its regular expressions, which could take for ever, its
references are followed a bounded number of times and lead nowhere outside, and one that cannot be used checks
nothing; then the server itself judges. `jsonschema` is loaded with the first check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from flowengine.errors import did_you_mean
from flowengine.tools.result_text import cut
from flowengine.tools.tool import ToolResult, failed_result

__all__ = ["ArgumentCheck", "ArgumentProblem", "checking"]

_MOST_PROBLEMS: Final = 10
_MOST_REFERENCES: Final = 10_000
_LEFT_OUT: Final = ("pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems", "uniqueItems")
"""Keywords that run a server's regular expressions, or take more than linear time."""
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class ArgumentProblem(NamedTuple):
    """A problem with the arguments of a call."""

    name: str
    """The argument; empty where it is about all of them."""
    text: str
    is_given: bool = True
    """Whether the argument stands there; otherwise it is missing."""


class _TooMuchError(Exception):
    """The schema refers to itself more often than anybody would want to wait for."""


class ArgumentCheck:
    """The arguments that the tool of a schema takes.

    >>> check = ArgumentCheck({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    >>> [each.text for each in check.problems({"citty": 1})]
    ["'city' is missing; did you mean it with 'citty'?"]
    >>> [each.text for each in check.problems({"city": 1})]
    ["'city': 1 is not of type 'string'"]
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        self._followed = 0

    @property
    def names(self) -> list[str]:
        """The arguments that the schema names."""
        named = self._schema.get("properties")
        return [str(each) for each in cast("Mapping[Any, Any]", named)] if isinstance(named, Mapping) else []

    def problems(self, arguments: Mapping[str, Any], unknown: Collection[str] = ()) -> list[ArgumentProblem]:
        """Lists a few problems of the arguments. `unknown`: arguments whose values are not known yet."""
        self._followed = 0
        try:
            found = list(dict.fromkeys(self._find(dict(arguments), unknown)))
        except Exception:  # A schema of somebody else's: what cannot be used checks nothing.
            return []
        return found[:_MOST_PROBLEMS]

    def explain(self, tool_name: str, problems: Collection[ArgumentProblem]) -> str:
        """The problems as a text, one a line, and what is expected."""
        lines = [f"wrong arguments for tool '{tool_name}':", *(f"- {each.text}" for each in problems)]
        return "\n".join([*lines, f"expected arguments: {cut(', '.join(self.names), 500) or 'none'}"])

    def _find(self, arguments: dict[str, Any], unknown: Collection[str]) -> Iterator[ArgumentProblem]:
        for error in self._make_checker().iter_errors(arguments):
            path = [str(each) for each in error.absolute_path]
            if path and path[0] in unknown:
                continue
            if not path and error.validator == "required":
                yield from self._list_missing(error.validator_value, arguments)
            elif not path and error.validator == "additionalProperties":
                for name in arguments.keys() - set(self.names):
                    hint = did_you_mean(name, self.names)
                    yield ArgumentProblem(name, f"'{cut(name, 100)}' is unknown{hint}")
            elif path or not unknown:
                where = f"'{cut('.'.join(path), 100)}': " if path else ""
                yield ArgumentProblem(path[0] if path else "", f"{where}{cut(error.message, 300)}")

    def _list_missing(self, required: Any, arguments: Mapping[str, Any]) -> Iterator[ArgumentProblem]:
        undeclared = [each for each in arguments if each not in self.names]
        for name in required:
            if name not in arguments:
                meant = did_you_mean(str(name), undeclared).replace("did you mean", "did you mean it with")
                yield ArgumentProblem(str(name), f"'{cut(str(name), 100)}' is missing{meant}", is_given=False)

    def _make_checker(self) -> Any:
        from referencing import Registry

        return self._checker_type(self._schema, registry=Registry[Any]())

    @cached_property
    def _checker_type(self) -> Any:
        from jsonschema.validators import Draft202012Validator, validator_for

        kind: Any = validator_for(self._schema, default=Draft202012Validator)
        kind.check_schema(self._schema)
        known = cast("Mapping[str, Any]", kind.VALIDATORS)

        def counted(follow: Any) -> Any:
            def reference(*args: Any) -> Any:
                self._followed += 1
                if self._followed > _MOST_REFERENCES:
                    raise _TooMuchError
                return follow(*args)

            return reference

        def additional(checker: Any, allowed: Any, instance: Any, schema: Any) -> Any:
            return (
                ()
                if "patternProperties" in schema
                else known["additionalProperties"](checker, allowed, instance, schema)
            )

        changed: dict[str, Any] = dict.fromkeys(_LEFT_OUT)
        changed |= {name: counted(known[name]) for name in _REFERENCES if name in known}
        extend: Any = vars(import_module("jsonschema.validators"))["extend"]
        return extend(kind, {**changed, "additionalProperties": additional})


def checking(
    tool_name: str, schema: Mapping[str, Any], run: Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
) -> Callable[[Mapping[str, Any]], Awaitable[ToolResult]]:
    """The call of a tool, which is not made where its arguments do not fit: the result says what is wrong."""
    check = ArgumentCheck(schema)

    async def call(arguments: Mapping[str, Any]) -> ToolResult:
        problems = check.problems(arguments)
        return failed_result(check.explain(tool_name, problems)) if problems else await run(arguments)

    return call
