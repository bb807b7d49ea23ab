"""Which vendor a model's name goes to."""

from __future__ import annotations

from collections.abc import Mapping

from flowengine.models.vendor_choice import VendorQuestion, choose


def detect(
    model: str, provider: str | None = None, environ: Mapping[str, str] = {}, *, default_provider: str | None = None
) -> tuple[str, str]:
    """(provider, the model's name there) for a model as a user writes it."""
    return choose(VendorQuestion(model.strip(), provider, environ, default_provider))[:2]
