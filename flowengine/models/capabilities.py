"""Defines what one model can do, and what its name tells.

Data only: where it is known from is the matter of `capability_lookup`. What is not known is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

Api: TypeAlias = Literal["chat", "responses"]
"""OpenAI's chat completions, or its Responses API."""
APIS: Final[tuple[Api, ...]] = get_args(Api)
Sampling: TypeAlias = Literal["always", "unless it thinks", "never"]
"""When a model takes a temperature or `top_p`."""
SAMPLINGS: Final[tuple[Sampling, ...]] = get_args(Sampling)

EFFORT_BUDGETS: Final[Mapping[str, int]] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 4096,
    "xhigh": 8192,
    "max": 16384,
}
"""Effort → tokens to think with, for models of Anthropic's that know no effort."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of one model. None: that is not known."""

    is_known: bool = False
    """Whether the table or a project says anything of it."""
    api: Api | None = None
    """The only interface of OpenAI's that it answers at."""
    thinks: bool | None = None
    """Whether it thinks before it answers, by itself or where it is asked to."""
    efforts: tuple[str, ...] | None = None
    """The efforts that it takes, `none` among them where its thinking can be stopped."""
    usual_effort: str = ""
    """The one that it has where nothing is said; `none`: it does not think unasked."""
    sampling: Sampling | None = None
    """When it takes a temperature or `top_p`."""
    tools: bool | None = None
    takes_tools_thinking: bool = True
    """Whether chat completions take tools while it thinks."""
    chat_efforts: tuple[str, ...] | None = None
    """The efforts that chat completions take, where these are fewer."""
    streams: bool = True
    """Whether it can be asked for its answer in pieces."""
    thinks_by: Literal["", "budget", "effort", "both"] = ""
    """The way to say how much a model of Anthropic's thinks: by tokens, an effort, or either."""
    thinks_adaptively: bool = False
    """Whether it decides itself when it thinks, where an effort is said."""
    stops_thinking_by: str = ""
    """The type of `thinking` with which it does not think, where it does so unasked."""
    writes_cache_unasked: bool = False
    """Whether its vendor writes prompts to a cache unasked, at a price, and can be told not to."""
    takes_forced_tool: bool | None = None
    """Whether it can be made to call a tool."""

    def thinks_at(self, effort: str | None) -> bool:
        """Tells whether it thinks where that effort is asked for, or none is said."""
        return bool(self.thinks) and (effort or self.usual_effort) != "none"

    def needs_responses(self, options: Mapping[str, Any], *, has_tools: bool) -> bool:
        """Tells whether OpenAI's Responses API has to be asked, where its chat completions refuse such a call.

        >>> model = Capabilities(thinks=True, takes_tools_thinking=False)
        >>> model.needs_responses({}, has_tools=True)
        True
        >>> model.needs_responses({"reasoning_effort": "none"}, has_tools=True)
        False
        """
        if self.api is not None:
            return self.api == "responses"
        effort = options.get("reasoning_effort")
        if self.chat_efforts is not None and effort is not None and effort not in self.chat_efforts:
            return self.efforts is None or effort in self.efforts
        return has_tools and not self.takes_tools_thinking and self.thinks_at(effort)

    def is_sampled_at(self, effort: str | None) -> bool | None:
        """Tells whether it takes a temperature or `top_p` beside that effort; None where that is not known."""
        if self.sampling == "unless it thinks":
            return not self.thinks_at(effort)
        return None if self.sampling is None else self.sampling == "always"


class SaidCapabilities(NamedTuple):
    """A project's statements on what a model can do; None where it says nothing."""

    same_as: str | None = None
    """The model of the table that it is, where its name does not say so: `openai/gpt-5.5` of a deployment."""
    api: Api | None = None
    """The only interface of OpenAI's protocol that it answers at: `chat` or `responses`."""
    thinks: bool | None = None
    """Whether it thinks before it answers."""
    efforts: tuple[str, ...] | None = None
    """The values of `reasoning_effort` that it takes."""
    usual_effort: str | None = None
    """The one that it has where nothing is said; `none`: it does not think unasked."""
    sampling: Sampling | None = None
    """When it takes a temperature or `top_p`: `always`, `unless it thinks` or `never`."""
    tools: bool | None = None
    """Whether it calls tools."""
    streams: bool | None = None
    """Whether it can be asked for its answer in pieces."""


# --- The parts of a name


class Kind(NamedTuple):
    """A model's name in its parts."""

    family: str
    """`gpt-`, `claude-sonnet-`"""
    version: tuple[int, int]
    variant: str
    """`-mini`, `-flash`; empty for the model itself."""


_NAME: Final = re.compile(
    r"(?P<family>[a-z]+(?:-[a-z]+)*?-?v?)(?P<major>\d{1,2})(?:[.-](?P<minor>\d{1,2}))?(?P<variant>(?:-[a-z]\w*)*)"
)
_MARKS: Final = re.compile(r"[@-](?:\d{8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{4}|\d{3}|preview|latest|exp)(?=$|[-:@])|:.*")
"""The marks in a name that only say which state of the model is meant."""


def kind_of(name: str) -> Kind | None:
    """The parts of a model's name; None where it has no version.

    >>> kind_of("gpt-6.1-sol"), kind_of("claude-opus-4-5-20251101"), kind_of("o3-mini")
    (Kind(family='gpt-', version=(6, 1), variant='-sol'), Kind(family='claude-opus-', version=(4, 5), variant=''), \
Kind(family='o', version=(3, 0), variant='-mini'))
    """
    match = _NAME.fullmatch(_MARKS.sub("", name.removeprefix("ft:")))
    if match is None:
        return None
    return Kind(match["family"], (int(match["major"]), int(match["minor"] or 0)), match["variant"])
