"""Keeps of all that was gathered the sections that are about the query, in the order in which they were.

It knows sections and terms. No model is asked, and nothing is shortened.

1. A section holds a share of what the query is about; one that holds less than the threshold is left out.
2. Of those that say the same the first one stays.
3. Of the rest so many stay, those with the largest shares; of equal ones the later.
4. What stays keeps its order. Fragments of one group are one section, and so is a quotation of code.
5. Where the query has no terms there is nothing to judge by, and only repeated sections are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from flowengine.agents.context.provider import ContextProvider, ParameterError, join_fragments
from flowengine.agents.context.text_cutting import of_pieces, pieces_of
from flowengine.agents.retrieval import Holding, asked_terms, subject_terms
from flowengine.core import Fragment, check_arguments


class _Part(NamedTuple):
    """Part of a section: a fragment, or a piece of one."""

    fragment: int
    """Its number."""
    place: int
    """The piece's within the fragment."""
    text: str


class _Section(NamedTuple):
    """A section, which is kept or dropped as a whole."""

    parts: tuple[_Part, ...]
    is_pinned: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(each.text for each in self.parts)


class ContextFilterProvider(ContextProvider):
    """Keeps the sections that are about the query, in their order.

    >>> text = "Invoices are paid in 30 days.\\n\\nThe office has a garden.\\n\\nLate invoices cost interest."
    >>> print(ContextFilterProvider().get_context("When are invoices paid?", text))
    Invoices are paid in 30 days.
    <BLANKLINE>
    Late invoices cost interest.
    """

    provider_name: ClassVar[str] = "filter"
    transforms: ClassVar[bool] = True
    config_description: ClassVar[str] = (
        "Of all that was gathered before, the sections that are about the query, in their order"
    )
    config_parameters: ClassVar[Mapping[str, str]] = {
        "relevance_threshold": "The share of the query's terms that a section must hold, 0.0–1.0",
        "max_sections": "Sections that stay at most",
    }
    config_example: ClassVar[str] = "- filter: {relevance_threshold: 0.3, max_sections: 5}"

    def __init__(self, relevance_threshold: float = 0.3, max_sections: int = 5) -> None:
        check_arguments(ContextFilterProvider.__init__, locals(), ParameterError)
        if not 0 <= relevance_threshold <= 1:
            near = f"; did you mean {relevance_threshold / 100:g}?" if 1 < relevance_threshold <= 100 else ""
            raise ParameterError(
                f"relevance_threshold must be between 0.0 and 1.0, not {relevance_threshold!r}{near}",
                "relevance_threshold",
            )
        if max_sections < 1:
            raise ParameterError(f"max_sections must be at least 1, not {max_sections}", "max_sections")
        self.relevance_threshold = relevance_threshold
        self.max_sections = max_sections

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        before = [Fragment(previous_context, "previous_context")] if previous_context else []
        return join_fragments(self.fragments(query, before))

    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        """The fragments that stay, or the parts of them that do. What is pinned stays, and counts for nothing."""
        sections = self._choose_sections(query, _drop_repeated(_split_sections(previous)))
        texts_by_fragment: dict[int, list[str]] = {}
        for number, _, text in sorted(part for section in sections for part in section.parts):
            texts_by_fragment.setdefault(number, []).append(text)
        return [of_pieces(previous[number], texts) for number, texts in texts_by_fragment.items()]

    def fresh(self) -> ContextFilterProvider:
        return self  # It remembers nothing.

    def _choose_sections(self, query: str, sections: Sequence[_Section]) -> list[_Section]:
        pinned, loose = [each for each in sections if each.is_pinned], [each for each in sections if not each.is_pinned]
        subject, terms = subject_terms(query), asked_terms(query)
        if not subject:
            return [*pinned, *loose]
        holdings = [(each, Holding(each.text)) for each in reversed(loose)]
        ranked = [
            (holding.share(subject), holding.share(terms), each)
            for each, holding in holdings
            if holding.share(subject) >= self.relevance_threshold
        ]
        best = sorted(ranked, key=lambda each: each[:2], reverse=True)[: self.max_sections]
        return [*pinned, *(section for _, _, section in best)]


def _split_sections(fragments: Sequence[Fragment]) -> list[_Section]:
    """The sections of all fragments; those that are pinned first, so that others repeat them and not they others."""
    groups: dict[str, list[_Part]] = {}
    sections: list[_Section] = []
    for number, fragment in enumerate(fragments):
        whole = _Part(number, 0, fragment.text)
        if fragment.pinned:
            sections.append(_Section((whole,), is_pinned=True))
        elif fragment.group:
            groups.setdefault(fragment.group, []).append(whole)
        else:
            sections += [_Section((_Part(number, place, text),)) for place, text in enumerate(pieces_of(fragment))]
    sections += [_Section(tuple(parts)) for parts in groups.values()]
    return sorted(sections, key=lambda each: (not each.is_pinned, each.parts))


def _drop_repeated(sections: Sequence[_Section]) -> list[_Section]:
    """Without those that repeat an earlier one; spaces and case make no difference."""
    first: dict[str, _Section] = {}
    for each in sections:
        first.setdefault(" ".join(each.text.split()).casefold(), each)
    staying = set(map(id, first.values()))
    return [each for each in sections if each.is_pinned or id(each) in staying]
