"""Runs another flow as one node: its own inputs, state and agents; nothing comes back but its outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Unpack, runtime_checkable

import anyio.to_thread

from flowengine.core import EMPTY, USER_CODE, Context, FileValue, NodeResult, check_arguments
from flowengine.engine import Ended, StateStore, Unfinished, enter_level
from flowengine.errors import DefinitionError, LimitError, refuse_other_kind
from flowengine.nodes.compiled_flow import CompiledFlow, ContainerNode, outputs_of, partial_outputs_of
from flowengine.nodes.function import explain_received
from flowengine.nodes.node import NodeSettings, Value, work_out
from flowengine.nodes.run_inputs import checked_inputs, may_take_long, refuse_paths, take_files


@runtime_checkable
class HasPlan(Protocol):
    """A flow as users have it."""

    @property
    def plan(self) -> CompiledFlow: ...


class SubflowNode(ContainerNode):
    """Runs a flow inside this one; `arguments` are its inputs. It shares the limits of the run.

    `fixed`: arguments whose value stands in the flow as it is, so that of a file it may be the path.
    Depth is bounded and cycles are refused where flows are loaded.
    """

    kind: ClassVar[str] = "subflow"

    def __init__(
        self,
        plan: CompiledFlow | HasPlan,
        *,
        arguments: Mapping[str, Value] = EMPTY,
        fixed: Collection[str] = (),
        **settings: Unpack[NodeSettings],
    ) -> None:
        refuse_other_kind(plan, CompiledFlow | HasPlan, "a SubflowNode runs a Flow, or its plan", DefinitionError)
        check_arguments(SubflowNode.__init__, locals())
        self.plan: CompiledFlow = plan if isinstance(plan, CompiledFlow) else plan.plan
        super().__init__(self.plan.definitions, **settings)
        self.arguments = arguments
        self.fixed = frozenset(fixed)

    async def run(self, context: Context, /) -> Ended:
        arguments: Mapping[str, Any] = work_out(self.arguments, context)
        explain_received(context, arguments)
        fields = self.plan.inputs
        if fields and any(
            each.type == "file" and not isinstance(arguments.get(name), FileValue) for name, each in fields.items()
        ):
            refuse_paths(fields, arguments, self.fixed)
            scope = context.runtime.scope
            arguments = await take_files(fields, arguments, None if scope is None else scope.files)
        if may_take_long(fields, arguments):
            inputs = await anyio.to_thread.run_sync(checked_inputs, fields, arguments)
        else:
            inputs = checked_inputs(fields, arguments)
        level = enter_level(context, self.body, ".", inputs=inputs, store=StateStore(self.plan.rules))
        try:
            await level.run()
        except Unfinished as end:
            return end.answer
        except LimitError as error:
            if error.on_limit != "partial" or error.part != context.current_node:
                raise
            return NodeResult(partial_outputs_of(self.plan, level.walk))
        with USER_CODE:
            return NodeResult(outputs_of(self.plan, level.walk))

    def identity(self) -> Sequence[Any]:
        plan = self.plan
        return (plan.name, self.arguments, plan.inputs, plan.state, plan.outputs)
