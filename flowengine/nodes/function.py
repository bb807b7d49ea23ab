"""Calls a function as a node: async functions run on the loop, plain ones in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Final, Unpack, overload

from flowengine.core import (
    EMPTY,
    Context,
    NodeResult,
    Received,
    RefusedFileError,
    call_in_thread,
    check_arguments,
    failure_of_code,
    holds_bytes,
)
from flowengine.core.templating import excerpt
from flowengine.errors import DefinitionError, JournalError, OutputError, names_arguments, refuse_other_kind
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.node import FlowNode, NodeSettings, Value, check_call, check_result, work_out

_new: Final[Any] = vars(tuple)["__new__"]
_MAX_GIVEN: Final = 2_000
"""Characters of each value that are on record of what a body was handed."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
"""Types of results that hold no bytes."""
_NOTHING_ELSE: Final = tuple(NodeResult()[1:-1])
"""Between the output of a result and its `given`, which comes last."""


class FunctionNode(FlowNode):
    """`function(context)`, or `function(**arguments)` where `arguments` are given.

    It returns a plain value (the output) or a `NodeResult`; bytes in it become files of the run. A plain function
    runs in a thread, and its `timeout` begins when it does: a run has as many threads as its `concurrency` says, else
    256. When its node is cancelled or times out, the thread runs to its end and what it returns is dropped.

    >>> FunctionNode(lambda context: 1).kind
    'function'
    """

    kind: ClassVar[str] = "function"
    starts_tasks: ClassVar[bool] = False

    @overload
    def __init__(
        self,
        function: Callable[[Context], Any],
        *,
        arguments: None = None,
        **settings: Unpack[NodeSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Value] | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None: ...
    @names_arguments
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Value] | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """`settings` are those of every node (`FlowNode`)."""
        super().__init__(**settings)
        refuse_other_kind(function, Callable, "a FunctionNode calls a function", DefinitionError)
        check_arguments(FunctionNode.__init__, locals())
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise DefinitionError("a FunctionNode's function returns its value: one that yields is a generator")
        self.arguments = arguments
        self._bind(function)
        for name, value in (arguments or {}).items():
            check_call(f"argument '{name}'", value, "context")
        names = dict.fromkeys(arguments or (), "")
        if self.wants_context and arguments is not None:
            names["context"] = ""
        positional = ("context",) if self.wants_context and arguments is None else ()
        check_call("the function of a FunctionNode", function, *positional, **names)

    def with_function(self, function: Callable[..., Any]) -> FunctionNode:
        """This node with another function, called with the same arguments."""
        changed = copy(self)
        changed._bind(function)
        return changed

    def _bind(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.wants_context = self.sees_all = _takes_context(function, self.arguments)
        self.in_thread = not is_async(function)
        if not self.in_thread:
            self._call: Callable[..., Awaitable[Any]] = self._on_loop
            if self.arguments is None and self.wants_context:
                self._call = function
        else:
            self._call = self._in_thread

    async def run(self, context: Context, /) -> NodeResult:
        handed, digest = None, None
        if self.arguments is None and self.wants_context:
            call = self._call(context)
        else:
            handed = self.handed(context) or EMPTY
            explain_received(context, handed)
            digest = digest_handed(context, handed)  # Before the function can change what it is handed.
            call = self._call(context, handed)
        try:  # Not `with USER_CODE`, whose calls cost as much as some nodes.
            value = await call
        except JournalError as error:
            raise failure_of_code(error) from error
        if type(value) is NodeResult:
            check_result(value, self)
        if type(value) not in _PLAIN and _gives_bytes(value):
            value = await _keep_bytes(value, context)
        if type(value) is not NodeResult:
            return _new(NodeResult, (value, *_NOTHING_ELSE, digest))
        return value if handed is None else value._replace(given=digest)

    def handed(self, context: Context) -> Mapping[str, Any] | None:
        if self.arguments is None:
            return None if self.wants_context else EMPTY
        return work_out(self.arguments, context)

    def _call_arguments(self, context: Context, handed: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Returns the arguments of the call."""
        if self.arguments is None:
            return ((context,) if self.wants_context else ()), {}
        return (), {**handed, "context": context} if self.wants_context else handed

    async def _on_loop(self, context: Context, handed: Mapping[str, Any] = EMPTY) -> Any:
        args, kwargs = self._call_arguments(context, handed)
        return await self.function(*args, **kwargs)

    async def _in_thread(self, context: Context, handed: Mapping[str, Any] = EMPTY) -> Any:
        args, kwargs = self._call_arguments(context, handed)
        value = await call_in_thread(partial(self.function, *args, **kwargs))
        return await value if inspect.isawaitable(value) else value

    def identity(self) -> Sequence[Any]:
        return () if self.arguments is None else (self.arguments,)

    @property
    def code(self) -> Sequence[Any]:
        return (self.function,)


def explain_received(context: Context, handed: Mapping[str, Any]) -> None:
    """Puts on record what a body is handed, if anything; what is longer came from somewhere."""
    if handed:
        context.runtime.note_with_next(Received({name: excerpt(value, _MAX_GIVEN) for name, value in handed.items()}))


def _gives_bytes(value: Any) -> bool:
    """Tells whether there are bytes in what a function gave; this is asked of every node."""
    if type(value) is not NodeResult:
        return holds_bytes(value)
    for each in (value.state or EMPTY).values():
        if type(each) not in _PLAIN and holds_bytes(each):
            return True
    return type(value.output) not in _PLAIN and holds_bytes(value.output)


async def _keep_bytes(value: Any, context: Context) -> Any:
    """Replaces bytes in what a function gave by files of the run; `OutputError` where one is refused."""
    files = None if context.runtime.scope is None else context.runtime.scope.files
    if files is None:
        return value
    try:
        return await files.keep_in(value, context.current_node or "")
    except RefusedFileError as error:
        raise OutputError(f"the result cannot be kept: {error}") from error


def is_async(function: Callable[..., Any]) -> bool:
    """Tells whether calling it gives a coroutine: an async function, or an object with an async `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004 - its kind is asked for, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_context(function: Callable[..., Any], arguments: Mapping[str, Value] | None) -> bool:
    """With arguments of its own a function is given the context only where it names it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return arguments is None
    if arguments is None:
        return bool(parameters)
    return "context" in parameters and "context" not in arguments
