"""Groups tools in named sets, and merges the active sets into the one offer that a model gets.

A `ToolSet` is what a user, a typed context or a server brings; an `Offer` is all active sets merged.
Nothing here calls a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from flowengine.agents.tools.function_tool import tool_of
from flowengine.agents.tools.result_text import cut
from flowengine.agents.tools.tool import Tool, ToolResult, failed_result
from flowengine.errors import DefinitionError, did_you_mean, refuse_other_kind


@dataclass(frozen=True, slots=True, init=False)
class ToolSet:
    """Tools that belong together."""

    name: str
    description: str
    tools: tuple[Tool, ...]
    active: bool
    """The tools of an inactive set are not offered to the model."""
    source: str
    """The origin of the set, for messages: a file, a server, a context."""

    def __init__(
        self,
        name: str,
        description: str,
        tools: Iterable[Tool | Callable[..., Any]],
        active: bool = True,
        source: str = "",
    ) -> None:
        """Plain functions among the tools are taken as `tool_of` takes them."""
        for field, text in (("name", name), ("description", description), ("source", source)):
            refuse_other_kind(text, str, f"the {field} of a ToolSet is text", DefinitionError)
        refuse_other_kind(tools, Iterable, f"the tools of the ToolSet '{name}' are a list", DefinitionError)
        tool_tuple = tuple(each if isinstance(each, Tool) else tool_of(each) for each in tools)
        values = {"name": name, "description": description, "tools": tool_tuple, "active": active, "source": source}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def origin(self) -> str:
        """The set as a message names it."""
        return f"'{self.name}' ({self.source})" if self.source else f"'{self.name}'"


class ApprovalRules(NamedTuple):
    """The tools that need a person's consent before each call.

    >>> rules = ApprovalRules(("refund", "crm.*"))
    >>> [rules.match(name) for name in ("refund", "refund_all", "crm.delete")]
    [True, False, True]
    """

    names: tuple[str, ...] = ()
    """Names of tools, of those of a server also as `server.tool`; `*` stands for any text."""
    external: bool = False
    """Every tool whose effect is `external`, but for those that say `approve=False`."""
    approvers: tuple[str, ...] = ()
    """Who alone may answer; empty: all who may answer at all."""

    def match(self, name: str) -> bool:
        return any(re.fullmatch(re.escape(each).replace(r"\*", ".*"), name, re.DOTALL) for each in self.names)

    def apply_to(self, tool: Tool) -> Tool:
        """The tool that says itself whether a person is asked."""
        if not (self.names or self.external) and tool.approve is not None:
            return tool
        by_default = self.external and tool.effect == "external" and tool.approve is None
        asks = bool(tool.approve) or by_default or self.match(tool.name) or self.match(tool.qualified)
        return tool if tool.approve is asks else replace(tool, approve=asks)

    def find_unknown(self, tools: Iterable[Tool]) -> str | None:
        """The first name that no tool has; one with `*` may stand for none."""
        names = {name for tool in tools for name in (tool.name, tool.qualified)}
        return next((each for each in self.names if "*" not in each and each not in names), None)


NO_RULES: Final = ApprovalRules()


class Offer:
    """The tools that a model may call, from all active sets, in the order of the sets.

    `rules` say which of them a person is asked about. Two tools of one name are a `DefinitionError` that names both
    sets.

    >>> def add(a: int, b: int) -> int:
    ...     return a + b
    >>> offer = Offer([ToolSet("sums", "", [add])])
    >>> offer.find("ad"), offer.unknown("ad").text
    (None, "there is no tool 'ad'; did you mean 'add'?")
    """

    def __init__(self, sets: Iterable[ToolSet], rules: ApprovalRules = NO_RULES) -> None:
        self._tools: dict[str, Tool] = {}
        origins: dict[str, str] = {}
        for each in sets:
            for tool in each.tools if each.active else ():
                if tool.name in origins:
                    raise DefinitionError(
                        f"two tools are named '{tool.name}': one of the set {origins[tool.name]}, "
                        f"one of the set {each.origin}; rename one of them"
                    )
                origins[tool.name] = each.origin
                self._tools[tool.name] = rules.apply_to(tool)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def schemas(self) -> tuple[dict[str, Any], ...]:
        """All tools in OpenAI's function format: the `tools` of a request."""
        return tuple(tool.schema() for tool in self)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def unknown(self, name: str) -> ToolResult:
        """Tells a model that it called an unknown tool."""
        short_name = cut(name, 100)
        hint = did_you_mean(short_name, self._tools) or f"; the tools are: {', '.join(self._tools) or 'none'}"
        return failed_result(f"there is no tool '{short_name}'{hint}")
