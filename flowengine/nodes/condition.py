"""Decides a condition as a node: which of its routes is taken, by code or by an expression."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from enum import Enum
from typing import Any, ClassVar, Self, Unpack, cast

from flowengine.core import Context, Decided, NodeResult, check_arguments, describe_value, failure_of_code, find_label
from flowengine.errors import DefinitionError, JournalError, RouteError, names_arguments, refuse_other_kind
from flowengine.nodes.node import FlowNode, NodeSettings, Testable, Value

_THEN = NodeResult("then", route="then")
_ELSE = NodeResult("else", route="else")


class ConditionNode(FlowNode):
    """Two ways (`ConditionNode(is_ready, "publish", "improve")`) or many
    (`ConditionNode(choose, {"x": "left", "y": "right"})`).

    The function is sync or async, runs on the loop (it should be quick) and gets the context. Two
    ways ask for a bool; many ways ask for a bool, a string or an enum whose label is declared. An
    answer that matches nothing and has no `otherwise` fails the node (rule 5).
    """

    kind: ClassVar[str] = "condition"
    starts_tasks: ClassVar[bool] = False
    is_in_file: ClassVar[bool] = False
    """Whether a file says how it decides: by expressions, which its definition has."""

    @names_arguments
    def __init__(
        self,
        function: Callable[[Context], Any],
        then: str | Mapping[Any, str | None] | None = None,
        otherwise: str | None = None,
        *,
        has_otherwise: bool | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """`has_otherwise` says that an answer without a route leads nowhere; `settings`: see `FlowNode`."""
        if isinstance(cast(Any, function), str):
            raise DefinitionError(
                f"a ConditionNode asks a function, not str {function!r:.60}: its name is its key in the flow, "
                "as in Flow('f', {'route': ConditionNode(choose, {'x': 'left', 'y': 'right'})})"
            )
        refuse_other_kind(function, (Callable, Testable), "a ConditionNode asks a function", DefinitionError)
        check_arguments(ConditionNode.__init__, {"then": then, "otherwise": otherwise, "has_otherwise": has_otherwise})
        super().__init__(**settings)
        self._bind(function)
        if isinstance(then, Mapping):
            self._routes: dict[str, str | None] = {_label(label): target for label, target in then.items()}
            self._has_otherwise = has_otherwise if has_otherwise is not None else otherwise is not None
            if self._has_otherwise:
                self._routes["else"] = otherwise
        else:
            self._routes = {"then": then, "else": otherwise}
            self._has_otherwise = False
        self._two_way = not isinstance(then, Mapping)

    def with_function(self, function: Callable[[Context], Any]) -> Self:
        """This node with a function in the place of its own, or of its expression."""
        changed = copy(self)
        changed._bind(function)
        return changed

    def _bind(self, function: Callable[[Context], Any]) -> None:
        self.function = function
        self._test = function.test if isinstance(function, Testable) else None

    @property
    def routes(self) -> Mapping[str, str | None]:
        return self._routes

    async def run(self, context: Context, /) -> NodeResult:
        if self._test is not None:
            verdict = self._test(context)
            result = _THEN if verdict["answer"] else _ELSE
            context.runtime.note_with_next(Decided("if", result.output, (verdict,), ("then", "else")))
            return result
        try:  # Not `with USER_CODE`, whose calls cost as much as some nodes.
            answer = self.function(context)
            if (answer is True or answer is False) and self._two_way:
                return _THEN if answer else _ELSE
            if isinstance(answer, Awaitable):
                answer = await cast(Awaitable[Any], answer)
        except JournalError as error:
            raise failure_of_code(error) from error
        label = self._choose(answer)
        return NodeResult(label, route=label)

    def _choose(self, answer: Any) -> str:
        if self._two_way:
            if not isinstance(answer, bool):
                raise RouteError(f"the condition must give true or false, found {describe_value(answer)}")
            return "then" if answer else "else"
        if isinstance(answer, bool | str | Enum) and (label := find_label(_label(answer), self._routes)) is not None:
            return label
        if self._has_otherwise:
            return "else"
        raise RouteError(f"the condition answered {answer!r:.60}; allowed are: {', '.join(self._routes)}")

    @property
    def code(self) -> Sequence[Any]:
        return () if self._two_way or self.is_in_file else (self.function,)

    def identity(self) -> Sequence[Any]:
        return (self.function,)


class CasesNode(ConditionNode):
    """The first case that holds wins: `[(predicate, label, target), ...]`, else `otherwise`."""

    is_in_file: ClassVar[bool] = True

    def __init__(
        self,
        cases: Sequence[tuple[Callable[[Context], bool], str, str | None]],
        otherwise: str | None = None,
        *,
        has_otherwise: bool = False,
        **settings: Unpack[NodeSettings],
    ) -> None:
        looks = [(each.test if isinstance(each, Testable) else _make_test(each), label) for each, label, _ in cases]

        async def first(context: Context) -> str:
            tests: list[Mapping[str, Any]] = []
            label_of_route = "else" if has_otherwise else None
            for test, label in looks:
                tests.append({**test(context), "label": label})
                if tests[-1]["answer"]:
                    label_of_route = label
                    break
            decided = Decided("cases", "" if label_of_route is None else label_of_route, tests, tuple(self._routes))
            context.runtime.note_with_next(decided)
            if label_of_route is None:
                raise RouteError(f"none of the {len(cases)} cases holds and there is no `else`")
            return label_of_route

        super().__init__(
            first, {label: target for _, label, target in cases}, otherwise, has_otherwise=has_otherwise, **settings
        )


class SwitchNode(ConditionNode):
    """Takes the route whose label is a value; `expression` says in a file's words what is looked at."""

    is_in_file: ClassVar[bool] = True

    def __init__(
        self,
        expression: str,
        value: Value,
        routes: Mapping[Any, str | None],
        otherwise: str | None = None,
        *,
        has_otherwise: bool = False,
        **settings: Unpack[NodeSettings],
    ) -> None:
        def choose_route(context: Context) -> str:
            subject = value(context)
            label = self._choose(str(subject) if type(subject) is int else subject)
            test = {"expression": expression, "values": {expression: describe_value(subject)}, "answer": True}
            context.runtime.note_with_next(Decided("cases", label, ({**test, "label": label},), tuple(self._routes)))
            return label

        super().__init__(choose_route, routes, otherwise, has_otherwise=has_otherwise, **settings)


def _make_test(predicate: Callable[[Context], bool]) -> Callable[[Context], Mapping[str, Any]]:
    """A test that knows of a function only what it answers."""
    return lambda context: {"answer": predicate(context)}


def _label(value: Any) -> str:
    """A route's label as the format writes it: booleans as true and false, enums by their value."""
    if isinstance(value, Enum):
        value = value.value
    return str(value).lower() if isinstance(value, bool) else str(value)
