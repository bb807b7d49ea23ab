"""Declares the keys that nodes of several types share: order, conditions, failures, repetition, bounds.

Which keys a type has follows from what it is made of here: every node has `NodeKeys`; what takes time
and money has `BoundedKeys`; and what can simply be done again has `WorkKeys`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from flowengine.core import EvaluationResult, RoutingResult, is_map
from flowengine.engine import FALLBACK
from flowengine.errors import did_you_mean
from flowengine.flowfile.schema.fields import (
    APART,
    RACE,
    Duration,
    Expression,
    Keys,
    ListOf,
    Maybe,
    NodeId,
    Route,
    Trust,
    Values,
    format_found,
    refuse,
)

# --- The shapes of outputs that are the same in every flow, as JSON Schemas

Shape = dict[str, Any]

TEXT: Final[Shape] = {"type": "string"}
NUMBER: Final[Shape] = {"type": "number"}
BOOLEAN: Final[Shape] = {"type": "boolean"}


def object_shape(names: Iterable[str], **shapes: Shape) -> Shape:
    """An object with these fields; of those in `shapes` more is known than the name."""
    return {"type": "object", "properties": {name: shapes.get(name, {}) for name in names}}


def shape_of_model(model: type[BaseModel], **shapes: Shape) -> Shape:
    """An object with the fields of a class."""
    return object_shape(model.model_fields, **shapes)


ROUTING: Final = shape_of_model(RoutingResult, next_route=TEXT, confidence=NUMBER, reasoning=TEXT)
EVALUATION: Final = shape_of_model(EvaluationResult, score=NUMBER, passed=BOOLEAN, feedback=TEXT)


Effect = Literal["none", "idempotent", "external"]


class RetrySpec(Keys):
    """The node runs again when it fails."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Runs of the node, the first included."""
    backoff: Literal["fixed", "exponential"] = "exponential"
    """How the wait between two attempts grows."""
    initial: Duration = 1.0
    """The first wait."""
    max: Duration = 60.0
    """The longest wait."""
    jitter: bool = True
    """Shorten each wait at random, so that many nodes do not come back at once."""
    on: ListOf[Literal["invalid_output", "error"]] = ("invalid_output", "error")
    """Failures that are worth another attempt: an output that does not fit its shape, any other failure."""


class OnErrorSpec(Keys):
    """The effect of the node's failure on the run."""

    action: Literal["fail", "skip", "then"]
    """The run fails; the node counts as skipped; another node handles the failure."""
    then: Maybe[NodeId] = None
    """The node that handles the failure."""


def _as_on_error(value: Any) -> Any:
    if value in ("fail", "skip"):
        return {"action": value}
    if is_map(value) and set(value) == {"then"}:
        return {"action": "then", "then": value["then"]}
    raise refuse("FE402", f"expected 'fail', 'skip' or {{then: <node id>}}, found {format_found(value)}")


OnError = Annotated[OnErrorSpec, BeforeValidator(_as_on_error)]


class NodeLimitsSpec(Keys):
    """Bounds of one part of a run: a node, or everything inside a map, a loop or a subflow."""

    timeout: Maybe[Duration] = None
    """Time for this part, with all its attempts."""
    cost_usd: Maybe[Annotated[float, Field(gt=0)]] = None
    """Cost of its model calls together, in dollars."""
    tokens: Maybe[Annotated[int, Field(ge=1)]] = None
    """Tokens of its model calls together."""
    model_calls: Maybe[Annotated[int, Field(ge=1)]] = None
    """Its model calls."""
    on_limit: Literal["fail", "pause", "partial"] = "fail"
    """The action at a limit."""


class OwnRoute(NamedTuple):
    """One label that a node can take, and where it leads."""

    label: str
    target: str | None
    """None where it leads nowhere."""
    at: tuple[str | int, ...]
    """The key of the node that says so."""


def routes_to(routes: Mapping[str, Route], fallback: str | None = None) -> list[OwnRoute]:
    """The labels of `routes`, and the fallback where that is a node and none of them."""
    own_routes = [OwnRoute(label, route.to, ("routes", label, "to")) for label, route in routes.items()]
    if fallback is not None and fallback not in routes:
        own_routes.append(OwnRoute(FALLBACK, fallback, ("fallback",)))
    return own_routes


def targets_of(routes: Mapping[str, Route], fallback: str | None) -> tuple[dict[str, str | None], str | None]:
    """Label → node; and the fallback where it is a node and not one of the labels."""
    targets = {label: route.to for label, route in routes.items()}
    return targets, None if fallback in targets else fallback


def _no_race(value: Any) -> Any:
    if value in ("first", "any", "race"):
        raise refuse("FE231", RACE[0], hint=RACE[1])
    return value


class NodeKeys(Keys):
    """Keys of every node."""

    if TYPE_CHECKING:
        type: Any  # Each kind says which one it is.

    description: str = ""
    """A description for readers and pictures."""
    needs: ListOf[NodeId] = ()
    """Nodes that this one waits for, beside those that its templates name."""
    when: Maybe[Expression] = None
    """The node is skipped where this is false."""
    join: Annotated[Literal["some", "all", "always"], BeforeValidator(_no_race)] = "some"
    """`some`: no predecessor failed and one succeeded; `all`: every one succeeded; `always`: whatever happened."""
    set: Values = Field(default_factory=dict[str, Any])
    """State key → template; sees this node's `output`."""
    on_error: OnError = OnErrorSpec(action="fail")
    """The consequence of a failure: `fail`, `skip`, or `{then: <node id>}`."""
    trust: Maybe[Trust] = None
    """Why untrusted text is meant to do here what it can do: a reason, or a reason for each key that it is meant at
    (`{url: …}`; `output` is what the node gives)."""

    @model_validator(mode="after")
    def _trusts_its_keys(self) -> NodeKeys:
        for key in self.trust or ():
            keys = ["output", *(field.alias or name for name, field in type(self).model_fields.items())]
            if key and key not in keys:
                text = f"a node of this type has no key '{key}' that could be trusted"
                raise refuse("FE201", text, hint=did_you_mean(key, keys), at=("trust", key))
        return self

    def own_routes(self) -> list[OwnRoute]:
        """The labels that the node says itself, those that lead nowhere included."""
        return []

    def output_shape(self) -> Shape | None:
        """Returns the JSON Schema that the node itself gives for its output; None if unknown."""
        return None


class BoundedKeys(NodeKeys):
    """Keys of nodes that take time or money."""

    timeout: Maybe[Duration] = None
    """Time for one attempt. On asyncio, code that ignores its cancellation is left behind 5 s later (rule 4)."""
    effect: Maybe[Effect] = "none"
    """Its effect outside: nothing; what may be done twice; what may be done twice only with a person's consent."""
    cache: bool = False
    """Take the output from an earlier run that had the same definition and the same inputs."""
    version: str = ""
    """Stands for what cannot be read of the code that it calls (a connection, a model in memory): results are taken
    again as long as it stays the same."""
    limits: Maybe[Annotated[NodeLimitsSpec, APART]] = None
    """Bounds of this part of the run."""

    def known_effect(self) -> Effect | None:
        """Returns the node's effect according to the file; None if the called code decides."""
        return self.effect

    def effect_advice(self) -> str:
        """Suggests how else to declare the effect, as the end of a message."""
        return ""

    @model_validator(mode="after")
    def _is_done_once(self) -> BoundedKeys:
        if self.known_effect() == "external":
            for key in ("retry", "cache"):
                if getattr(self, key, None):
                    text = f"what has an external effect is done once, so it takes no '{key}'{self.effect_advice()}"
                    raise refuse("FE209", text, at=key)
        return self


class WorkKeys(BoundedKeys):
    """Keys of nodes that can be run again by themselves."""

    retry: Maybe[Annotated[RetrySpec, APART]] = None
    """Run the node again when it fails."""
