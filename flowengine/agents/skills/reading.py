"""Makes a `Skill` of a frontmatter's keys, with a diagnostic for each irregularity. Pure: it touches no disk.

Whatever the file holds, a skill comes out: a missing name is the folder's, a missing description the body's first
sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from flowengine.agents.skills.frontmatter import FoundKeys, Node, Scalar, read_header, split_file, to_text
from flowengine.agents.skills.skill import MAX_DESCRIPTION, MAX_NAME, Skill, SkillStamp, make_irregularity
from flowengine.core import cut_text
from flowengine.errors import did_you_mean
from flowengine.models import estimate_tokens

KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_MAX_COMPATIBILITY: Final = 500
_MAX_STAND_IN: Final = 200
_LONG_BODY: Final = 5_000


def skill_of(raw: bytes, file: Path, stamp: SkillStamp, *, has_files: bool = False, strict: bool = False) -> Skill:
    """The skill of a SKILL.md's bytes."""
    parts = split_file(raw)
    irregularities = parts.irregularities
    keys = {} if parts.header is None else read_header(parts.header, parts.line, irregularities)
    size = estimate_tokens(parts.body)
    irregularities += [*_find_unknown_keys(keys), *_check_body(parts.body, size)]
    name = _read_name(keys, file.parent.name, irregularities)
    described = _read_description(keys, parts.body, irregularities)
    rest = _read_other_keys(keys, irregularities)
    ordered = sorted(irregularities, key=lambda each: (each.line or 0, each.code))
    return Skill(
        name=name,
        description=described,
        folder=file.parent,
        file=file,
        stamp=stamp,
        body_tokens=size,
        has_files=has_files,
        license=rest.license,
        compatibility=rest.compatibility,
        metadata=rest.metadata,
        allowed_tools=rest.allowed_tools,
        diagnostics=tuple(
            make_irregularity(each.code, each.message, file, each.line, strict=strict) for each in ordered
        ),
    )


def to_one_line(text: str) -> str:
    """The text without line breaks, control characters and halves of surrogate pairs: it stands in a list, and must not
    look like its next item.

    >>> to_one_line(" a\\n- b\\x1b ")
    'a - b'
    """
    plain = "".join(" " if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") else each for each in text)
    return " ".join(plain.split())


# --- Name and description


def _read_text(keys: Mapping[str, Node], key: str, irregularities: list[FoundKeys]) -> str:
    """The text of a key in one line; empty where there is none."""
    node = keys.get(key)
    if node is None:
        return ""
    if not isinstance(node, Scalar):
        irregularities.append(FoundKeys("SK209", f"`{key}` must be a text", _line_of(node)))
    return to_one_line(to_text(node))


def _read_name(keys: Mapping[str, Node], folder: str, irregularities: list[FoundKeys]) -> str:
    folder = to_one_line(folder)  # A name that is no UTF-8 on the disk has halves of surrogate pairs.
    name = unicodedata.normalize("NFKC", _read_text(keys, "name", irregularities))
    line = _line_of(keys.get("name"))
    if not name:
        irregularities.append(FoundKeys("SK301", f"`name` is missing; the folder's name '{folder}' is taken", line))
        return folder[:MAX_NAME] or "skill"
    irregularities += _find_misread(keys, "name")
    irregularities += (
        FoundKeys(code, message, line) for code, message in _check_name(name, unicodedata.normalize("NFKC", folder))
    )
    return name[:MAX_NAME]


def _check_name(name: str, folder: str) -> Iterator[tuple[str, str]]:
    quoted_name = f"the name '{name:.80}'"
    if name != name.lower():
        yield "SK302", f"{quoted_name} has capital letters"
    if other := "".join(sorted({each for each in name if not each.isalnum() and each != "-"})):
        yield "SK303", f"{quoted_name} has {other!r}; letters, digits and hyphens are allowed"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield "SK304", f"{quoted_name} has a hyphen at an end, or two in a row"
    if len(name) > MAX_NAME:
        yield "SK305", f"{quoted_name} has {len(name)} characters; {MAX_NAME} are allowed, and the rest is cut off"
    if not name.isascii():
        yield "SK308", f"{quoted_name} is not ASCII; some readers refuse that"
    if name != folder:
        yield "SK306", f"{quoted_name} is not that of its folder, '{folder:.80}'"


def _read_description(keys: Mapping[str, Node], body: str, irregularities: list[FoundKeys]) -> str:
    text = _read_text(keys, "description", irregularities)
    line = _line_of(keys.get("description"))
    if not text:
        stand_in = _first_sentence(body)
        instead = "the body's first sentence stands in for it" if stand_in else "there is nothing to stand in for it"
        irregularities.append(FoundKeys("SK309", f"`description` is missing; {instead}", line))
        return stand_in
    irregularities += _find_misread(keys, "description")
    size = len(to_text(keys["description"]).strip())
    if size > MAX_DESCRIPTION:
        message = f"`description` has {size:,} characters; {MAX_DESCRIPTION:,} are allowed, and the rest is cut off"
        irregularities.append(FoundKeys("SK310", message, line))
    return cut_text(text, MAX_DESCRIPTION)


def _first_sentence(body: str) -> str:
    """Returns the first sentence of the first paragraph that is no heading; else the first heading."""
    lines = [each.strip() for each in body.split("\n") if each.strip() and not each.startswith(("```", "~~~"))]
    text = next((each for each in lines if not each.startswith("#")), "") or (lines[0].lstrip("# ") if lines else "")
    sentence = re.split(r"(?<=[.!?])\s|(?<=[。！？])", to_one_line(text), maxsplit=1)[0]
    return sentence[:_MAX_STAND_IN]


# --- The other keys


class _OtherKeys(NamedTuple):
    license: str
    compatibility: str
    metadata: Mapping[str, str]
    allowed_tools: tuple[str, ...]


def _read_other_keys(keys: Mapping[str, Node], irregularities: list[FoundKeys]) -> _OtherKeys:
    texts = {key: _read_text(keys, key, irregularities) for key in ("license", "compatibility")}
    if len(texts["compatibility"]) > _MAX_COMPATIBILITY:
        message = f"`compatibility` has {len(texts['compatibility'])} characters; {_MAX_COMPATIBILITY} are allowed"
        irregularities.append(FoundKeys("SK211", message, _line_of(keys["compatibility"])))
    return _OtherKeys(
        **texts,
        metadata=_read_metadata(keys, irregularities),
        allowed_tools=_read_tools(keys.get("allowed-tools"), irregularities),
    )


def _read_metadata(keys: Mapping[str, Node], irregularities: list[FoundKeys]) -> dict[str, str]:
    node = keys.get("metadata")
    if node is None or (isinstance(node, Scalar) and not node.text):
        return {}
    if not isinstance(node, dict):
        irregularities.append(FoundKeys("SK212", "`metadata` must be a map of texts", _line_of(node)))
        return {"metadata": to_text(node)}
    for key, each in node.items():
        if not isinstance(each, Scalar):
            kind = "a list" if isinstance(each, list) else "a map"
            irregularities.append(
                FoundKeys("SK212", f"`metadata.{key:.60}` is {kind}; it is taken as text", _line_of(each))
            )
    return {to_one_line(key): to_one_line(to_text(each)) for key, each in node.items()}


def _read_tools(node: Node | None, irregularities: list[FoundKeys]) -> tuple[str, ...]:
    """A text of names with blanks between them, or a list. A blank inside brackets parts nothing: `Bash(git log)`."""
    if node is None:
        return ()
    if isinstance(node, dict) or (isinstance(node, list) and not all(isinstance(each, Scalar) for each in node)):
        irregularities.append(FoundKeys("SK209", "`allowed-tools` must be a text or a list of texts", _line_of(node)))
    if isinstance(node, list):
        return tuple(to_one_line(to_text(each)) for each in node)
    # Bounded: each bracket of a text full of them would be followed to its end.
    return tuple(re.findall(r"[^\s,(]+(?:\([^)]{0,500}+\))?", to_text(node)))


def _find_unknown_keys(keys: Mapping[str, Node]) -> Iterator[FoundKeys]:
    for key, node in keys.items():
        if key not in KEYS:
            yield FoundKeys(
                "SK208", f"the key '{to_one_line(key):.60}' is unknown{did_you_mean(key, KEYS)}", _line_of(node)
            )


_TYPED_SCALAR: Final = re.compile(
    r"(?i:y|yes|n|no|on|off|true|false|null|~)|[-+]?[0-9][0-9_.,:eExXoa-fA-F]*|[0-9]{4}-[0-9]{2}-[0-9]{2}.*"
)


def _find_misread(keys: Mapping[str, Node], key: str) -> Iterator[FoundKeys]:
    """A text that YAML 1.1 (or 1.2) resolves to a boolean, a number or a date."""
    node = keys[key]
    if isinstance(node, Scalar) and node.is_plain and _TYPED_SCALAR.fullmatch(node.text):
        message = f"some readers do not take `{key}: {node.text:.40}` for a text; put it in quotes"
        yield FoundKeys("SK210", message, node.line)


def _check_body(body: str, size: int) -> Iterator[FoundKeys]:
    if not body.strip():
        yield FoundKeys("SK108", "there is nothing below the frontmatter")
    elif size > _LONG_BODY:
        yield FoundKeys("SK109", f"the body has about {size:,} tokens; up to {_LONG_BODY:,} are recommended")


def _line_of(node: Node | None) -> int | None:
    if isinstance(node, Scalar):
        return node.line
    inner = next(iter(node.values() if isinstance(node, dict) else node or []), None)
    return None if inner is None else _line_of(inner)
