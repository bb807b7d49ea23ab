"""The kind `approval`: a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import Field, model_validator

from flowengine.core import TRAITS
from flowengine.flowfile.compile import text, values
from flowengine.flowfile.schema import (
    TEXT,
    ChannelKeys,
    Duration,
    JsonSchema,
    ListOf,
    Maybe,
    NodeCompiler,
    NodeKeys,
    NodeKind,
    Notify,
    OwnRoute,
    Plain,
    Routes,
    Shape,
    Template,
    object_shape,
    refuse,
    routes_to,
)

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode, Value

Name = Annotated[Plain, Field(min_length=1, max_length=200)]
"""The name of the person or program that answers."""


class ApprovalNodeSpec(NodeKeys):
    """A person decides; the run waits as long as that takes. The output is {choice, comment, by, form}."""

    type: Literal["approval"]
    """Kind of the node."""
    message: Template
    """The question to the person."""
    form: Maybe[JsonSchema] = None
    """A form that the person fills in beside the choice: a JSON Schema."""
    form_for: ListOf[Name] = ()
    """The choices that the form goes with; with the others none is filled in. Left out: all of them."""
    routes: Routes
    """Choice → node, {to, description}, or {} for nowhere."""
    expires: Maybe[Duration] = None
    """How long the person has; goes with `on_expire`."""
    on_expire: Maybe[str] = None
    """The choice that is made when no answer came in time."""
    approvers: ListOf[Name] = ()
    """Who alone may answer: a mail address (of a link that was sent there), a channel of the project, a key of the
    server, or a user of the machine. Left out: all who get a link, or may answer at all."""
    notify: Maybe[Notify] = None
    """Who is told of the question, with links to answer by: channels of the project by name, and channels of its own.
    Left out: those that the project file says (`send` of `[notify]`); `[]` tells no one."""

    @model_validator(mode="after")
    def _can_be_answered(self) -> ApprovalNodeSpec:
        if not self.routes:
            raise refuse("FE214", "there is nothing to choose from: give at least one choice", at="routes")
        if (self.expires is None) != (self.on_expire is None):
            present, lacks = ("expires", "on_expire") if self.on_expire is None else ("on_expire", "expires")
            raise refuse("FE202", f"'{present}' goes with '{lacks}', which is missing", at=present)
        if self.on_expire is not None and self.on_expire not in self.routes:
            names = ", ".join(self.routes)
            raise refuse("FE224", f"there is no choice '{self.on_expire}' (there are {names})", at="on_expire")
        if self.form_for and self.form is None:
            raise refuse("FE202", "'form_for' goes with 'form', which is missing", at="form_for")
        for choice in self.form_for:
            if choice not in self.routes:
                raise refuse(
                    "FE224", f"there is no choice '{choice}' (there are {', '.join(self.routes)})", at="form_for"
                )
        return self

    def own_routes(self) -> list[OwnRoute]:
        return routes_to(self.routes)

    def output_shape(self) -> Shape:
        form = self.form or {}
        return object_shape(("choice", "comment", "by", "form"), choice=TEXT, comment=TEXT, by=TEXT, form=form)


def _notify(entries: Sequence[str | ChannelKeys]) -> Value:
    """The channels of a question, with the addresses that a run has for them."""
    channels = [_channel(each) for each in entries]
    return lambda context: [each(context) for each in channels]


def _channel(entry: str | ChannelKeys) -> Value:
    if isinstance(entry, str):
        return lambda context: entry
    fixed, to = entry.model_dump(by_alias=True, exclude_unset=True), values(entry.to)
    return lambda context: {**fixed, "to": _addresses(to(context))} if entry.to else fixed


def _addresses(addresses: Any) -> list[str]:
    """Addresses, of which a template may give several."""
    if isinstance(addresses, list):
        return [address for each in cast("list[Any]", addresses) for address in _addresses(each)]
    return [str(addresses)]


def make(node: ApprovalNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import ApprovalNode, tell_nobody

    notify = None if node.notify is None else _notify(node.notify) if node.notify else tell_nobody
    return ApprovalNode(
        text(node.message),
        {choice: route.to for choice, route in node.routes.items()},
        form=node.form,
        expires=node.expires,
        on_expire=node.on_expire,
        approvers=node.approvers,
        describe={choice: route.description for choice, route in node.routes.items() if route.description},
        form_for=node.form_for,
        notify=notify,
        **settings,
    )


KIND: Final = NodeKind(ApprovalNodeSpec, make, TRAITS["approval"])
