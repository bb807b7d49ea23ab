"""Declares what a flow file may say about an agent: its own settings, judging, improving and inner routing.

Data only: it knows neither the `Agent` class nor any default that the class has; a setting that was
not given is None here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from flowengine.agents.context import OURS
from flowengine.core import is_map
from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis import check_json_schema
from flowengine.flowfile.schema.fields import (
    APART,
    UNRENDERED,
    CodePath,
    Duration,
    Identifier,
    Keys,
    ListOf,
    Maybe,
    NodeId,
    Plain,
    Prompt,
    Routes,
    Score,
    Template,
    check_choices,
    check_name,
    format_found,
    refuse,
)
from flowengine.models import (
    MOST_STOPS,
    VENDOR_OPTIONS,
    PromptCaching,
    ReasoningEffort,
    ServiceTier,
    Verbosity,
    find_vendor_option_problem,
)

if TYPE_CHECKING:
    from flowengine.agents.tools.mcp import McpServer


def _sound(schema: Any) -> Any:
    if not is_map(schema):
        return schema
    for path, problem in check_json_schema(schema):
        raise refuse("FE406", problem, path=path)
    return schema


JsonSchema = Annotated[dict[str, Any], BeforeValidator(_sound)]
"""A JSON Schema."""


def _says_something(schema: dict[str, Any]) -> dict[str, Any]:
    # Imported here: the library is slow to load, and most agents answer in text.
    from flowengine.core import check_keywords

    try:
        check_keywords(schema)
    except DefinitionError as error:
        raise refuse("FE406", str(error)) from error
    return schema


AnswerSchema = Annotated[JsonSchema, AfterValidator(_says_something)]
"""A JSON Schema that says something of a value."""


def _name_or_map(value: Any) -> str:
    return "<name>" if isinstance(value, str) else "<map>"


OutputShape = Annotated[
    Annotated[CodePath, Tag("<name>")] | Annotated[AnswerSchema, Tag("<map>")], Discriminator(_name_or_map)
]
"""A JSON Schema, or the pydantic model `module:Class`."""


class Guardrails(Keys):
    """Checks round a generation. Each is a function `(value) -> bool`."""

    input: ListOf[CodePath] = ()
    """May refuse the user input before the call."""
    output: ListOf[CodePath] = ()
    """May refuse the content after it."""


def _check_criteria(criteria: dict[str, str]) -> dict[str, str]:
    for name in criteria:
        check_name(name, "a criterion's name")
    return criteria


Criteria = Annotated[dict[str, Plain], AfterValidator(_check_criteria)]
"""Criterion → what it asks for."""


class Evaluate(Keys):
    """One evaluation of the generation; nothing is improved."""

    instructions: Maybe[Prompt] = None
    """How to judge. Without instructions and criteria: accuracy, relevance and completeness."""
    criteria: Criteria = Field(default_factory=dict[str, str])
    """Criterion → what it asks for."""
    threshold: Maybe[Score] = None
    """The score from which on the generation passes."""
    model: Maybe[Plain] = None
    """The model that judges; else the agent's own."""


class Improve(Evaluate):
    """Orchestration mode: evaluate, and improve until it passes."""

    max_iterations: Maybe[Annotated[int, Field(ge=1, le=100)]] = None
    """Generations after the first, at most."""
    patience: Maybe[Annotated[int, Field(ge=1, le=100)]] = None
    """Improvements in a row without a better score after which it stops, though iterations are left; 100 never does."""


class AgentRouting(Keys):
    """A choice that the agent makes after its generation."""

    instruction: Prompt
    """How to choose."""
    routes: Routes
    """Label → node, or {to, description}."""
    fallback: Maybe[NodeId] = None
    """A label, or the id of a node: taken where the answer is none of the routes."""

    @model_validator(mode="after")
    def _chooses(self) -> AgentRouting:
        check_choices(self.routes)
        return self


class McpServerSpec(Keys):
    """A server of tools that speaks the Model Context Protocol: a command that is started, or a URL.

    It runs while the node runs. The command is run as it stands and the variables named are sent to the
    URL, so the project file has to allow the server (`allow_mcp`).
    """

    name: Identifier
    """The model calls its tools `<name>_<tool>`."""
    command: Maybe[Plain] = None
    """The program, which speaks over its standard input and output."""
    args: ListOf[Plain] = ()
    """Its arguments."""
    env: dict[str, Plain] = Field(default_factory=dict[str, str])
    """Environment of the program beside PATH, HOME and LANG. No secrets: the file is no place for them."""
    url: Maybe[Plain] = None
    """Address of a server that speaks streamable HTTP."""
    headers_env: dict[str, Plain] = Field(default_factory=dict[str, str])
    """Header → the environment variable that holds its value; it reaches the server and no prompt."""
    allow: Maybe[ListOf[Plain]] = None
    """Names of the server's tools to offer; left out: all."""
    timeout: Maybe[Duration] = None
    """The most time for one call."""
    start_timeout: Maybe[Duration] = None
    """The most time from the start of the server to its list of tools."""
    trust_hints: bool = False
    """Whether the server's word counts that a tool only reads, or may be called twice; else each call is a deed."""

    def server(self) -> McpServer:
        """The server as agents take it."""
        # Imported here: the event loop's library comes with it, and most flows name no server.
        from flowengine.agents.tools.mcp import McpServer

        return McpServer(**{key: getattr(self, key) for key in self.model_fields_set})

    @model_validator(mode="after")
    def _can_be_asked(self) -> McpServerSpec:
        try:
            self.server()
        except DefinitionError as error:
            raise refuse("FE411", str(error)) from error
        return self


def _told_apart(servers: tuple[McpServerSpec, ...] | None) -> tuple[McpServerSpec, ...] | None:
    names = [each.name for each in servers or ()]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise refuse("FE411", f"two MCP servers are named '{name}'; rename one of them", at=(number, "name"))
    return servers


Servers = Annotated[ListOf[McpServerSpec], AfterValidator(_told_apart)]
"""MCP servers, each of another name."""


def _provider_entry(value: Any) -> Any:
    if isinstance(value, str) or (is_map(value) and value):
        return value
    raise refuse(
        "FE401", f"expected a provider such as {{conversation: {{max_items: 5}}}}, found {format_found(value)}"
    )


ProviderEntry = Annotated[
    Any,
    BeforeValidator(_provider_entry),
    UNRENDERED,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": list(OURS)},
                {
                    "type": "object",
                    "properties": {name: {"type": ["object", "null"]} for name in OURS},
                    "minProperties": 1,
                },
            ]
        }
    ),
]
"""A context provider: `{name: {parameter: value}}`, `{type: name, parameter: value}`, or its name."""


class MemorySpec(Keys):
    """Long-term memory: what was said before and is near to the prompt. The project file may set the rest.

    What a run adds is kept once the run has succeeded.
    """

    store: Maybe[Plain] = None
    """The SQLite file that holds it, below the project's root."""
    scope: Maybe[Literal["workspace", "channel", "thread"]] = None
    """The owner of the memory."""
    scope_id: Maybe[Template] = None
    """Which workspace, channel or thread; of a thread `channel:ts`. Left out, all runs share one memory: where many
    people are answered, say whose it is, as in `{{ inputs.customer }}`."""
    limit: Maybe[Annotated[int, Field(ge=1, le=1000)]] = None
    """Exchanges that enter a prompt at most."""
    threshold: Maybe[Score] = None
    """How near they must be to the prompt, 0.0–1.0; where none is, those about as near as the nearest one enter."""
    max_tokens: Maybe[Annotated[int, Field(ge=1)]] = None
    """The most tokens of one exchange; a longer one is shortened."""
    budget: Maybe[Annotated[int, Field(ge=1)]] = None
    """Tokens of all exchanges that enter a prompt; the nearest one enters in any case."""
    neighbours: Maybe[bool] = None
    """Whether what was said right before and right after the nearest exchanges enters too, where it fits."""

    def settings(self, project: Mapping[str, Any]) -> dict[str, Any]:
        """All settings, with those of the project file where the flow says nothing."""
        return {**project, **{name: getattr(self, name) for name in self.model_fields_set}}


class Thinking(Keys):
    """The limits of a model's reasoning."""

    budget_tokens: Annotated[int, Field(ge=1)]
    """Tokens; they count as part of the answer."""


def _as_thinking(value: Any) -> Any:
    return {"budget_tokens": value} if isinstance(value, int) and not isinstance(value, bool) else value


ThinkingTokens = Annotated[
    Thinking,
    BeforeValidator(_as_thinking),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {
                    "type": "object",
                    "properties": {"budget_tokens": {"type": "integer", "minimum": 1}},
                    "required": ["budget_tokens"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""A number of tokens, or `{budget_tokens: …}`."""


def _as_texts(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple):
        raise refuse("FE401", f"expected a text or a list of texts, found {format_found(value)}")
    return cast("list[Any]", value)


Stop = Annotated[
    ListOf[Annotated[Plain, Field(min_length=1)]],
    BeforeValidator(_as_texts),
    Field(min_length=1, max_length=MOST_STOPS),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": MOST_STOPS},
            ]
        }
    ),
]
"""A text, or several."""


def _check_allowed(value: Any) -> Any:
    if not is_map(value):
        raise refuse("FE401", f"expected a map, found {format_found(value)}")
    for name, each in value.items():
        problem = find_vendor_option_problem(name, each)
        if problem is not None:
            raise refuse("FE413", problem.message, hint=problem.hint, at=name)
    return value


VendorOptions = Annotated[
    dict[str, Any],
    BeforeValidator(_check_allowed),
    UNRENDERED,
    WithJsonSchema({"type": "object", "propertyNames": {"enum": sorted(VENDOR_OPTIONS)}, "additionalProperties": True}),
]
"""Parameter of a vendor → its value."""


class ModelSettings(Keys):
    """The model, and the options of its calls."""

    model: Maybe[Plain] = None
    """`gpt-4o-mini`, `provider/model`, `offline`, …"""
    temperature: Maybe[Annotated[float, Field(ge=0, le=2)]] = None
    """0.0–2.0."""
    max_tokens: Maybe[Annotated[int, Field(ge=1)]] = None
    """Length of the answer, at most."""
    max_retries: Maybe[Annotated[int, Field(ge=0, le=100)]] = None
    """Further tries after a transient failure, or after an answer that does not fit its shape."""
    fallbacks: Maybe[ListOf[Plain]] = None
    """Models that are asked, in this order, where the first one fails for good."""
    top_p: Maybe[Annotated[float, Field(ge=0, le=1)]] = None
    """Share of the likeliest tokens that are chosen from. A temperature that is not said is then the vendor's."""
    seed: Maybe[Annotated[int, Field(ge=-(2**63), lt=2**63), WithJsonSchema({"type": "integer"})]] = None
    """A number with which answers are the same again, as far as the provider can."""
    stop: Maybe[Stop] = None
    """A text, or several, that ends the answer and is no part of it."""
    reasoning_effort: Maybe[ReasoningEffort] = None
    """How much the model thinks before it answers. A temperature that is not said is then the vendor's."""
    verbosity: Maybe[Verbosity] = None
    """How long it answers."""
    thinking: Maybe[ThinkingTokens] = None
    """Tokens that the model may think for, as a number or `{budget_tokens: …}`."""
    presence_penalty: Maybe[Annotated[float, Field(ge=-2, le=2)]] = None
    """Against tokens that are there already."""
    frequency_penalty: Maybe[Annotated[float, Field(ge=-2, le=2)]] = None
    """Against tokens that are there often."""
    service_tier: Maybe[ServiceTier] = None
    """The vendor's class of service."""
    parallel_tool_calls: Maybe[bool] = None
    """Whether the model may ask for several tools at once."""
    model_options: Maybe[VendorOptions] = None
    """Further parameters of the vendor, such as `top_k`, by a list of those that are allowed."""
    prompt_cache: Maybe[PromptCaching] = None
    """`auto`: what stays of a prompt is marked for the vendor's cache; `off`: nothing is."""
    locale: Maybe[Literal["en", "ja", "zh"]] = None
    """Language of the prompts' fixed parts."""


class AgentSettings(ModelSettings):
    """Everything that makes an agent, but for what one node asks of it."""

    instructions: Maybe[Prompt] = None
    """The agent's task."""
    system_message: Maybe[Prompt] = None
    """Who the agent is; it comes before the instructions."""
    output: Maybe[OutputShape] = None
    """Shape of a structured output: a JSON Schema, or `module:Class`."""
    tools: Maybe[ListOf[CodePath]] = None
    """Functions that the model may call while it generates; also a `Tool` or a `ToolSet` of a module."""
    mcp_servers: Maybe[Servers] = None
    """Servers whose tools the model may call while it generates."""
    approve: Maybe[ListOf[Annotated[Plain, Field(min_length=1, max_length=200)]]] = None
    """Tools whose calls wait for a person: `refund`, of a server `crm.delete`, or `crm.*` for all that match. The
    person accepts a call, changes its arguments, or refuses it with a word that the model reads."""
    approvers: Maybe[ListOf[Annotated[Plain, Field(min_length=1, max_length=200)]]] = None
    """Who alone may answer for its calls, as at an approval. Left out: all who may answer at all."""
    max_tool_rounds: Maybe[Annotated[int, Field(ge=1, le=1000)]] = None
    """How often it may ask for tools in one generation; after that it answers with what it has."""
    context: Maybe[ListOf[ProviderEntry]] = None
    """Context providers, in this order; their texts stand under `Context:` in the prompt."""
    contexts: Maybe[ListOf[CodePath]] = None
    """Typed contexts: data with tools that work on it, `module:object` or `module:Class`."""
    memory: Maybe[Annotated[MemorySpec, APART]] = None
    """Earlier exchanges that are near to the prompt, from other runs too."""
    skills: Maybe[ListOf[Plain]] = None
    """Folders of skills, below the project's root. Their names are in the prompt; the model loads what it needs."""
    context_budget: Maybe[Annotated[int, Field(ge=1)]] = None
    """Tokens that a prompt may have; left out: what the model's window leaves beside its answer."""
    guardrails: Maybe[Annotated[Guardrails, APART]] = None
    """Checks that may refuse the input or the output."""
    history_size: Maybe[Annotated[int, Field(ge=0, le=1000)]] = None
    """Earlier exchanges of the session, and of the run, that enter the prompt, as with `context: [conversation]`."""
    improve: Maybe[Annotated[Improve, APART]] = None
    """Evaluate the generation and improve it until it passes."""
    evaluate: Maybe[Annotated[Evaluate, APART]] = None
    """Evaluate the generation once."""
    routing: Maybe[Annotated[AgentRouting, APART]] = None
    """Choose where to go after the generation."""

    @model_validator(mode="after")
    def _judges_once(self) -> AgentSettings:
        if self.improve is not None and self.evaluate is not None:
            raise refuse("FE209", "'improve' evaluates already; remove 'evaluate'", at="evaluate")
        return self


class AgentSpec(AgentSettings):
    """An agent's settings, shared by the nodes that name it."""

    description: str = ""
    """A description for readers."""
    timeout: Maybe[Duration] = None
    """The most time for one model call; left out: as long as its longest answer may take."""


AgentRef = Annotated[
    Annotated[Identifier, Tag("<name>")] | Annotated[AgentSpec, APART, Tag("<map>")], Discriminator(_name_or_map)
]
"""An entry of `agents`, or an agent's settings in place."""
