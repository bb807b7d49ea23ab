"""Says in whose name a command runs, and what its project says of models.

A project adds the `.env` file of its root under that of the working folder, and its names of models are looked up in
both. `os.environ` is never written to.
"""

from __future__ import annotations

import os

from flowengine.agents import Surroundings
from flowengine.flowfile.project import Project
from flowengine.models import ModelFacts, load_environment, read_environment


def find_user() -> str:
    """The user of this process; empty where unknown."""
    import getpass  # Few commands ask.

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def find_account() -> str:
    """Returns the system's name of this process's user, ignoring the environment; empty if unknown."""
    try:
        import pwd  # Not on every system.

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return ""


# --- Models, in a project's environment and under its names


def read_model_facts(project: Project) -> ModelFacts:
    """Reads the model settings of a project."""
    environ = read_environment(project.root, load_environment())
    return ModelFacts(environ, project.prices, project.default_provider, project.models, project.providers)


def surroundings_of(project: Project) -> Surroundings:
    """Returns the environment in which a project's models are opened."""
    environ = read_environment(project.root, load_environment())
    return Surroundings(
        environ, project.providers, project.prices, default_provider=project.default_provider, models=project.models
    )
