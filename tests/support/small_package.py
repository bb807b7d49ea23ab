"""A package that brings a kind of node, a container, a model, a provider and a store, and a flow that uses them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.packages import installed_package

__all__ = ["FLOW", "small_package"]

PACKAGE: Final = '''
    from typing import ClassVar, Literal

    from flowengine import ContextProvider
    from flowengine import NodeResult
    from flowengine.flowfile.kinds import (
        BodyKeys, NodeKind, NodeTraits, Routes, Template, WorkKeys, boolean, routes_to, template
    )
    from flowengine.journal.memory import MemoryStore
    from flowengine.models.scripted import ScriptedModel
    from flowengine import FlowNode
    from flowengine.nodes.loop import LoopNode

    class Tides(ContextProvider):
        def get_context(self, query, previous_context=None, **kwargs):
            return "High water at noon"

    class Shelf(MemoryStore):
        def __init__(self, url, durability):
            super().__init__()

    def parrot(name, settings, environ):
        return ScriptedModel(
            lambda request: f"{name} at {settings.base_url}: {'High water' in str(request.messages)}",
            name=name,
            provider="parrot",
        )

    class ShoutNodeSpec(WorkKeys):
        """Says a text loudly."""

        type: Literal["shout"]
        """Kind of the node."""
        text: Template
        """What is shouted."""
        routes: Routes = {}
        """Where `loud` leads."""

        def own_routes(self):
            return routes_to(self.routes)

        def output_shape(self):
            return {"type": "object", "properties": {"said": {"type": "string"}}}

    class ShoutNode(FlowNode):
        kind: ClassVar[str] = "shout"

        def __init__(self, text, targets, **settings):
            super().__init__(**settings)
            self.text = text
            self.targets = targets

        @property
        def routes(self):
            return self.targets

        async def run(self, context, /):
            return NodeResult({"said": self.text(context).upper()})

    def make(spec, settings, compiler):
        return ShoutNode(template(spec.text), {name: each.to for name, each in spec.routes.items()}, **settings)

    shout = NodeKind(ShoutNodeSpec, make, NodeTraits(shape="octagon"))

    class TwiceNodeSpec(BodyKeys):
        """Runs its body a second time."""

        type: Literal["twice"]
        """Kind of the node."""

        def names_inside(self):
            return ("round",)

        def most_rounds(self):
            return 2

        def output_shape(self):
            return {"type": "object", "properties": {"iterations": {"type": "number"}, "exhausted": {}}}

    class TwiceNode(LoopNode):
        kind: ClassVar[str] = "twice"

    def make_twice(spec, settings, compiler):
        return TwiceNode(compiler.body(), max_iterations=2, **settings)

    twice = NodeKind(TwiceNodeSpec, make_twice, NodeTraits(container=True, shape="folder"))
'''

FLOW: Final = """
flowengine: v1
name: talk
inputs: {word: {type: string, default: ahoy}}
nodes:
  hello: {model: parrot/grey, prompt: Say hello, context: [tides]}
  call:
    type: shout
    needs: [hello]
    text: "{{ inputs.word }}"
outputs: {said: "{{ nodes.hello.output }} / {{ nodes.call.output.said }}"}
"""

_BROUGHT: Final = {
    "flowengine.models": {"parrot": "a_package:parrot"},
    "flowengine.context_providers": {"tides": "a_package:Tides"},
    "flowengine.stores": {"shelf": "a_package:Shelf"},
    "flowengine.nodes": {"shout": "a_package:shout", "twice": "a_package:twice", "agent": "a_package:make"},
}


@contextmanager
def small_package(folder: Path, site: Path) -> Generator[None]:
    """The flow `talk.yaml` with its project file in `folder`, and the package installed in `site`."""
    (folder / "talk.yaml").write_text(FLOW)
    (folder / "flowengine.toml").write_text('[providers.parrot]\nbase_url = "http://cage"\n')
    with installed_package(site, "a_package", PACKAGE, _BROUGHT):
        yield
