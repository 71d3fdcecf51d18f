"""kafkapy-spark lag: how far a streaming query is behind, by its checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from kafkapy.tools.options import cluster_options, connected, json_option
from kafkapy.tools.output import Column, Output
from kafkapy.types import ListOffsetsTimestamp
from kafkapy_spark.checkpoint import done_offsets

LAG_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("current_offset", "current", right=True),
    Column("log_end_offset", "log end", right=True),
    Column("lag", right=True, style="bold"),
)


@click.command("lag")
@click.argument("checkpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@cluster_options
def lag(settings: dict[str, object], checkpoint: Path, as_json: bool) -> None:
    """Show the lag of a streaming query.

    CHECKPOINT is the query's checkpointLocation, a directory on this machine. The command reads the offsets of the last
    completed batch, also of Spark's own Kafka source.
    """
    batch, sources = done_offsets(checkpoint)
    partitions = {partition for offsets in sources for partition in offsets}
    with connected(settings) as admin:
        ends = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST))
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "current_offset": offset,
            "log_end_offset": ends[partition].offset,
            "lag": ends[partition].offset - offset,
        }
        for offsets in sources
        for partition, offset in sorted(offsets.items())
    ]
    output = Output(as_json)
    output.heading(f"batch {batch}")
    output.rows(rows, LAG_COLUMNS)
