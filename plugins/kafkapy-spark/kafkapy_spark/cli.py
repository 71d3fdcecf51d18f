"""kafkapy-spark: commands for those who run Spark queries on Kafka."""

from __future__ import annotations

import click

from kafkapy_spark.version import __version__


@click.group(name="spark")
@click.version_option(__version__, prog_name="kafkapy-spark")
def main() -> None:
    """Spark queries on Kafka topics."""
