"""Makes what people say of a run, and what it comes from: for the head of its page, live and in one file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.engine import patches_in
from flowengine.journal import RunNote, RunNotes, digest_of
from visualize.viewer.forms import Acting, form
from visualize.viewer.html import Child, Markup, bundle_url, element, join, notes_url, run_url, session_url
from visualize.viewer.parts import clock, fold
from visualize.viewer.reading import Reading


class RunAbout(NamedTuple):
    """Facts about a run beside its record."""

    notes: RunNotes = RunNotes()
    led_to: Sequence[str] = ()
    """Runs that were forked from it, or take its results; the newest first."""
    beside: Collection[str] = ()
    """Runs that are in the same file."""


_MAX_LINKS = 8


def list_origins(run: Reading, about: RunAbout, *, links: bool) -> list[tuple[str, Child]]:
    """The facts of a run's family; `links`: there is a server that shows the others."""
    digest = digest_of([] if run.progress.started is None else [run.progress.started])

    def name(run_id: str, node: str | None = None) -> Child:
        if links:
            return element("a", run_id, href=run_url(run_id, node))
        return (
            element("a", run_id, href=bundle_url(run_id, node)) if run_id in about.beside else element("code", run_id)
        )

    def names(run_ids: Sequence[str]) -> Child:
        links = [[", " if at else "", name(each)] for at, each in enumerate(run_ids[:_MAX_LINKS])]
        return [links, f" and {len(run_ids) - _MAX_LINKS} more" if len(run_ids) > _MAX_LINKS else None]

    forked = (
        [name(digest.forked, digest.forked_at), " at ", element("code", digest.forked_at)] if digest.forked else None
    )
    started = run.progress.started
    patches: Mapping[str, Mapping[str, Any]] = {} if started is None else patches_in(started.settings)
    reuses = [each for each in digest.reuses if each != digest.forked]
    return [
        ("Forked from", forked),
        *(
            ("Set for " + node, ", ".join(f"{key} = {value}" for key, value in each.items()))
            for node, each in patches.items()
        ),
        ("Takes results of", names(reuses) if reuses else None),
        ("Led to", names(about.led_to) if about.led_to else None),
        ("Session", _name_session(digest.session, links=links) if digest.session else None),
    ]


def _name_session(session: str, *, links: bool) -> Child:
    return element("a", session, href=session_url(session)) if links else session


def chips(notes: RunNotes) -> Markup:
    """Marks, and the mean of each score."""
    marks = [element("span", each.name, class_="chip", title=f"by {each.by or 'unknown'}") for each in notes.marks]
    names = sorted({each.name for each in notes.scores})
    scores = [element("span", f"{name} {notes.mean(name):g}", class_="chip score") for name in names]
    return join([marks, scores])


def notes_section(run: Reading, notes: RunNotes, acting: Acting | None) -> Markup | None:
    """Makes the section with all notes, and the forms to add notes if allowed."""
    if not any(notes) and acting is None:
        return None
    comments = [_show_note(run, each, acting) for each in notes.notes]
    marks = [
        element("li", "marked ", element("span", each.name, class_="chip"), _by(each.by, each.at),
                _take_back(run, acting, "unmark", each.name))
        for each in notes.marks
    ]  # fmt: skip
    scores = [
        element("li", element("span", f"{each.name} {each.value:g}", class_="chip score"), _by(each.by, each.at))
        for each in notes.scores
    ]
    rows = [*marks, *scores, *comments]
    count = len(notes.notes) + len(notes.marks) + len(notes.scores)
    title: Child = ["Notes", f": {count}" if count else None, " ", chips(notes)]
    return fold(title, element("ul", rows, class_="notes") if rows else None, _make_forms(run, acting))


def _show_note(run: Reading, each: RunNote, acting: Acting | None) -> Markup:
    back = _take_back(run, acting, "remove", each.id)
    return element("li", element("p", each.text, class_="said"), _by(each.by, each.at), back)


def _by(by: str, at: float) -> Markup:
    return element("small", f" {by or 'unknown'}, ", clock(at))


def _take_back(run: Reading, acting: Acting | None, field: str, value: str) -> Markup | None:
    if acting is None:
        return None
    button = element("button", "✕", name=field, value=value, title="Take it back", aria_label="Take it back")
    return form(notes_url(run.run_id), acting, button, class_="inline")


def _make_forms(run: Reading, acting: Acting | None) -> Markup | None:
    if acting is None:
        return None
    return form(
        notes_url(run.run_id),
        acting,
        element("textarea", name="text", rows=2, maxlength=10_000, placeholder="What is to be said of this run",
                aria_label="Note"),
        element("label", "Mark ", element("input", name="mark", maxlength=40, placeholder="golden", size=10)),
        element("label", "Score ", element("input", name="score", maxlength=80, placeholder="quality=0.8", size=12)),
        element("button", "Keep"),
        class_="say",
    )  # fmt: skip
