"""Serves the pages of signed links, by which people answer what runs ask them (`flowengine.server.answer_links`).

They need no key: a link says itself who answers what.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from flowengine.engine.events import Event
from flowengine.server.answer_links import AnswerDesk, make_answer_routes
from flowengine.server.run_commands import ApprovalDecision
from flowengine.server.safety import ANSWERS
from flowengine.serving.serving_parts import MountedRoutes, ServingParts

__all__ = ["make_answer_link_routes"]


def make_answer_link_routes(parts: ServingParts) -> MountedRoutes:
    service = parts.service

    async def events(run_id: str) -> Sequence[Event]:
        return (await service.record(run_id)).events

    async def give(run_id: str, question: str, given: ApprovalDecision, asked: float) -> bool:
        choice, comment, form, by = given
        await service.answer(run_id, question, choice, form, by, comment=comment, asked=asked)
        return True

    desk = AnswerDesk(parts.environ, events, give)

    def desk_of(request: Request) -> AnswerDesk:
        return desk

    return MountedRoutes(make_answer_routes(desk_of), (ANSWERS,))
