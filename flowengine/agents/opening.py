"""From an agent to one turn of it: the input admitted, servers started, sources opened, the prompt made.

It knows the order of these steps. What happens in a turn is `turn`'s matter, what an agent is `agent`'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.agents.caller import Caller, naming, open_caller
from flowengine.agents.guardrails import check_guardrails
from flowengine.agents.models import NamedModels
from flowengine.agents.prompt import chat_of
from flowengine.agents.settings import CallSettings
from flowengine.agents.surroundings import Surroundings
from flowengine.agents.tooling import Admit
from flowengine.agents.turn import Turn
from flowengine.context import EMPTY
from flowengine.llm.dotenv import file_secrets
from flowengine.records import Gateway
from flowengine.run_scope import RunScope

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent
    from flowengine.agents.material import Material
    from flowengine.agents.sources import Sources

__all__ = ["Opening", "admitted", "open_turn", "turn_of"]


class Opening(NamedTuple):
    """What one run of an agent is asked for with."""

    input_text: str
    earlier: Sequence[Any]
    """The chat that it goes on from."""
    gateway: Gateway
    options: Mapping[str, Any] = EMPTY
    """For the generation calls of this run."""
    scope: RunScope | None = None
    admit: Admit | None = None
    kept: Mapping[str, Any] | None = None
    """What the ancestors of the agent's node keep; None for an agent that stands alone."""
    recorded: Sequence[Any] = ()
    """What an interrupted attempt of the agent's node has told."""


@asynccontextmanager
async def open_turn(agent: Agent, opening: Opening) -> AsyncGenerator[Turn]:
    """All that this run needs; servers of its own end with the block."""
    async with AsyncExitStack() as stack:
        with naming(agent.name):
            settings = await admitted(agent, opening)
            around = settings.surroundings
            material = None if agent.sources is None else await _material(agent, agent.sources, opening, around)
            environ = around.environ
            tools = agent.tooling.open(agent.words, environ, scope=opening.scope, admit=opening.admit, bringer=material)
            loop = await stack.enter_async_context(tools)
            caller = await open_caller(settings, opening.gateway, agent.words, loop)
            turn = turn_of(agent, opening, caller)
            if material is not None:
                turn = turn._replace(messages=await _prompt(agent, opening, material, caller), material=material)
        yield turn


async def admitted(agent: Agent, opening: Opening) -> CallSettings:
    """The settings of this run, once the input has passed its guardrails."""
    settings = agent.settings_for(opening.options)
    if agent.generation.input_guardrails:
        await check_guardrails(agent.generation.input_guardrails, "input", opening.input_text)
    return settings


def turn_of(agent: Agent, opening: Opening, caller: Caller) -> Turn:
    """The turn of an agent that draws on nothing but its own texts."""
    return Turn(
        input_text=opening.input_text,
        messages=agent.messages(opening.input_text, opening.earlier),
        caller=caller,
        generation=agent.generation,
        evaluator=agent.evaluator,
        improvement=agent.improvement,
        router=agent.router,
        stand_in=opening.options.get("model"),
    )


async def _material(agent: Agent, sources: Sources, opening: Opening, around: Surroundings) -> Material:
    # Imported here, with all that brings texts: most agents draw on nothing but their own.
    from flowengine.agents.material import open_material

    return await open_material(
        sources,
        agent.name,
        agent.words,
        opening.gateway,
        NamedModels(around),
        opening.kept,
        opening.scope,
        opening.recorded,
        file_secrets(around.environ),
    )


async def _prompt(agent: Agent, opening: Opening, material: Material, caller: Caller) -> tuple[Any, ...]:
    from flowengine.agents.parts import Question

    own = agent.generation
    question = Question(
        opening.input_text, own.system_message, own.instructions, own.recent(), chat_of(opening.earlier)
    )
    return await material.prompt(question, caller)
