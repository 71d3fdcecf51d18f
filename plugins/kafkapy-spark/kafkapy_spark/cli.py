"""kafkapy-spark: commands for those who run Spark queries on Kafka. Brokers import this with their plugins, so what a
command needs is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from kafkapy.tools.lazy_group import LazyGroup
from kafkapy_spark.version import __version__

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "archive": ("kafkapy_spark.jobs.archive:command", "Archive topics to Parquet, Delta or Iceberg."),
    "replay": ("kafkapy_spark.jobs.replay:command", "Write archived records to topics again."),
    "mirror": ("kafkapy_spark.jobs.mirror:command", "Copy topics, optionally through SQL."),
    "lag": ("kafkapy_spark.lag_command:lag", "Show the lag of a streaming query."),
    "profile": ("kafkapy_spark.jobs.profile:command", "Profile topics: rows, bytes, sizes, keys, gaps."),
    "latest": ("kafkapy_spark.jobs.latest:command", "Write the latest value of each key as a table."),
    "txn": ("kafkapy_spark.txn_command:txn", "Show and end transactions of exactly-once sinks."),
}
"""Name: (where its command is, its line in the help)."""


@click.group(
    name="spark",
    cls=LazyGroup,
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kafkapy-spark")
def main() -> None:
    """Spark queries on Kafka topics."""
