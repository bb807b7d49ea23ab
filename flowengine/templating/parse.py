"""Templates as the checks see them: parsed, never compiled and never evaluated.

A *template* is text with `{{ … }}` and `{% … %}` in it; an *expression* is what stands between the braces
(`if`, `when`, `until`, `over`, `best_by`). Parsing finds every error that needs no values, and every name
that is read from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jinja2 import nodes

from flowengine.templating.grammar import Source, expression_tree, has_tags, template_tree
from flowengine.templating.references import Reference, collect
from flowengine.templating.rules import check_tree

__all__ = ["Parsed", "Reference", "lone_expression", "parse_expression", "parse_template"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A template or an expression that is known to be well formed.

    >>> parsed = parse_template("Rewrite {{ nodes.plan.output.text | upper }}")
    >>> parsed.references[0].path
    ('nodes', 'plan', 'output', 'text')
    """

    references: tuple[Reference, ...]
    """Every read of an outer name, in the order of the text."""
    is_lone: bool
    """A template that is nothing but one `{{ x }}`: its value keeps its type. True for expressions."""
    is_static: bool
    """A template without any expression or statement."""
    tree: nodes.Template | nodes.Expr = field(repr=False, compare=False)
    """Jinja's syntax tree, for the compiler; nobody may change it."""


def parse_template(source: str) -> Parsed:
    """Parse text with placeholders; raises `TemplateSyntaxError`."""
    text = Source(source)
    if not has_tags(source):
        return Parsed((), False, True, _static_tree(text.text))
    tree = template_tree(text)
    check_tree(text, tree)
    return Parsed(collect(text, tree), lone_expression(tree) is not None, _is_static(tree), tree)


def parse_expression(source: str) -> Parsed:
    """Parse a bare expression; raises `TemplateSyntaxError`.

    >>> [each.path for each in parse_expression("shared_state.counter < inputs['limit']").references]
    [('shared_state', 'counter'), ('inputs', 'limit')]
    """
    text = Source(source)
    tree = expression_tree(text)
    check_tree(text, tree)
    return Parsed(collect(text, tree), True, False, tree)


def lone_expression(tree: nodes.Node) -> nodes.Expr | None:
    """The expression of a template that is nothing but `{{ x }}`."""
    if isinstance(tree, nodes.Expr):
        return tree
    body = tree.body if isinstance(tree, nodes.Template) else []
    if len(body) == 1 and isinstance(output := body[0], nodes.Output) and len(output.nodes) == 1:
        expression = output.nodes[0]
        return None if isinstance(expression, nodes.TemplateData) else expression
    return None


def _is_static(tree: nodes.Template) -> bool:
    """True for text and comments: what is left has no value in it."""
    return all(
        isinstance(each, nodes.Output) and all(isinstance(part, nodes.TemplateData) for part in each.nodes)
        for each in tree.body
    )


def _static_tree(text: str) -> nodes.Template:
    """One newline at the end is dropped, as Jinja does for every template."""
    data = text.removesuffix("\n")
    return nodes.Template([nodes.Output([nodes.TemplateData(data)])] if data else [])
