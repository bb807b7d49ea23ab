"""The rows of memory: what is found again of a generated set, in three languages, and how fast among many items.

The sets are made by `recall_set`: what is known of people, and of projects, whose templates were written when the
ranking was done and have tuned nothing. Facts carry their subject; what merely happened carries none. "Without
subjects" is the same set where no fact closes another: then the newest version can only be told by its words and its
time, which has no target. Nor have questions in other words altogether (`synonyms`) and those that nobody can answer.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.agents.memory.items.ranking import MemoryItem, Recalled
from flowengine.agents.memory.items.sqlite import SQLiteMemoryItems
from flowengine.agents.memory.scopes.memories import MemoryScope
from tests.bench.measure import Row
from tests.bench.recall_set import NOW, Question, RecallSet, Said, filler, recall_set

__all__ = ["ROWS", "Outcome", "outcome"]

LIMIT = 5
THRESHOLD = 0.4
"""The one that `long_term_memory` has where nothing else is said."""


class Outcome(NamedTuple):
    """What came out for one set; shares from 0.0 to 1.0."""

    recall: dict[str, float]
    """Kind of question → share of what answers it that is among the first five."""
    newest: float
    """Of the questions about facts that changed: the newest version comes before all others."""
    leaks: int
    """Items of other scopes that were found."""
    silent: dict[str, float]
    """Kind of question that cannot be answered → share for which nothing is found above the threshold."""
    heard: float
    """Of the questions that can be answered: something is found above the threshold."""

    @property
    def overall(self) -> float:
        """Over all questions that share a word with what answers them."""
        return self.recall["all"]


def item(said: Said, *, keyed: bool = True) -> MemoryItem:
    subject = said.subject if keyed else None
    return MemoryItem(MemoryScope.CHANNEL, said.scope, said.text, said.at, subject, id=said.id)


async def outcome(made: RecallSet, items: SQLiteMemoryItems, *, keyed: bool = True) -> Outcome:
    """Everything that was said is kept, then everything is asked."""
    await items.add([item(each, keyed=keyed) for each in made.said])
    scopes = {each.id: each.scope for each in made.said}
    recall: defaultdict[str, list[float]] = defaultdict(list)
    silent: defaultdict[str, list[float]] = defaultdict(list)
    newest: list[bool] = []
    heard: list[bool] = []
    leaks = 0
    for question in made.questions:
        found = await items.search(MemoryScope.CHANNEL, question.scope, question.text, limit=20, now=NOW)
        leaks += sum(scopes[each.item.id] != question.scope for each in found)
        above = bool(found) and found[0].score >= THRESHOLD
        if not question.expected:
            silent[question.kind].append(not above)
            continue
        share = len(question.expected & {each.item.id for each in found[:LIMIT]}) / len(question.expected)
        recall[question.kind].append(share)
        if question.kind != "synonyms":
            recall["all"].append(share)
            heard.append(above)
        if question.kind == "updates":
            newest.append(_is_newest_first(question, found))
    return Outcome(
        {kind: statistics.mean(shares) for kind, shares in recall.items()},
        statistics.mean(newest),
        leaks,
        {kind: statistics.mean(shares) for kind, shares in silent.items()},
        statistics.mean(heard),
    )


def _is_newest_first(question: Question, found: Sequence[Recalled]) -> bool:
    versions = [each.item.id for each in found if each.item.id in question.expected | question.stale]
    return bool(versions) and versions[0] in question.expected


@cache
def _outcome(name: str, *, keyed: bool = True) -> Outcome:
    """Of one set, told of where it is made."""
    made = recall_set(name, people=7 if name.endswith("projects") else 12)
    database = MemoryDatabase(":memory:")
    found = asyncio.run(outcome(made, SQLiteMemoryItems(database), keyed=keyed))
    database.close()
    kinds = ", ".join(f"{kind} {share:.3f}" for kind, share in found.recall.items() if kind != "all")
    silent = ", ".join(f"{kind.partition('_')[2]} {share:.2f}" for kind, share in found.silent.items())
    print(f"  {name}{'' if keyed else ', without subjects'}: recall {found.overall:.3f} ({kinds});")
    print(f"    newest first {found.newest:.3f}; silent about {silent}; heard about {found.heard:.3f} of the others")
    return found


def _missed(language: str, target: float) -> Row:
    """The worse of the two sets."""
    shares = [100 * (1 - _outcome(name).overall) for name in (language, f"{language}_projects")]
    return Row(f"memory {language}: not in the first five", max(shares), 100 - target, "%", (min(shares), max(shares)))


def _missed_in_other_words(language: str) -> Row:
    """Of the questions that share no word with what answers them; a search by words has no target there."""
    shares = [100 * (1 - _outcome(name).recall["synonyms"]) for name in (language, f"{language}_projects")]
    name = f"memory {language}: the same, asked in other words"
    return Row(name, max(shares), math.inf, "%", (min(shares), max(shares)))


def memory_recall_en() -> Row:
    return _missed("en", 95)


def memory_recall_ja() -> Row:
    return _missed("ja", 90)


def memory_recall_zh() -> Row:
    return _missed("zh", 90)


def memory_other_words_en() -> Row:
    return _missed_in_other_words("en")


def memory_other_words_ja() -> Row:
    return _missed_in_other_words("ja")


def memory_other_words_zh() -> Row:
    return _missed_in_other_words("zh")


SETS = ("en", "ja", "zh", "en_projects", "ja_projects", "zh_projects")


def memory_newest() -> Row:
    return Row("memory: newest fact not first", max(100 * (1 - _outcome(name).newest) for name in SETS), 0, "%")


def memory_leaks() -> Row:
    leaks = sum(_outcome(name).leaks + _outcome(name, keyed=False).leaks for name in SETS)
    return Row("memory: items of another scope", leaks, 0, "")


def memory_speed_en() -> Row:
    """One scope with 100,000 items, asked what is asked of a small one."""
    return asyncio.run(_speed("en", 100_000))


def memory_speed_ja() -> Row:
    return asyncio.run(_speed("ja", 100_000))


def memory_speed_zh() -> Row:
    return asyncio.run(_speed("zh", 100_000))


async def _speed(language: str, count: int) -> Row:
    made = recall_set(language, scopes=1)
    with tempfile.TemporaryDirectory() as folder:
        database = MemoryDatabase(Path(folder, "memory.db"))
        items = SQLiteMemoryItems(database)
        more = [each._replace(scope="s0") for each in filler(language, count - len(made.said))]
        await items.add([item(each) for each in (*more, *made.said)])
        times: list[float] = []
        shares: list[float] = []
        found: Sequence[Recalled] = ()
        for question in made.questions:
            if question.expected and question.kind != "synonyms":
                begun = perf_counter()
                found = await items.search(MemoryScope.CHANNEL, "s0", question.text, now=NOW)
                times.append(1000 * (perf_counter() - begun))
                shares.append(len(question.expected & {each.item.id for each in found}) / len(question.expected))
        database.close()
    times.sort()
    print(f"  {language}, among {count:,} items: recall {statistics.mean(shares):.3f}")
    p95 = times[int(0.95 * len(times))]
    return Row(f"memory {language}: search among {count:,}, p95", p95, 50, "ms", (times[0], times[-1]))


ROWS = (
    memory_recall_en,
    memory_recall_ja,
    memory_recall_zh,
    memory_other_words_en,
    memory_other_words_ja,
    memory_other_words_zh,
    memory_newest,
    memory_leaks,
    memory_speed_en,
    memory_speed_ja,
    memory_speed_zh,
)
