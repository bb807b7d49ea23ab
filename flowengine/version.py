"""The version, where every module may read it without importing the package's public names."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

__all__ = ["DISTRIBUTION", "EXTRAS", "__version__", "install_hint", "missing_modules"]

__version__ = "0.2.0"


# --- How FlowEngine is installed

DISTRIBUTION: Final = "flowengine-dag"

Extra: TypeAlias = Literal["eval", "mcp", "otel", "png", "queue", "serve", "ui"]

EXTRAS: Final[dict[Extra, tuple[str, ...]]] = {
    "eval": ("scipy",),
    "mcp": ("mcp",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "requests"),
    "png": ("resvg_py",),
    "queue": ("psycopg", "procrastinate"),
    "serve": ("starlette", "uvicorn", "prometheus_client"),
    "ui": ("starlette", "uvicorn"),
}
"""Extra → the modules that it brings."""


def install_hint(extra: Extra) -> str:
    """Returns the command that installs a missing extra.

    >>> install_hint("queue")
    "pip install 'flowengine-dag[queue]', or in a clone: pip install '.[queue]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a clone: pip install '.[{extra}]'"


def missing_modules(extra: Extra) -> list[str]:
    """The modules of an extra that are not installed; none of them is imported."""
    return [each for each in EXTRAS[extra] if not _is_installed(each)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # A package above it is not there.
        return False
