"""Commands that only look at a run's record, and run nothing of its flow."""

from __future__ import annotations

from typing import Any

import click

from flowengine.journal.damage import reading_record

__all__ = ["ReadingCommand"]


class ReadingCommand(click.Command):
    """A command whose failure on a record is the record's."""

    def invoke(self, ctx: click.Context) -> Any:
        with reading_record():
            return super().invoke(ctx)
