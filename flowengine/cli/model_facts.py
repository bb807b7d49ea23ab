"""Looks models up as a command of a project would ask them, in its environment and under its names."""

from __future__ import annotations

from flowengine.agents.settings import Surroundings
from flowengine.cli.environment import load_environment
from flowengine.flowfile.project.project import Project
from flowengine.models.dotenv import read_environment
from flowengine.models.worst_case import ModelFacts

__all__ = ["read_model_facts", "surroundings_of"]


def read_model_facts(project: Project) -> ModelFacts:
    """What is known of models where a project is."""
    environ = read_environment(project.root, load_environment())
    return ModelFacts(environ, project.prices, project.default_provider, project.models)


def surroundings_of(project: Project) -> Surroundings:
    """Where models of a project are opened from."""
    environ = read_environment(project.root, load_environment())
    return Surroundings(
        environ, project.providers, project.prices, default_provider=project.default_provider, models=project.models
    )
