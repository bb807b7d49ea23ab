"""Collects what a flow takes along beside its text, so that another machine builds it: the files of its texts and of
the flows that it runs as nodes, and what its project says of models. Plain data, for a journal.

    {"path": "flows/main.yaml", "files": {"flows/parts/inner.yaml": "…"}, "project": {"prices": {…}, …}}

It holds no value of an environment variable. Who unpacks it trusts nothing of it, and keeps to its own project in
whatever can do harm on its own machine:

    of the run         prices, rate limits, the vendor of names that no table knows, settings of memory, names of
                       environment variables for templates (whose values, those of the submitting machine, are in
                       the run)
    of the machine     which modules may be imported and where they are, which MCP servers may be started or asked,
                       which addresses may be asked and what may be sent there, whether scripts run without a
                       sandbox, every folder and file, every key and where it comes from; an address that a key
                       would be sent to; the project's own names of models
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from flowengine.core import EMPTY, RefusedPathError, is_map, resolve_path
from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis import flows_in
from flowengine.flowfile.file_texts import DISK, BroughtFiles, FlowFiles, below
from flowengine.flowfile.loader import is_flow_file
from flowengine.flowfile.project import Project, project_of
from flowengine.flowfile.schema import FlowSpec
from flowengine.models import ProviderSettings

# --- Where the text of a flow is at home that a run brings along


def place_of(path: str, folder: str = "", here: Path | None = None) -> Path:
    """The path under which the text is read; `path` and `folder` are what the run says, `here` is the working folder.

    >>> place_of("os.yaml", "/usr/lib/python3", Path("/srv/flows"))
    PosixPath('/srv/flows/os.yaml')
    """
    here = (here or Path()).absolute()
    project, _ = project_of(here)
    if project.file is not None:
        try:
            there = resolve_path(path, project.root, here / folder)
            if _is_governed(there, project) or is_flow_file(there):
                return there
        except (RefusedPathError, OSError, ValueError):
            pass
    return here / _name(path)


def _is_governed(path: Path, project: Project) -> bool:
    """Tells whether the project file of the working folder says what is allowed there."""
    return project.file is not None and project_of(path)[0].file == project.file.resolve()


def _name(path: str) -> str:
    name = Path(path.replace("\0", "")).name
    return name if name not in ("", "..") else "flow.yaml"


_PLACES: Final = frozenset({"store"})
"""Settings of memory that name a place."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


def pack_bundle(spec: FlowSpec, project: Project, here: Path) -> Mapping[str, Any]:
    """Packs the parts of a project that accompany a flow; `here`: the folder that paths of the flow start from."""
    tables: dict[str, Any] = {
        "allow_env": list(project.allow_env),
        "default_provider": project.default_provider,
        "providers": {name: _plain_settings(each) for name, each in project.providers.items()},
        "prices": {model: _drop_defaults(asdict(price)) for model, price in project.prices.items()},
        "memory": {name: value for name, value in project.memory.items() if name not in _PLACES},
    }
    bag: dict[str, Any] = {"project": {name: value for name, value in tables.items() if value}}
    if spec.path is not None:
        bag["path"] = below(project.root, here / spec.path)
        bag["files"] = {below(project.root, here / path): text for path, text in _beside(spec)}
    return {name: value for name, value in bag.items() if value}


class Unpacked(NamedTuple):
    """The parts needed to load a run's flow, beside its text."""

    path: Path
    project: Project
    files: FlowFiles


def unpack_bundle(bag: object, path: Path, own: Project) -> Unpacked:
    """The flow's place below the root of this machine's project, that project with what the run says beside, and the
    run's files. `path` is where a run lies that has no baggage. `DefinitionError` for what is none."""
    if not is_map(bag):
        return Unpacked(path, own, DISK)
    project, files, name = bag.get("project", {}), bag.get("files", {}), bag.get("path")
    texts = {key: text for key, text in files.items() if isinstance(text, str)} if is_map(files) else {}
    if isinstance(name, str) and _is_below(name):
        path = own.root / name
    return Unpacked(path, _merge_tables(own, project if is_map(project) else {}), BroughtFiles(own.root, texts))


def _beside(spec: FlowSpec) -> Iterator[tuple[Path, str]]:
    """The files of a flow's texts and the flows below it, with those of theirs."""
    for each in flows_in(spec):
        yield from each.source.texts.items()
        if each is not spec and each.path is not None:
            yield each.path, each.text


def _plain_settings(settings: ProviderSettings) -> dict[str, Any]:
    """Returns a provider's settings as a project file has them; an address that holds a password stays at home."""
    limits = settings.limits
    values: dict[str, Any] = {"base_url": settings.base_url if _is_open(settings.base_url) else None}
    for name in () if limits is None else limits.__dataclass_fields__:
        values[name] = getattr(limits, name)
    values |= {"adapter": settings.adapter, "structured_output": settings.structured_output}
    return _drop_defaults(values)


def _drop_defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    """Drops the keys without a value: a project file has no word for it."""
    return {name: value for name, value in table.items() if value is not None}


def _is_open(address: str | None) -> bool:
    try:
        parts = urlsplit(address or "")
        return "@" not in parts.netloc and not parts.query
    except ValueError:
        return False


def _merge_tables(own: Project, tables: Mapping[str, Any]) -> Project:
    # Only a run that comes from elsewhere says anything here.
    from flowengine.flowfile.project import read_default_provider, read_prices, read_providers

    problems: list[str] = []

    def tell(message: str, hint: str = "", path: tuple[str, ...] = ()) -> None:
        problems.append(message)

    # A command or a variable for a key is this machine's own matter.
    provider_tables = {name: _without_keys(each) for name, each in _table(tables, "providers").items()}
    providers = read_providers(provider_tables, tell)
    prices = read_prices(_table(tables, "prices"), tell)
    default = tables.get("default_provider")
    default = read_default_provider(default if isinstance(default, str) else None, tell)
    if problems:
        raise DefinitionError(f"what the run says of models cannot be used here: {'; '.join(problems)}")
    memory = {name: value for name, value in _table(tables, "memory").items() if name not in _PLACES}
    return replace(
        own,
        allow_env=tuple(_variables(tables.get("allow_env"))),
        providers={**own.providers, **{name: _both(own.providers.get(name), each) for name, each in providers.items()}},
        default_provider=own.default_provider or default,
        prices={**own.prices, **prices},
        memory={**own.memory, **memory},
    )


def _without_keys(table: Any) -> Any:
    return {key: value for key, value in table.items() if key not in _OF_KEYS} if is_map(table) else table


_OF_KEYS: Final = frozenset({"key_env", "key_command"})


def _both(own: ProviderSettings | None, from_bundle: ProviderSettings) -> ProviderSettings:
    """This machine's own settings of a vendor, and the run's where it has none.

    Who is asked at an address of the run's is never asked through a library that looks for keys by itself.
    """
    if own is None:
        is_foreign = from_bundle.base_url is not None
        return from_bundle._replace(is_foreign=is_foreign, adapter=None if is_foreign else from_bundle.adapter)
    both = own._replace(
        limits=own.limits or from_bundle.limits,
        adapter=own.adapter or from_bundle.adapter,
        structured_output=own.structured_output or from_bundle.structured_output,
    )
    if own.base_url is not None or from_bundle.base_url is None:
        return both
    return both._replace(base_url=from_bundle.base_url, is_foreign=True, adapter=None)


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, EMPTY)
    return table if is_map(table) else EMPTY


def _variables(names: object) -> Iterator[str]:
    for each in cast("list[object]", names) if isinstance(names, list) else ():
        if isinstance(each, str) and _VARIABLE.fullmatch(each):
            yield each


def _is_below(name: str) -> bool:
    """Tells whether a path leads to somewhere below, in whatever a run may have said.

    >>> [_is_below(each) for each in ("a/b.yaml", "../b.yaml", "/etc/b.yaml", "a/../../b.yaml", "")]
    [True, False, False, False, False]
    """
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name and "\\" not in name
