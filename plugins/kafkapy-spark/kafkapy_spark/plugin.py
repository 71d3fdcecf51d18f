"""What kafkapy's command line gets: `kafkapy spark`, the same as `kafkapy-spark`. Loaded by brokers too, so it imports
neither pyspark nor pyarrow, nor click before there is a command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkapy.plugins import hookimpl

if TYPE_CHECKING:
    from click import Command


@hookimpl
def register_commands() -> Iterable[Command]:
    """The group of commands."""
    from kafkapy_spark.cli import main

    return [main]
