"""Provides the user's own data: a mapping as it stands, or what a function returns for the query."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

from flowengine.agents.context.provider import ContextProvider, ParameterError, call_method, join_fragments
from flowengine.core import Fragment, check_arguments, to_json_value

DataSource: TypeAlias = Mapping[Any, Any] | Callable[..., Any]
"""A mapping, or a function `(query, **config)`, sync or async, that returns text, a mapping or another JSON value."""


class CustomDataProvider(ContextProvider):
    """The entries of a mapping, a fragment each; or those that a function returns.

    >>> import anyio
    >>> def stock(query, unit):
    ...     return {"tea": f"12 {unit}", "coffee": f"3 {unit}"}
    >>> print(anyio.run(CustomDataProvider(stock, {"unit": "kg"}).get_context, "What is there?"))
    tea: 12 kg
    <BLANKLINE>
    coffee: 3 kg
    """

    provider_name: ClassVar[str] = "custom_data"
    config_description: ClassVar[str] = "Data of your own: a mapping, or what a function says about the query"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "data_source": "A mapping, or module:function, called with the query and `config`",
        "config": "Further arguments of the function",
    }
    config_example: ClassVar[str] = "- custom_data: {data_source: 'shop_data:stock', config: {unit: kg}}"

    def __init__(self, data_source: DataSource, config: Mapping[str, Any] | None = None) -> None:
        """`config`: further arguments of the function."""
        check_arguments(CustomDataProvider.__init__, locals(), ParameterError)
        if config and not callable(data_source):
            raise ParameterError("config holds arguments of a function, and data_source is a mapping", "config")
        self.data_source = data_source
        self.config = dict(config or {})

    @classmethod
    def get_config_schema(cls) -> dict[str, Any]:
        schema = super().get_config_schema()
        schema["parameters"]["data_source"]["type"] = "object|code"
        return schema

    async def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return join_fragments(await self.fragments(query, ()))

    async def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        data: Any = self.data_source
        if callable(data):
            data = await call_method(data, query, **self.config)
        if isinstance(data, Mapping):
            entries = cast("Mapping[Any, Any]", data).items()
            return [self._fragment(f"{name}: {_to_text(value)}", str(name)) for name, value in entries]
        return [] if data is None else [self._fragment(_to_text(data))]

    def _fragment(self, text: str, label: str = "") -> Fragment:
        return Fragment(text, self.provider_name, label=label)

    def fresh(self) -> CustomDataProvider:
        return self  # It remembers nothing.


def _to_text(value: Any) -> str:
    plain = to_json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
