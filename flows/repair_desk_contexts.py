"""The typed contexts of `repair_desk.yaml`: a ticket that its tools change, and a manual that is searched."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from flowengine import RetrievalContext, ToolCallResult, ToolSet, TypedContext
from flowengine.agents.retrieval.retriever import Document

__all__ = ["TicketContext", "find_guarantee", "manual"]

_GUARANTEES: Final = {"K2-1007": "until 2027-03", "K2-0311": "has run out"}
_PAGES: Final = (
    Document("p4 descaling", "A kettle that hums and switches off early has scale: boil vinegar and water, 1 to 3."),
    Document("p6 lid", "The kettle switches off when the lid is open. Press it down until it clicks."),
    Document("p9 lamp", "A lamp that stays dark means that no power arrives: try another socket."),
)


class Ticket(BaseModel):
    """What is known of one repair."""

    appliance: str = ""
    fault: str = ""
    guarantee: str = "unknown"
    steps: list[str] = []


class TicketContext(TypedContext[Ticket]):
    """Each run has its own; a node sees what those before it wrote."""

    id = "ticket"
    description = "The ticket of this repair"
    data_schema = Ticket

    def tool_set(self) -> ToolSet:
        return ToolSet("ticket", "Keep the ticket", [self.describe_fault, self.add_step])

    def describe_fault(self, appliance: str, fault: str) -> str:
        """Write down which appliance it is, and what is wrong with it."""
        self.update_data(appliance=appliance, fault=fault)
        return "written down"

    def add_step(self, step: str) -> str:
        """Write down a step that the customer is to try."""
        with self.changing() as data:
            data.steps.append(step)
        return "written down"

    def on_tool_call(self, result: ToolCallResult) -> None:
        """Whatever tool was called: what the guarantee's says is on the ticket too."""
        if result.name == "find_guarantee" and not result.is_error:
            self.update_data(guarantee=result.result)


class Manual(BaseModel):
    """What the manual is of."""

    appliance: str = "kettle K2"
    edition: str = "2026"


class ManualContext(RetrievalContext[Manual]):
    """Says which manual it is, and adds the pages that are found for the prompt."""

    id = "manual"
    description = "The manual of the kettle"
    data_schema = Manual

    def render_prompt(self) -> str:
        data = self.get_data()
        return f"Manual of the {data.appliance}, edition {data.edition}."


manual: Final = ManualContext()
manual.register_rag("pages", documents=_PAGES)


def find_guarantee(number: str) -> str:
    """Look up the guarantee of an appliance by its number, as in K2-1007."""
    return _GUARANTEES.get(number, "unknown")
