"""Reads the frontmatter of a SKILL.md: bytes → keys with their values, and the body. It never fails.

A file that breaks the rules is read as its author meant it, and each broken rule is reported. It knows YAML and how
people get it wrong; what the keys mean is the matter of `flowengine.agents.skills.reading`.

It reads the events of PyYAML's parser, so no tag makes an object and no alias is followed; a text that is not YAML is
read line by line. Scalars are texts here, whatever YAML would resolve them to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

import yaml

MAX_BYTES: Final = 1_000_000
"""Bytes of a SKILL.md at most."""
_MAX_HEADER: Final = 64_000
_MAX_DEPTH: Final = 8
_MAX_NODES: Final = 2_000


class FoundKeys(NamedTuple):
    """An irregularity, without its file."""

    code: str
    message: str
    line: int | None = None


class Scalar(NamedTuple):
    """A text, and whether it stood there without quotes."""

    text: str
    line: int
    is_plain: bool = False


Node: TypeAlias = "Scalar | list[Node] | dict[str, Node]"
"""A value of the frontmatter."""


class FrontmatterParts(NamedTuple):
    """A file, taken apart."""

    header: str | None
    """The text between the two lines of hyphens; None where there is none."""
    line: int
    """The header's first line, counted from 1."""
    body: str
    irregularities: list[FoundKeys]


def split_file(raw: bytes) -> FrontmatterParts:
    """The frontmatter and the body. Lines end in a line feed, whatever they ended in.

    >>> split_file(b"---\\nname: a\\n---\\n# Title\\n").body
    '# Title\\n'
    """
    irregularities: list[FoundKeys] = []
    text = _decode(raw, irregularities)
    if "\r" in text:
        irregularities.append(FoundKeys("SK102", "the lines end in CR LF (or CR); LF is usual", 1))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text and not text.endswith("\n"):
        irregularities.append(FoundKeys("SK104", "the last line has no end", text.count("\n") + 1))
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first].rstrip() != "---":
        irregularities.append(FoundKeys("SK201", "the file does not begin with '---' and frontmatter", first + 1))
        return FrontmatterParts(None, 1, text, irregularities)
    if first:
        irregularities.append(FoundKeys("SK201", "lines stand before the frontmatter's '---'", 1))
    end = _find_end(lines, first + 1, irregularities)
    header = "\n".join(lines[first + 1 : end.header])
    if "---" in header:
        line = first + 2 + header[: header.index("---")].count("\n")
        irregularities.append(
            FoundKeys("SK205", "'---' stands inside a value; some readers end the frontmatter there", line)
        )
    return FrontmatterParts(header, first + 2, "\n".join(lines[end.body :]).removeprefix("\n"), irregularities)


def _decode(raw: bytes, irregularities: list[FoundKeys]) -> str:
    if raw.startswith(b"\xef\xbb\xbf"):
        irregularities.append(FoundKeys("SK101", "the file begins with a byte order mark", 1))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        encoding = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}.get(raw[:2])
        line = raw.count(b"\n", 0, error.start) + 1
        irregularities.append(
            FoundKeys("SK103", f"not UTF-8: byte 0x{raw[error.start]:02x}; read as well as can be", line)
        )
        return raw.decode(encoding or "utf-8", "replace").lstrip("\ufeff")


class _End(NamedTuple):
    header: int
    body: int


def _find_end(lines: list[str], start: int, irregularities: list[FoundKeys]) -> _End:
    """Returns the end of the header; without a closing line, the first empty line or heading."""
    for number in range(start, len(lines)):
        if lines[number].rstrip() in ("---", "..."):
            return _End(number, number + 1)
    irregularities.append(FoundKeys("SK202", "the frontmatter has no '---' at its end", start))
    for number in range(start, len(lines)):
        if not lines[number].strip() or lines[number].startswith("# "):
            return _End(number, number)
    return _End(len(lines), len(lines))


def read_header(header: str, line: int, irregularities: list[FoundKeys]) -> dict[str, Node]:
    """The keys of a header that begins in this line, in their order. What is irregular is added to `irregularities`.

    >>> irregularities = []
    >>> read_header("name: a\\ndescription: Use when: always", 2, irregularities)["description"].text
    'Use when: always'
    >>> irregularities[0].code
    'SK204'
    """
    if len(header) > _MAX_HEADER:
        irregularities.append(
            FoundKeys("SK107", f"the frontmatter has more than {_MAX_HEADER:,} characters; the rest is left out", line)
        )
        header = header[:_MAX_HEADER]
    try:
        return _Reader(header, line, irregularities).mapping()
    except _NotPlainError as error:
        irregularities.append(FoundKeys("SK206", f"{error.what}; it is read line by line", error.line))
    except yaml.YAMLError as error:
        irregularities.append(_describe_syntax_error(error, line))
    return dict(_read_lines(header, line))


def to_text(node: Node) -> str:
    """Any value as one text: lists with commas, maps with colons."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, list):
        return ", ".join(to_text(each) for each in node)
    return ", ".join(f"{key}: {to_text(each)}" for key, each in node.items())


# --- Read as YAML


class _NotPlainError(Exception):
    """Something that has no place in frontmatter."""

    def __init__(self, what: str, line: int) -> None:
        self.what = what
        self.line = line


class _Reader:
    """One pass over the parser's events."""

    def __init__(self, header: str, line: int, irregularities: list[FoundKeys]) -> None:
        self._first = line
        self._irregularities = irregularities
        self._nodes = 0
        self._events = cast("Iterator[Any]", yaml.parse(header, Loader=_LOADER))  # pyright: ignore[reportUnknownMemberType] -- PyYAML has no types here

    def mapping(self) -> dict[str, Node]:
        next(self._events)
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            return {}
        event = next(self._events)
        if not isinstance(event, yaml.MappingStartEvent):
            raise _NotPlainError("the frontmatter is no map of keys", self._line(event))
        keys = self._mapping(event, 0)
        next(self._events)
        if not isinstance(after := next(self._events), yaml.StreamEndEvent):
            raise _NotPlainError("a second document begins", self._line(after))
        return keys

    def _line(self, event: Any) -> int:
        return self._first + event.start_mark.line

    def _node(self, event: Any, depth: int) -> Node:
        self._nodes += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _NotPlainError("anchors and aliases have no place in frontmatter", self._line(event))
        if event.tag is not None:
            raise _NotPlainError("tags have no place in frontmatter", self._line(event))
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            raise _NotPlainError("the frontmatter is too deep or too large", self._line(event))
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(event.value, self._line(event), bool(event.implicit[0]) and not event.style)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        values: list[Node] = []
        while not isinstance(each := next(self._events), yaml.SequenceEndEvent):
            values.append(self._node(each, depth + 1))
        return values

    def _mapping(self, event: Any, depth: int) -> dict[str, Node]:
        values: dict[str, Node] = {}
        while not isinstance(each := next(self._events), yaml.MappingEndEvent):
            line = self._line(each)
            key = to_text(self._node(each, depth + 1))
            value = self._node(next(self._events), depth + 1)
            if key in values:
                self._irregularities.append(
                    FoundKeys("SK207", f"the key '{key:.60}' is given twice; the first stands", line)
                )
            else:
                values[key] = value
        return values


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _describe_syntax_error(error: yaml.YAMLError, first: int) -> FoundKeys:
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = first if mark is None else first + int(mark.line)
    if "mapping values are not allowed" in problem:
        return FoundKeys("SK204", "a value with ': ' in it must stand in quotes; it is read as text", line)
    return FoundKeys("SK203", f"not YAML ({problem:.200}); it is read line by line", line)


# --- Read line by line

_KEY: Final = re.compile(r"([A-Za-z_][\w .-]{0,63}?)[ \t]*:(?:[ \t]+(.*)|$)")
_BLOCK: Final = re.compile(r"[|>][-+0-9]*")


def _read_lines(header: str, first: int) -> Mapping[str, Node]:
    """Each key that stands at the left, with the lines that are indented under it."""
    values: dict[str, Node] = {}
    key, line, value, under = "", first, "", list[str]()
    for number, text in enumerate([*header.split("\n"), "end:"], first):
        match = _KEY.match(text)
        if match is None:
            under.append(text)
            continue
        if key:
            values.setdefault(key, _read_value(value, under, line))
        key, line, value, under = match[1], number, (match[2] or "").strip(), []
    return values


def _read_value(value: str, under: list[str], line: int) -> Node:
    inner = [each.strip() for each in under if each.strip() and not each.lstrip().startswith("#")]
    if not value and inner and all(each.startswith("- ") for each in inner):
        return [Scalar(_unquote(each[2:].strip()), line) for each in inner]
    pairs = [_KEY.match(each) for each in inner]
    if not value and inner and all(pairs):
        return {each[1]: Scalar(_unquote((each[2] or "").strip()), line) for each in pairs if each}
    text = "" if _BLOCK.fullmatch(value) else value
    if text.startswith("[") and not inner:
        try:
            return _Reader(f"key: {text}", line, []).mapping()["key"]
        except (_NotPlainError, yaml.YAMLError):
            pass  # No list after all.
    return Scalar(_unquote(" ".join(each for each in (text, *inner) if each)), line)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
