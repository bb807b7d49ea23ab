"""The rows of skills: tokens saved, the right skill chosen, the list of many skills, and the sandbox.

The library is 175 skills (`skills_library.txt`) with bodies that are made up, of sizes as they are found: half of them
below 2,000 tokens, the largest of 18,000. There are no weights of a model here, so the one who chooses is the lexical
stand-in of `flowengine skills measure`; that command takes a real model as well.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from flowengine.agents.skills.disclosure import skill_access
from flowengine.agents.skills.discovery import SkillIndex
from flowengine.agents.skills.measure import (
    Choices,
    Measured,
    Task,
    add_up,
    choose_by_words,
    measure_choices,
    measure_skill,
)
from flowengine.agents.skills.sandbox.sandbox import Sandbox
from flowengine.agents.skills.skill_store import SkillStore
from tests.bench.escapes import ESCAPES, attempt, world
from tests.bench.measure import Row

__all__ = ["ROWS", "Entry", "choices", "draws", "entries", "library", "list_tokens", "misses"]

FILE = Path(__file__).with_name("skills_library.txt")
MEDIAN, LARGEST, SPREAD = 2_000, 18_000, 0.9
TOKENS_A_WORD = 1.3
COMMON = """
the a to of and in for with on is are be this that it as by from when each first then next before after use make take
keep give ask check read write open close list name file step result value line part case note example rule order time
user team work data text page item change start end good clear short long new old right full
"""


class Entry(NamedTuple):
    """One line of the library."""

    name: str
    description: str
    request: str


def entries() -> list[Entry]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [Entry(*each.split(" | ")) for each in lines if not each.startswith("#")]


def library(folder: Path, seed: int = 0) -> list[Path]:
    """The skills on disk; the folder of each."""
    drawn = random.Random(seed)
    made: list[Path] = []
    for number, entry in enumerate(entries()):
        size = LARGEST if number == 0 else min(LARGEST, drawn.lognormvariate(math.log(MEDIAN), SPREAD))
        place = folder / entry.name
        place.joinpath("references").mkdir(parents=True)
        place.joinpath("references", "notes.md").write_text("More on it.\n")
        header = f"---\nname: {entry.name}\ndescription: {entry.description!r}\n---\n"
        place.joinpath("SKILL.md").write_text(header + _body(entry, int(size / TOKENS_A_WORD), drawn), encoding="utf-8")
        made.append(place)
    drawn.shuffle(made)
    return made


def _body(entry: Entry, size: int, drawn: random.Random) -> str:
    """Sections of a few hundred words, some of them those of the description."""
    own, common = entry.description.split(), COMMON.split()
    parts, written = [f"# {entry.name}\n\n"], 0
    while written < size:
        words = min(drawn.randint(150, 900), max(size - written, 40))
        text = " ".join(drawn.choice(own) if drawn.random() < 0.1 else drawn.choice(common) for _ in range(words))
        parts.append(f"## {' '.join(drawn.choices(own, k=3))}\n\n{text}\n\n")
        written += words
    return "".join(parts)


async def draws(skills: Sequence[Path], count: int, seed: int = 1) -> list[Measured]:
    """Ten skills at random, one of them in use, so many times."""
    drawn = random.Random(seed)
    requests = {each.name: each.request for each in entries()}
    made: list[Measured] = []
    for _ in range(count):
        store = SkillStore(drawn.sample(list(skills), 10))
        active = drawn.choice(store.skills())
        made.append(await measure_skill(store, active, requests[active.name]))
    return made


async def choices(skills: Sequence[Path], count: int, seed: int = 1) -> Choices:
    """Ten skills at random, and a request for one of them, so many times."""
    drawn = random.Random(seed)
    requests = {each.name: each.request for each in entries()}
    made = Choices(0, 0, 0)
    for _ in range(count):
        store = SkillStore(drawn.sample(list(skills), 10))
        name = drawn.choice(store.skills()).name
        found = await measure_choices(store, [Task(requests[name], name)], choose_by_words())
        made = Choices(*(a + b for a, b in zip(made, found, strict=True)))
    return made


async def list_tokens(skills: Sequence[Path], step: int = 1) -> list[int]:
    """Tokens of the list of all skills, for each request (or each so many)."""
    store = SkillStore(list(skills))
    return [(await skill_access(store).fragments(each.request))[0].tokens or 0 for each in entries()[::step]]


async def misses(skills: Sequence[Path]) -> list[str]:
    """Requests for which the right skill is not among the first five found."""
    store, index = SkillStore(list(skills)), SkillIndex()
    found = [(each, await index.rank_skills(store.skills(), each.request, 5)) for each in entries()]
    return [each.request for each, best in found if each.name not in [skill.name for skill in best]]


@contextmanager
def temporary() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# --- the rows ---------------------------------------------------------------------------------------


async def skills_median() -> Row:
    return await _left("median", 12)


async def skills_p10() -> Row:
    return await _left("p10", 25)


async def skills_worst() -> Row:
    return await _left("worst", 40)


_drawn: list[Measured] = []


async def _left(which: str, target: float) -> Row:
    if not _drawn:
        with temporary() as folder:
            _drawn.extend(await draws(library(folder), 2_000))
    left = 100 * (1 - getattr(add_up(each.saved for each in _drawn), which))
    return Row(f"10 skills, tokens left of loading all, {which}", left, target, "%")


async def skills_choice() -> Row:
    with temporary() as folder:
        found = await choices(library(folder), 500)
    less = 100 * (found.eager - found.listed) / found.tasks
    return Row("10 skills, right one chosen less often", less, 0, "%")


async def skills_list() -> Row:
    with temporary() as folder:
        tokens = await list_tokens(library(folder))
    return Row("list of 175 skills, most tokens", max(tokens), 2_000, "", (min(tokens), max(tokens)))


async def skills_search() -> Row:
    with temporary() as folder:
        missed = await misses(library(folder))
    return Row("175 skills, not among the first 5 found", 100 * len(missed) / len(entries()), 5, "%")


async def sandbox_escapes() -> Row:
    with temporary() as folder, world(folder) as there:
        problems = [name for name in ESCAPES if (await attempt(name, there))[0]]
    return Row(f"{len(ESCAPES)} escape scripts, not contained", len(problems), 0, "")


def seconds_without(script: Path) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, str(script)], capture_output=True, check=True)
    return time.perf_counter() - begun


async def sandbox_overhead() -> Row:
    with temporary() as folder:
        folder.joinpath("nothing.py").write_text("print(1)")
        sandbox, over = Sandbox(), list[float]()
        await sandbox.run(folder, "nothing.py")
        for _ in range(21):
            bare = seconds_without(folder / "nothing.py")
            begun = time.perf_counter()
            assert (await sandbox.run(folder, "nothing.py")).stdout == "1\n"
            over.append(1_000 * (time.perf_counter() - begun - bare))
    return Row("a script in the sandbox, more than without", statistics.median(over), 150, "ms", (min(over), max(over)))


ROWS = (
    skills_median,
    skills_p10,
    skills_worst,
    skills_choice,
    skills_list,
    skills_search,
    sandbox_escapes,
    sandbox_overhead,
)
