"""A function as a node: async functions run on the loop, plain ones in a thread."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CodeType
from typing import Any, ClassVar, Final, cast

from anyio import to_thread

from flowengine.context import Context, NodeResult
from flowengine.nodes.node import FlowNode, Value

__all__ = ["FunctionNode", "is_async", "source_of"]


class FunctionNode(FlowNode):
    """`function(context)`, or `function(**arguments)` where `arguments` are given.

    It returns a plain value (the output) or a `NodeResult`. A plain function runs in a thread; when
    its node is cancelled or times out, the thread runs to its end and what it returns is dropped.

    >>> FunctionNode(lambda context: 1).kind
    'function'
    """

    kind: ClassVar[str] = "function"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Value] | None = None,
        needs: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """`settings` are those of every node (`FlowNode`)."""
        super().__init__(needs=needs, **settings)
        self.function = function
        self.arguments = arguments
        self.wants_context = _takes_context(function, arguments)
        if is_async(function):
            self._call: Callable[[Context], Awaitable[Any]] = self._on_loop
            if arguments is None and self.wants_context:
                self._call = function
        else:
            self._call = self._in_thread

    async def run(self, context: Context, /) -> NodeResult:
        value = await self._call(context)
        return value if type(value) is NodeResult else NodeResult(value)

    def given(self, context: Context) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the function is called with."""
        if self.arguments is None:
            return ((context,) if self.wants_context else ()), {}
        given = {name: value(context) for name, value in self.arguments.items()}
        if self.wants_context:
            given["context"] = context
        return (), given

    async def _on_loop(self, context: Context) -> Any:
        args, kwargs = self.given(context)
        return await self.function(*args, **kwargs)

    async def _in_thread(self, context: Context) -> Any:
        args, kwargs = self.given(context)
        value = await to_thread.run_sync(lambda: self.function(*args, **kwargs), abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value

    def identity(self) -> Sequence[Any]:
        return (source_of(self.function),)

    @property
    def code(self) -> Sequence[Callable[..., Any]]:
        return (self.function,)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: an async function, or an object with an async `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004 - its kind is asked for, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


_FOLDER: Final = re.compile(r"^_flowengine_[0-9a-f]{12}\.")
"""What tells a project's module from one of the same name in another folder (`flowengine.spec.imports`)."""


def source_of(function: Callable[..., Any]) -> str:
    """The function's name and what it does, for its node's fingerprint: constants, names and bytecode.

    Cheaper than the source text and needs no file; comments and places do not count, nor does the folder of a
    project's module, so that the same function on two machines is the same.
    """
    kind = type(function).__qualname__
    module = _FOLDER.sub("", str(getattr(function, "__module__", "")))
    name = f"{module}:{getattr(function, '__qualname__', kind)}"
    code = getattr(function, "__code__", None)
    return f"{name} {_body(code)}" if isinstance(code, CodeType) else name


def _body(code: CodeType) -> str:
    constants = [_constant(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _body(value)
    # A set's order differs from process to process.
    return repr(sorted(map(repr, cast(frozenset[Any], value)))) if isinstance(value, frozenset) else repr(value)


def _takes_context(function: Callable[..., Any], arguments: Mapping[str, Value] | None) -> bool:
    """With arguments of its own a function is given the context only where it names it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return arguments is None
    if arguments is None:
        return bool(parameters)
    return "context" in parameters and "context" not in arguments
