"""How far a streaming query is, by the checkpoint that Spark keeps of it.

    offsets/N   what batch N reads to, written before it runs: "v1", the batch's metadata, then a line for each source,
                JSON or "-"
    commits/N   there once batch N is done

Checkpoints of Spark's own Kafka source have the same form.
Source: org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog.
"""

from __future__ import annotations

from pathlib import Path

from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.offsets import PartitionOffsets, parse_offsets


def done_offsets(checkpoint: Path) -> tuple[int, list[PartitionOffsets]]:
    """The last batch that is done, and where each of the query's Kafka sources was behind it. IllegalArgumentError for
    what is no checkpoint of a query that has finished a batch."""
    done = _batches(checkpoint / "commits") & _batches(checkpoint / "offsets")
    if not done:
        raise IllegalArgumentError(f"{checkpoint} is no checkpoint of a streaming query that has finished a batch")
    batch = max(done)
    version, _, *sources = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    if version != "v1":
        raise IllegalArgumentError(f"{checkpoint} has offsets of version {version}; v1 is what can be read")
    return batch, [found for found in map(_kafka_offsets, sources) if found]


def _batches(directory: Path) -> set[int]:
    """Numbers of batches in a log of Spark's; beside them are checksums and files that are being written."""
    if not directory.is_dir():
        return set()
    return {int(path.name) for path in directory.iterdir() if path.name.isdecimal()}


def _kafka_offsets(line: str) -> PartitionOffsets | None:
    """None for a source of another kind, and for one that has not been read from."""
    try:
        return parse_offsets(line)
    except IllegalArgumentError:
        return None
