"""Makes a valid value for any JSON Schema, from what a text offers.

It knows types, enum, const, bounds, lengths, formats, references and combinations. A `pattern` is
met by a word of the text, a default or an example, where one of them fits. Whether the value says
something true is beyond it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from flowengine.errors import PermanentModelError
from flowengine.models.offline.decisions import choose, rank, terms

_LONGEST: Final = 1_000_000
"""Characters of an answer. A schema may ask for any number of items, and for texts of any length."""
_OF_A_VALUE: Final = 50
"""Characters that each value counts for, beside those that its text must have: one takes up to a tenth of a ms."""
_DEEPEST: Final = 4
"""Below it, what may be left out is left out: a schema may refer to itself."""

_FORMATS: Final = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "/",
    "iri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}
_FORMAT_IN_TEXT: Final = {
    "date": r"\b\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])\b",
    "email": r"\b[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\b",
    "uri": r"\bhttps?://[A-Za-z0-9./_-]+",
    "url": r"\bhttps?://[A-Za-z0-9./_-]+",
}
_NUMBER: Final = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w-]|\.\d)")

Schema = Mapping[str, Any]


class Filler:
    """Fills one schema from some sentences; `blank` is the text where they offer none."""

    def __init__(self, root: Schema, sentences: Sequence[str], blank: str) -> None:
        self._root = root
        self._sentences = list(sentences)
        self._text = "\n".join(sentences)
        self._blank = blank
        self._budget = _LONGEST

    def _count(self, values: int, schema: Schema = MappingProxyType({})) -> None:
        """Refuses values before they are made where the answer would be too long for anybody to read."""
        self._budget -= values * (_OF_A_VALUE + schema.get("minLength", 0))
        if self._budget < 0:
            raise PermanentModelError(
                f"the schema asks for an answer of more than {_LONGEST:,} characters, which the offline stand-in does "
                f"not write: lower its minItems, minLength or minProperties"
            )

    def value(self, schema: Any = None, hint: str = "", depth: int = 0) -> Any:
        """A value of the schema; `hint` is what its place is called."""
        target = self._resolve_schema(self._root if schema is None else schema, depth)
        self._count(1, target)
        if "const" in target:
            return target["const"]
        if "enum" in target:
            return self._one_of(target["enum"], target)
        hint = " ".join(str(each) for each in (hint, target.get("title", ""), target.get("description", "")) if each)
        kind = _type_of(target)
        if kind == "object":
            return self._object(target, depth)
        if kind == "array":
            return self._array(target, hint, depth)
        if kind in ("number", "integer"):
            return self._number(target, hint, kind == "integer")
        if kind == "boolean":
            return target["default"] if isinstance(target.get("default"), bool) else self._is_about(hint)
        return None if kind == "null" else self._string(target, hint)

    # --- combinations

    def _resolve_schema(self, schema: Any, depth: int) -> dict[str, Any]:
        """One plain schema: references followed, `allOf` merged, one branch of each choice taken."""
        flat_schema = dict(_as_schema(schema))
        for _ in range(32):  # references may lead to references, and round in a circle
            if "$ref" in flat_schema:
                target = self._target(flat_schema.pop("$ref"))
                flat_schema = _merge(flat_schema, target)
            elif "allOf" in flat_schema:
                for each in flat_schema.pop("allOf"):
                    flat_schema = _merge(flat_schema, self._resolve_schema(each, depth))
            elif (keyword := next((each for each in ("anyOf", "oneOf") if each in flat_schema), None)) is not None:
                flat_schema = _merge(flat_schema, self._branch(flat_schema.pop(keyword), depth))
            else:
                break
        return flat_schema

    def _target(self, reference: str) -> Schema:
        target: Any = self._root
        try:
            for part in reference.removeprefix("#").split("/")[1:]:
                name = part.replace("~1", "/").replace("~0", "~")
                target = target[int(name) if isinstance(target, list) else name]
        except (LookupError, ValueError, TypeError) as error:
            raise PermanentModelError(f"the schema refers to {reference!r}, which it does not have") from error
        return _as_schema(target)

    def _branch(self, branches: Sequence[Any], depth: int) -> Schema:
        """The first that is not null; deep down, null where it is allowed, and else what refers to nothing."""
        schemas = [_as_schema(each) for each in branches]
        nulls = [each for each in schemas if each.get("type") == "null"]
        if depth >= _DEEPEST:
            return min(schemas, key=lambda each: (each.get("type") != "null", "$ref" in each))
        return next((each for each in schemas if each not in nulls), schemas[0])

    def _one_of(self, options: Sequence[Any], schema: Schema) -> Any:
        labels = [each for each in options if isinstance(each, str)]
        if not labels:
            return schema["default"] if schema.get("default") in options and "default" in schema else options[0]
        return choose(self._text, labels, str(schema.get("description", ""))).label

    # --- composite values

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties: Schema = schema.get("properties") or {}
        required: list[str] = list(schema.get("required") or ())
        names = required if depth >= _DEEPEST else [*properties, *(each for each in required if each not in properties)]
        extra = schema.get("additionalProperties", True)
        fields = {name: self.value(properties.get(name, extra), _split_name(name), depth + 1) for name in names}
        least = schema.get("minProperties", 0)
        self._count(max(0, least - len(fields)))
        for number in range(len(fields), least):
            fields[f"value_{number + 1}"] = self.value(extra, "", depth + 1)
        return fields

    def _array(self, schema: Schema, hint: str, depth: int) -> list[Any]:
        first: list[Any] = list(schema.get("prefixItems") or ())
        items = schema.get("items", True)
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        open_end = items is not False and depth < _DEEPEST
        count = int(min(most, max(least, len(first), min(3, len(self._sentences)) if open_end else 0)))
        if count:
            self._count(count, self._resolve_schema(items, depth))
        if items is False:
            count = min(count, len(first))
        places = [*first, *[items] * max(0, count - len(first))][:count]
        values = [self.value(each, hint, depth + 1) for each in first[:count]]
        return values + self._distinct(
            places[len(values) :], hint, depth, unique=bool(schema.get("uniqueItems")), least=least
        )

    def _distinct(self, places: Sequence[Any], hint: str, depth: int, *, unique: bool, least: int) -> list[Any]:
        """Values for like places, each another one where the text offers enough."""
        if not places:
            return []
        schema = self._resolve_schema(places[0], depth)
        if "enum" in schema or "const" in schema or _type_of(schema) == "boolean":
            return self._distinct_options(schema, len(places), unique, least)
        if _type_of(schema) == "string" and "format" not in schema and "pattern" not in schema:
            return [_fit_length(text, schema) for text in self._strings(hint, len(places), schema)]
        if _type_of(schema) in ("number", "integer"):
            return list(_spread_numbers(self._number(schema, hint, _type_of(schema) == "integer"), schema, len(places)))
        return [
            self.value(each, hint, depth + 1) for each in (places[: max(least, 1)] if not unique else places[:least])
        ]

    def _distinct_options(self, schema: Schema, count: int, unique: bool, least: int) -> list[Any]:
        options: list[Any] = [schema["const"]] if "const" in schema else list(schema.get("enum") or (True, False))
        best = self._one_of(options, schema)
        ordered = [best, *(each for each in options if each is not best)]
        size = max(least, 1) if count else 0
        return ordered[:size] if unique else [ordered[index % len(ordered)] for index in range(size)]

    def _strings(self, hint: str, count: int, schema: Schema) -> list[str]:
        ranked = [text for _, text in rank(hint, self._sentences)] or [self._blank]
        short = int(min(schema.get("maxLength", math.inf), 400))
        pool = list(dict.fromkeys(each[:short] for each in ranked))
        numbered = (f"{self._blank[: max(0, short - 4)]} {number}"[-short:] for number in range(1, count + 1))
        return [*pool, *numbered][:count]

    # --- plain values

    def _string(self, schema: Schema, hint: str) -> str:
        kind, pattern = schema.get("format"), schema.get("pattern")
        if pattern is not None:
            return self._match_pattern(pattern, schema)
        if kind in _FORMATS:
            match = re.search(_FORMAT_IN_TEXT[kind], self._text, re.ASCII) if kind in _FORMAT_IN_TEXT else None
            return match[0] if match else _FORMATS[kind]
        if isinstance(schema.get("default"), str) and not (terms(hint).keys() & terms(self._text).keys()):
            return schema["default"]
        ranked = rank(hint, self._sentences)
        return _fit_length(ranked[0][1] if ranked else self._blank, schema)

    def _match_pattern(self, pattern: str, schema: Schema) -> str:
        samples = (schema.get("default"), *(schema.get("examples") or ()))
        candidates = (
            [each for each in samples if isinstance(each, str)] + re.findall(r"\S+", self._text) + self._sentences
        )
        return next((each for each in candidates if re.search(pattern, each)), _fit_length(self._blank, schema))

    def _number(self, schema: Schema, hint: str, whole: bool) -> Any:
        """A number that stands near the hint, else the default, else the nearest to 1 that is allowed."""
        for _, text in rank(hint, self._sentences):
            for number_text in _NUMBER.findall(text):
                number = float(number_text)
                if (number.is_integer() or not whole) and _allows(schema, number):
                    return int(number) if number.is_integer() else number
        default = schema.get("default")
        return default if isinstance(default, int | float) else _nearest_number(schema, 1, whole)

    def _is_about(self, hint: str) -> bool:
        """Tells whether the text mentions what the place is called."""
        return bool(terms(hint).keys() & terms(self._text).keys())


# --- Schemas without a text


def _as_schema(value: Any) -> Schema:
    """`true`, which allows everything, as a schema like the others."""
    return cast(Schema, value) if isinstance(value, Mapping) else {}


def _type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = cast("list[str]", kind)
        return next((each for each in kinds if each != "null"), "null")
    if kind is not None:
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _merge(one: Schema, other: Schema) -> dict[str, Any]:
    """Both schemas at once, for the keywords that can be combined."""
    both = {**other, **one}
    if "properties" in one and "properties" in other:
        both["properties"] = {**other["properties"], **one["properties"]}
    if "required" in one and "required" in other:
        both["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    for keyword, strictest in _STRICTEST.items():
        if keyword in one and keyword in other:
            both[keyword] = strictest(one[keyword], other[keyword])
    return both


_STRICTEST: Final[dict[str, Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


def _split_name(name: str) -> str:
    """A property's name as words: `firstName`, `first_name` → `first Name`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-]+", " ", name)


def _fit_length(text: str, schema: Schema) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    return (text if most is None else text[:most]).ljust(least, ".")


def _allows(schema: Schema, number: float) -> bool:
    step = schema.get("multipleOf")
    return (
        schema.get("minimum", -math.inf) <= number <= schema.get("maximum", math.inf)
        and schema.get("exclusiveMinimum", -math.inf) < number < schema.get("exclusiveMaximum", math.inf)
        and (step is None or (number / step).is_integer())
    )


def _nearest_number(schema: Schema, wish: float, whole: bool) -> int | float:
    """The allowed number nearest to the wish; where none is, the lower bound."""
    step = schema.get("multipleOf") or (1 if whole else None)
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    if step is not None:
        first = math.ceil(low / step) if math.isfinite(low) else None
        last = math.floor(high / step) if math.isfinite(high) else None
        index = _clamp(round(wish / step), first, last)
        candidates: Iterator[float] = iter([index * step, (index + 1) * step, (index - 1) * step])
    else:
        middle = (low + high) / 2 if math.isfinite(low + high) else (low + 1 if math.isfinite(low) else high - 1)
        candidates = iter([wish, _clamp(wish, low, high), middle])
    number = next((each for each in candidates if _allows(schema, each)), low if math.isfinite(low) else wish)
    return int(number) if float(number).is_integer() else number


def _clamp(value: Any, low: Any, high: Any) -> Any:
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def _spread_numbers(start: int | float, schema: Schema, count: int) -> Iterator[int | float]:
    """So many different allowed numbers, from `start` upwards and then downwards."""
    step = schema.get("multipleOf") or 1
    if schema.get("type") == "number" and "multipleOf" not in schema:
        low, high = (
            schema.get("minimum", schema.get("exclusiveMinimum")),
            schema.get("maximum", schema.get("exclusiveMaximum")),
        )
        step = (high - low) / (2 * count + 2) or 1 if low is not None and high is not None else 1
    candidates = (start + sign * index * step for index in range(count + 1) for sign in ((1, -1) if index else (1,)))
    return (
        number for number, _ in zip((each for each in candidates if _allows(schema, each)), range(count), strict=False)
    )
