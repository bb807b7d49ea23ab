"""Takes a flow as it was at a revision of its git repository, into a folder of its own, for as long as it is needed."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from flowengine.errors import InputError

PREFIX: Final = "git:"
"""How a revision is named on the command line."""


class NotThereError(InputError):
    """The repository had no such file at the revision."""


def revision_of(path: Path, revision: str) -> str:
    """The commit that a revision is, in the repository that a file stands in. `InputError` where there is none."""
    commit = _git(path.parent, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise InputError(f"{PREFIX}{revision}: {path.parent.absolute()} has no such revision in git")
    return commit.decode().strip()


@contextmanager
def tree_at(path: Path, commit: str) -> Generator[Path]:
    """Yields the file's path in a temporary copy of its repository at a commit."""
    top = _git(path.parent, "rev-parse", "--show-toplevel")
    if top is None:
        raise InputError(f"{path.parent.absolute()} is in no git repository")
    root = Path(os.fsdecode(top.removesuffix(b"\n")))
    packed = _git(root, "archive", "--format=tar", commit)
    if packed is None:
        raise InputError(f"{PREFIX}{commit[:12]}: git gives no files of it")
    with tempfile.TemporaryDirectory(prefix="flowengine-git-") as folder:
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(folder, filter=_refuse_outside)
            else:  # Python before 3.11.4.
                archive.extractall(folder, [each for each in archive if not _may_lead_outside(each)])
        there = Path(folder) / os.path.relpath(path.resolve(), root.resolve())
        if not there.is_file():
            raise NotThereError(f"{PREFIX}{commit[:12]} has no file {os.path.relpath(path.resolve(), root.resolve())}")
        yield there


def _refuse_outside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Leaves out links that lead out of the copy, which a repository may have."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _may_lead_outside(member: tarfile.TarInfo) -> bool:
    """Tells whether a link may lead out of the copy: by an absolute path, too many `..`, or any behind a name."""
    if not (member.issym() or member.islnk()):
        return False
    parts = member.linkname.split("/")
    ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return member.linkname.startswith("/") or ".." in parts[ups:] or ups > member.name.count("/")


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Runs git; None if it fails."""
    try:
        process = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"git cannot be run: {error}") from error
    return process.stdout if process.returncode == 0 else None
