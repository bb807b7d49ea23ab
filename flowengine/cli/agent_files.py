"""Writes what a coding agent reads before it works on flows: AGENTS.md, and a skill with the whole format.

Both are made from the code at that moment: the commands, the kinds of nodes, the names in templates, the rules and the
codes of problems. What stands here is how they are used together, and nothing that the code says itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Final

import flowengine
from flowengine.cli.page_texts import codes_page, commands_page, exit_codes, format_rows, list_commands, tests_page
from flowengine.core import TRAITS
from flowengine.core.templating import FILTERS, TESTS
from flowengine.flowfile.checks import CODES
from flowengine.flowfile.compile import DESCRIBED
from flowengine.flowfile.schema import providers_section, spec_of
from flowengine.flowfile.schema.reference import reference
from flowengine.version import __version__

AGENTS_FILE: Final = "AGENTS.md"
SKILL: Final = "flowengine-flows"
"""The skill's name, which is that of its folder."""
_MADE: Final = (
    f"Made by `flowengine init --agents` of FlowEngine {__version__}. After an upgrade, or where this and "
    "`flowengine explain` disagree, make it anew with `flowengine init --agents --force`; notes of your own belong "
    "elsewhere."
)
_FLOW: Final = """\
flowengine: v1
name: reviewed_reply
inputs:
  question: {type: string}
nodes:
  draft:
    instructions: Answer in three sentences.
    prompt: "{{ inputs.question }}"
  judge:
    type: evaluation
    target: "{{ nodes.draft.output }}"
    criteria: {polite: It is friendly, complete: It answers everything that was asked}
    threshold: 0.7
    routes: {fail: rewrite}
  rewrite:
    prompt: |
      Rewrite: {{ nodes.draft.output }}
      Remarks: {{ nodes.judge.output.feedback }}
outputs:
  reply: "{{ nodes.rewrite.output or nodes.draft.output }}"
"""
_TEST: Final = """\
flow: ../reviewed_reply.yaml
cases:
  - name: a poor answer is rewritten
    inputs: {question: Where is my parcel?}
    answers:
      draft: Somewhere.
      judge: {score: 0.2, criteria_scores: {polite: 0.2, complete: 0.2}, feedback: Say where.}
      rewrite: It is in Kobe.
    expect: {path: [draft, judge, rewrite], outputs: {reply: {contains: Kobe}}}
"""
_STEPS: Final = """\
1. Read the flow, its test and the project file (`flowengine.toml`, or `[tool.flowengine]` in `pyproject.toml`) first.
2. Edit the YAML. Reading `nodes.a.output` makes the edge from `a`; a route makes a labelled one; `needs` is for order
   alone.
3. `flowengine validate FILE` until it says nothing: all problems are told at once, as `file:line:column: CODE message`.
   `flowengine explain CODE` says what is meant and what to write instead. Warnings are to be mended too.
4. Write or extend `tests/NAME.flowtest.yaml` and run `flowengine test`: scripted answers, no key, no network.
5. `flowengine run FILE -i name=value` runs it; where no model is named an offline stand-in answers, which is no
   language model. `flowengine graph FILE --format mermaid` draws it, `flowengine plan FILE` says what it can cost.
6. After a failure: `flowengine runs show @last` and `--node NAME`; mend; `flowengine resume @last --allow-changed` goes
   on without paying again for what had finished.

Never put a key into a file: keys come from the environment. Never widen `allow_calls`, `allow_http`, `allow_mcp` or
`allow_env` of the project file without being asked. Do not guess keys: unknown ones are errors."""


def make_agent_files(folder: str) -> Mapping[Path, str]:
    """Path → text of every file; the skill's folder lies in `folder`."""
    skill = Path(folder) / SKILL
    files = {Path(AGENTS_FILE): _agents_page(skill), skill / "SKILL.md": _skill_page()}
    return files | {skill / "references" / name: text for name, (text, _) in _references().items()}


@cache
def _references() -> Mapping[str, tuple[str, str]]:
    """File → its text, and when to read it."""
    rules = (Path(flowengine.__file__).parent / "docs" / "flow-format.md").read_text("utf-8")
    return {
        "format.md": (
            _relink(f"{reference()}\n{providers_section()}"),
            "every key of every node, with its values and default",
        ),
        "rules.md": (_relink(rules), "what keys mean together: joins, failures, state, loops, approvals, tests"),
        "errors.md": (_relink(codes_page()), "each code with its meaning, the fix, and text that earns it"),
        "tests.md": (_relink(tests_page()), "every key of flow tests and evals"),
        "commands.md": (commands_page(), "each command with its options"),
    }


def _relink(text: str) -> str:
    """Links between these pages lead to their files here; of others the words stay."""
    here = {"reference.md": "format.md", "flow-format.md": "rules.md", "errors.md": "errors.md"}

    def lead(link: re.Match[str]) -> str:
        page, mark, anchor = link[2].partition("#")
        return f"[{link[1]}]({here[page]}{mark}{anchor})" if page in here else link[1]

    return re.sub(r"\[([^\]]+)\]\((?!#|https?:)([^)\s]+)\)", lead, text)


def _agents_page(skill: Path) -> str:
    sections = {
        "How to work": lambda: _STEPS,
        "A flow, and its test": lambda: f"```yaml\n{_FLOW}```\n\n```yaml\n{_TEST}```",
        "Kinds of nodes": _kinds,
        "Names in templates and expressions": _names,
        "Rules": _rules,
        "Commands": _commands,
        "Errors and their fixes": _codes,
    }
    return _page(
        "# FlowEngine in this project",
        f"{_MADE}\n\nFlows are YAML files: graphs of steps that ask language models, call code and ask people. Each "
        f"run is kept in a journal. All keys, rules and options are in `{skill.as_posix()}/references/`.",
        sections,
    )


def _skill_page() -> str:
    described = (
        "Write, change, check, test and debug FlowEngine flows, which are YAML graphs of language-model steps. Use it "
        "when a task touches a flow file (flowengine: v1), a *.flowtest.yaml, flowengine.toml, or a code such as FE203."
    )
    front = f"---\nname: {SKILL}\ndescription: >-\n  {described}\n---\n"
    sections = {
        "How to work": lambda: _STEPS,
        "A flow": lambda: f"```yaml\n{_FLOW}```",
        "Its test": lambda: f"```yaml\n{_TEST}```",
        "Kinds of nodes": _kinds,
        "Read by need": lambda: "\n".join(
            f"- [references/{name}](references/{name}): {what}." for name, (_, what) in _references().items()
        ),
    }
    return f"{front}\n{_page('# Writing FlowEngine flows', _MADE, sections)}"


def _page(title: str, introduction: str, sections: Mapping[str, Callable[[], str]]) -> str:
    parts = [title, introduction, *(f"## {name}\n\n{make()}" for name, make in sections.items())]
    return "\n\n".join(parts) + "\n"


def _kinds() -> str:
    rows: list[tuple[str, str, str]] = []
    for name in TRAITS:
        spec = spec_of(name)
        required = [each.alias or key for key, each in spec.model_fields.items() if each.is_required()]
        rows.append(
            (f"`{name}`", cleandoc(spec.__doc__ or "").partition("\n\n")[0], ", ".join(f"`{k}`" for k in required))
        )
    return format_rows(["type", "", "required keys"], rows)


def _names() -> str:
    rows = [(f"`{name}`", where, what) for name, (where, what) in DESCRIBED.items()]
    filters = "; ".join(
        f"{title}: {', '.join(sorted(each))}" for title, each in (("Filters", FILTERS), ("tests", TESTS))
    )
    return f"{format_rows(['name', 'where', ''], rows)}\n\n{filters}."


def _rules() -> str:
    """Returns the first sentence of each rule of the format, by its number."""
    text = re.sub(r"\[([^\]]+)\]\([^)\s]+\)", r"\1", _references()["rules.md"][0])
    rules = re.findall(r"^(\d+)\. (\*\*.+?)(?=\n\n|^\d+\. |^ +- )", text, re.MULTILINE | re.DOTALL)
    return "\n".join(f"{number}. {_shorten(rule)}" for number, rule in rules)


def _shorten(text: str, enough: int = 160) -> str:
    """The sentences with which a text begins, as many as say enough.

    >>> _shorten("One is said. Two is said, too. Three.", 15)
    'One is said. Two is said, too.'
    """
    summary = ""
    for sentence in re.split(r"(?<=[.:]) (?=[A-Z`*])", " ".join(text.split())):
        summary = f"{summary} {sentence}".lstrip()
        if len(summary) >= enough:
            break
    return summary


def _commands() -> str:
    rows = [(f"`{name}`", _shorten((each.help or "").partition("\n\n")[0], 1)) for name, each in list_commands()]
    codes = "; ".join(f"{code} {meaning.replace(';', ',')}" for code, meaning in exit_codes())
    return f"{format_rows(['command', ''], rows)}\n\nExit codes: {codes}."


def _codes() -> str:
    lines = "\n".join(f"- {code} {each.title}: {_shorten(each.explanation, 90)}" for code, each in CODES.items())
    return f"`flowengine explain CODE` says more of each.\n\n{lines}"
