"""What kafkapy's command line gets: `kafkapy spark`, the same as `kafkapy-spark`. Loaded by brokers too, so it imports
neither pyspark nor pyarrow."""

from __future__ import annotations

from collections.abc import Iterable

from click import Command

from kafkapy.plugins import hookimpl
from kafkapy_spark.cli import main


@hookimpl
def register_commands() -> Iterable[Command]:
    """The group of commands."""
    return [main]
