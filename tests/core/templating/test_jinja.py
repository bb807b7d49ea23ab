"""Templates mean what Jinja means: random templates are rendered by both, and what both can render is the same text.

Left out is what the page of filters says is other here: values are printed as JSON, what is absent equals nothing, and
a `set` further down hides no outer value before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jinja2 import Environment, TemplateError, Undefined

from flowengine.core.templating.compile import compile_template
from flowengine.errors import TemplateError as OurError
from flowengine.errors import TemplateSyntaxError

SCOPE: Final[dict[str, Any]] = {"a": "x", "b": 0, "l": [1, 2, 3], "d": {"k": "v", "n": None}}
NAMES: Final = ("a", "b", "s", "t")
"""Two of the scope and two of nobody; templates set all of them."""


def _print(value: Any) -> Any:
    is_plain = isinstance(value, str | Undefined) or (isinstance(value, int | float) and not isinstance(value, bool))
    return value if is_plain else json.dumps(value, ensure_ascii=False)


_JINJA: Final = Environment(finalize=_print, optimized=False)


class _Writer:
    """Writes one template. `read`: for each open block, what blocks inside it have read from outside so far."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._read: list[set[str]] = [set()]
        self._bound: list[set[str]] = [set()]

    def body(self, depth: int) -> str:
        return "".join(self._statement(depth) for _ in range(self._random.randint(1, 4)))

    def _statement(self, depth: int) -> str:
        kinds: Sequence[Any] = (self._output, self._output, self._set, self._set, self._if, self._if)
        inner: Sequence[Any] = (self._for, self._with, self._capture)
        return self._random.choice((*kinds, *inner) if depth else kinds[:4])(depth - 1)

    def _name(self) -> str:
        name = self._random.choice((*NAMES, *sorted(self._bound[-1])))
        for number in range(len(self._bound) - 1, 0, -1):
            if name in self._bound[number]:
                break
            self._read[number - 1].add(name)
        return name

    def _target(self) -> str:
        """A name that nothing before has read from inside a block of this one."""
        free = [name for name in NAMES if name not in self._read[-1] or name in self._bound[-1]] or ["z"]
        name = self._random.choice(free)
        self._bound[-1].add(name)
        return name

    def _constant(self) -> str:
        return self._random.choice(("'p'", "'x'", "0", "1", "''", "none", "true", "l", "d", "d.k"))

    def _value(self) -> str:
        return self._random.choice((self._constant(), self._name()))

    def _expression(self) -> str:
        name, value = self._name(), self._value()
        shapes = (
            name, value, f"{name} or {value}", f"{name} and {value}", f"{name} == {self._constant()}",
            f"{name} is defined", f"{name} | default({value})", f"{value} if {name} else {self._value()}",
            f"not {name}", f"[{value}]",
            f"d.get('{self._random.choice('kmn')}') is none", f"d.get('m', {value})",
            f"{name} in [{self._constant()}, 1]", f"{name} is string", f"l | length + {self._random.randint(0, 2)}",
        )  # fmt: skip
        return self._random.choice(shapes)

    def _output(self, depth: int) -> str:
        before = self._random.choice(("", " ", "w", "\n"))
        return f"{before}{{{{ {self._expression()} }}}}"

    def _set(self, depth: int) -> str:
        value = self._expression()
        return f"{{% set {self._target()} = {value} %}}"

    def _if(self, depth: int) -> str:
        first = f"{{% if {self._expression()} %}}{self.body(depth)}"
        middle = f"{{% elif {self._expression()} %}}{self.body(depth)}" if self._random.random() < 0.3 else ""
        last = f"{{% else %}}{self.body(depth)}" if self._random.random() < 0.4 else ""
        return f"{first}{middle}{last}{{% endif %}}"

    def _block(self, names: Sequence[str], depth: int) -> str:
        self._read.append(set())
        self._bound.append({*names})
        body = self.body(depth)
        self._bound.pop()
        seen = self._read.pop()
        self._read[-1] |= seen - self._bound[-1]
        return body

    def _for(self, depth: int) -> str:
        source = self._random.choice(("l", "[]", "[0, 1]", "range(2)"))
        otherwise = f"{{% else %}}{self._block((), depth)}" if self._random.random() < 0.3 else ""
        name = self._random.choice(("i", *NAMES))
        test = self._random.choice(("", "", f" if {name} != 1"))
        return f"{{% for {name} in {source}{test} %}}{self._block([name], depth)}{otherwise}{{% endfor %}}"

    def _with(self, depth: int) -> str:
        value, name = self._expression(), self._random.choice(("w", *NAMES))
        return f"{{% with {name} = {value} %}}{self._block([name], depth)}{{% endwith %}}"

    def _capture(self, depth: int) -> str:
        body = self._block((), depth)
        return f"{{% set {self._target()} %}}{body}{{% endset %}}"


def _render(source: str) -> str | None:
    """The text; None where it is refused."""
    try:
        return str(compile_template(f"{source}.")(SCOPE))
    except (OurError, TemplateSyntaxError):
        return None


@settings(max_examples=400)
@given(st.randoms(use_true_random=True))
def test_what_both_render_is_the_same_text(random: Random) -> None:
    source = _Writer(random).body(3)
    ours = _render(source)
    assume(ours is not None)
    try:
        assert ours == _JINJA.from_string(f"{source}.").render(SCOPE), source
    except TemplateError:
        return
